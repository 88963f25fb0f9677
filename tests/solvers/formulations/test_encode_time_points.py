"""Every schedule is a solution of the relaxation, and costs at least as much: so it is a bound."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings

from tests.solvers.formulations.test_time_points import chain_of_ops
from tests.solvers.samples.networks import chain, pair
from tests.strategies import cases, problems
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.periods import (
    ancestor_bits,
    periods_in_every_order,
    periods_in_given_order,
    periods_in_order,
)
from tvm_xengine.solvers.relaxation.time_points import formulate_time_points
from tvm_xengine.solvers.result import Objective


def check(problem: Problem, schedule: Schedule) -> None:
    indexed = index_problem(problem, Objective.COST)
    cost_us = simulate(problem, schedule).cost_us
    ops, ancestors = range(indexed.op_count), ancestor_bits(indexed)
    every = periods_in_every_order(indexed, chain_of_ops(indexed), ancestors)
    floating = periods_in_every_order(indexed, ops[::2], ancestors)
    own = periods_in_order(indexed, ops, indexed.first_runs(schedule))
    for periods in (every, floating, own):
        model = formulate_time_points(indexed, periods)
        x = encode_time_points(model, schedule)
        assert x is not None
        assert model.program.objective(x) <= cost_us + 1e-6


@settings(max_examples=cases(150))
@given(problem=problems(max_devices=3, max_ops=6))
def test_schedules_of_the_greedy_solver(problem: Problem) -> None:
    schedule = greedy_schedule(problem)
    assume(schedule is not None)
    assert schedule is not None
    check(problem, schedule)


@pytest.mark.slow
@settings(max_examples=25)
@given(problem=problems(max_devices=3, max_ops=6))
def test_schedules_of_the_search_whose_order_differs(problem: Problem) -> None:
    schedule = search(problem, evaluations=300)
    assume(schedule is not None)
    assert schedule is not None
    check(problem, schedule)


def test_a_result_stays_where_the_schedule_has_it_at_the_end() -> None:
    """On b, where it was made last, it would be in the way of the last op."""
    tensors = Tensor("x", 1, Role.BATCH), Tensor("y", 10), Tensor("z", 1), Tensor("w", 10)
    names = ("p", "x", "y"), ("q", "y", "z"), ("r", "z", "w")
    ops = tuple(Op(name, name, (reads,), (makes,)) for name, reads, makes in names)
    graph = OpGraph(tensors, ops, outputs=("y", "w"))
    devices = Device("a", "llvm", 11), Device("b", "llvm", 11)
    platform = Platform(devices, (Link("a", "b", 1.0, 1.0), Link("b", "a", 1.0, 1.0)))
    costs = {op.name: {"a": OpCost(1.0), "b": OpCost(1.0)} for op in ops}
    problem = Problem(graph, platform, costs)
    steps = [Compute("p", "a"), Transfer("y", "a", "b"), Compute("q", "b"), Compute("r", "b")]
    schedule = with_frees(problem, steps, survivors={"y": "a", "w": "b"})
    with pytest.raises(InvalidScheduleError, match="budget"):
        simulate(problem, with_frees(problem, steps))
    check(problem, schedule)


def test_a_schedule_of_another_order_has_no_solution() -> None:
    problem = pair(chain(4), 2.0, slow=3.0, link_gb_s=5.0)
    schedule = greedy_schedule(problem)
    assert schedule is not None
    indexed = index_problem(problem, Objective.COST)
    order = indexed.first_runs(schedule)
    swapped = next(
        ([*order[:k], order[k + 1], order[k], *order[k + 2 :]])
        for k in range(len(order) - 1)
        if not ancestor_bits(indexed)[order[k + 1]] >> order[k] & 1
    )
    model = formulate_time_points(indexed, periods_in_order(indexed, swapped, swapped))
    assert encode_time_points(model, schedule) is None
    given = formulate_time_points(indexed, periods_in_given_order(indexed, order))
    assert encode_time_points(given, schedule) is not None
