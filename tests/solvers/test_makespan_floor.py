"""The bound on the makespan that needs no search holds, and is that of the loads where nothing else binds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.strategies import cases, problems
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.relaxation.loads import makespan_floor
from tvm_xengine.solvers.result import Objective


def floor_of(problem: Problem) -> float:
    return makespan_floor(index_problem(problem, Objective.COST))


def apart(costs: list[dict[str, float]]) -> Problem:
    """Ops that need nothing of each other."""
    names = [f"o{k}" for k in range(len(costs))]
    tensors = (Tensor("x", 64, Role.BATCH), *(Tensor(name, 64) for name in names))
    ops = tuple(Op(name, "k", ("x",), (name,)) for name in names)
    platform = Platform((Device("a", "llvm"), Device("b", "llvm")))
    given = {
        name: {device: OpCost(us) for device, us in there.items()}
        for name, there in zip(names, costs, strict=True)
    }
    return Problem(OpGraph(tensors, ops, tuple(names)), platform, given)


@settings(max_examples=cases(60))
@given(problems())
def test_no_schedule_ends_before_it(problem: Problem) -> None:
    schedule = greedy_schedule(problem.without_constraints)
    if schedule is not None:
        assert floor_of(problem) <= simulate(problem, schedule).makespan_us


def test_loads_are_shared_by_equal_devices() -> None:
    problem = apart([{"a": 10.0, "b": 10.0}] * 8)
    assert floor_of(problem) == pytest.approx(40.0, rel=0.01)


def test_ops_that_one_device_alone_can_run_are_its_load() -> None:
    problem = apart([{"a": 10.0}] * 6 + [{"b": 1.0}] * 3)
    assert floor_of(problem) == pytest.approx(60.0, rel=0.01)


def test_a_slower_device_takes_what_fits_it() -> None:
    problem = apart([{"a": 10.0, "b": 30.0}] * 12)
    assert floor_of(problem) == pytest.approx(90.0, rel=0.02)
