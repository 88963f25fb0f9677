"""The default solver: proof and search side by side, and what the result then says."""

from __future__ import annotations

import pytest

from tests.solvers.samples.chains import training_chain
from tvm_xengine.scheduling.graph import Op, OpGraph, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits, Objective, Status
from tvm_xengine.solvers.solve import solve


def diamond(budget_bytes: int) -> Problem:
    """Two branches of 8 bytes that are read together, on two devices with a cheap link."""
    graph = OpGraph(
        tensors=tuple(
            Tensor(name, size) for name, size in (("a", 4), ("b", 8), ("c", 8), ("d", 4))
        ),
        ops=(
            Op("a", "k", (), ("a",)),
            Op("b", "k", ("a",), ("b",)),
            Op("c", "k", ("a",), ("c",)),
            Op("d", "k", ("b", "c"), ("d",)),
        ),
        outputs=("d",),
    )
    links = (Link("x", "y", 1.0, 1.0), Link("y", "x", 1.0, 1.0))
    devices = (Device("x", "llvm", budget_bytes), Device("y", "llvm", 100))
    costs = {op.name: {"x": OpCost(1.0), "y": OpCost(10.0)} for op in graph.ops}
    return Problem(graph, Platform(devices, links, alignment_bytes=1), costs)


def test_one_copy_less_is_chosen_where_memory_moves_the_last_op() -> None:
    result = solve(diamond(19), limits=Limits(time_limit_s=20.0))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(3 + 10 + 2 * 1.008)


def test_a_proof_that_no_order_fits_is_reported_as_infeasible() -> None:
    result = solve(training_chain(4, 56, parameter_bytes=8), limits=Limits(time_limit_s=20.0))
    assert result.status is Status.INFEASIBLE
    assert result.diagnosis is not None


def test_the_makespan_is_never_worse_than_that_of_the_cheapest_schedule() -> None:
    problem = diamond(19)
    cheapest = solve(problem).schedule
    fastest = solve(problem, objective=Objective.MAKESPAN, limits=Limits(time_limit_s=2.0))
    assert cheapest is not None
    assert fastest.value is not None
    assert fastest.value <= simulate(problem, cheapest).makespan_us


def test_a_start_over_budget_is_not_taken() -> None:
    ample = solve(training_chain(6, 1000)).schedule
    result = solve(training_chain(6, 48), start=ample, limits=Limits(time_limit_s=10.0))
    assert result.schedule is not None
    assert simulate(training_chain(6, 48), result.schedule).peak_bytes["cpu"] <= 48
