"""Shortest paths over states against exhaustive search, which shares nothing with them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start
from tests.strategies import cases, problems
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.astar.search import Exchange, shortest_path
from tvm_xengine.solvers.result import Limits, Objective, Status
from tvm_xengine.solvers.solve import solve

pytestmark = pytest.mark.filterwarnings("error")

SHARES = st.sampled_from((0.0, 0.1, 0.3, 0.6, 1.1))
"""Below which share of a budget tensors are not counted at first: none, some, all."""


def _same_as_exhaustive(
    problem: Problem, objective: Objective, counted_share: float, slack: float = math.inf
) -> None:
    """`slack`: by which ratio what is known beforehand is above the optimum."""
    expected = solve_exhaustively(problem, objective=objective.value)
    assume(expected.is_proven)
    known = None if expected.value is None else expected.value * (1.0 + slack) + 1e-3
    found = shortest_path(
        problem,
        objective,
        Exchange(known=lambda: known if slack < math.inf else None),
        counted_share=counted_share,
    )
    assume(found is not None)
    assert found is not None
    assert found.is_over
    if expected.value is None:
        assert found.bound == float("inf")
        return
    assert found.bound == pytest.approx(expected.value, rel=1e-5)
    assert found.schedule is not None
    assert objective.of(simulate(problem, found.schedule)) == pytest.approx(expected.value)


@settings(max_examples=cases(30), suppress_health_check=list(HealthCheck))
@given(
    problem=problems(), objective=st.sampled_from((Objective.COST, Objective.ENERGY)), share=SHARES
)
def test_the_optimum_is_that_of_exhaustive_search(
    problem: Problem, objective: Objective, share: float
) -> None:
    _same_as_exhaustive(problem, objective, share)


@settings(max_examples=cases(60), suppress_health_check=list(HealthCheck))
@given(problem=problems(max_devices=3), share=SHARES, data=st.data())
def test_devices_with_room_for_everything(
    problem: Problem, share: float, data: st.DataObject
) -> None:
    """Sometimes the last device does nothing that the one before it does not do for less."""
    platform = problem.platform
    names = [device.name for device in platform.devices]
    ample = data.draw(st.sets(st.sampled_from(names)))
    budgets = {d.name: 2**20 if d.name in ample else d.budget_bytes for d in platform.devices}
    links = tuple(Link(a, b, 2.0, 0.064, 31.25) for a in names for b in names if a != b)
    linked = replace(platform.with_budgets(budgets), links=links)
    costs = problem.costs
    if len(names) > 1 and platform.devices[-1].can_compute and data.draw(st.booleans()):
        slower = st.integers(0, 3).map(float)
        costs = {
            op: there
            if names[-2] not in there
            else {**there, names[-1]: OpCost(there[names[-2]].compute_us + data.draw(slower))}
            for op, there in problem.costs.items()
        }
    slack = data.draw(st.sampled_from((0.0, 0.1, 0.5, math.inf)))
    _same_as_exhaustive(
        replace(problem, platform=linked, costs=costs), Objective.COST, share, slack
    )


@settings(max_examples=cases(6), suppress_health_check=list(HealthCheck))
@given(problem=problems(max_ops=9, max_devices=3))
def test_no_order_that_is_given_is_cheaper(problem: Problem) -> None:
    found = shortest_path(problem, Objective.COST, capacity=200_000)
    assume(found is not None and found.is_over)
    assert found is not None
    given_order = solve(problem, solver="tight", limits=Limits(10.0))
    if given_order.value is not None:
        assert found.bound <= given_order.value + 1e-6


def test_a_result_made_elsewhere_comes_home_for_what_reads_it_there() -> None:
    """Only `large` can update, only `small` can read the result, which no run fetches home."""
    tensors = (
        Tensor("w", 256, Role.STATISTIC),
        Tensor("new", 256, Role.INTERMEDIATE),
        Tensor("y", 256, Role.INTERMEDIATE),
    )
    ops = (
        Op("update", "update", ("w",), ("new",), (("new", "w"),), recomputable=False),
        Op("read", "read", ("new",), ("y",), recomputable=False),
    )
    devices = (Device("small", "llvm", 576), Device("large", "llvm", 4096))
    names = ("small", "large")
    links = tuple(Link(a, b, 4.0, 0.064) for a in names for b in names if a != b)
    problem = Problem(
        OpGraph(tensors, ops, ("y",)),
        Platform(devices, links, home="small"),
        {"update": {"large": OpCost(5.0)}, "read": {"small": OpCost(3.0)}},
        home={"w": "small"},
    )
    found = shortest_path(problem, Objective.COST)
    assert found is not None
    assert found.bound == pytest.approx(24.0)
    assert solve_exhaustively(problem).value == pytest.approx(24.0)


def test_what_is_known_is_proven_without_a_schedule() -> None:
    found = shortest_path(repeated_start(12), Objective.COST, Exchange(known=lambda: 7.0))
    assert found is not None
    assert found.is_over
    assert found.schedule is None
    assert found.bound == pytest.approx(7.0)


def test_a_search_that_is_stopped_has_a_bound_that_holds() -> None:
    heard: list[float] = []
    found = shortest_path(
        repeated_start(12),
        Objective.COST,
        Exchange(should_stop=lambda: bool(heard), on_bound=heard.append),
        capacity=3,
    )
    assert found is not None
    assert not found.is_over
    assert 0.0 < found.bound <= 7.0


def test_devices_that_are_not_linked_are_left_to_others() -> None:
    problem = repeated_start(12)
    platform = Platform((*problem.platform.devices, Device("other", "llvm", 100)))
    apart = replace(problem, platform=platform)
    assert shortest_path(apart, Objective.COST) is None
    result = solve(apart, solver="astar")
    assert result.status is Status.NO_SOLUTION
    assert "--solver auto" in result.message


def test_the_solver_says_what_it_has_proven() -> None:
    result = solve(repeated_start(12), solver="astar")
    assert result.status is Status.OPTIMAL
    assert result.value == 7.0
    assert solve(repeated_start(11), solver="astar").status is Status.INFEASIBLE


def test_the_makespan_is_refused() -> None:
    with pytest.raises(ValueError, match="makespan"):
        solve(repeated_start(12), solver="astar", objective=Objective.MAKESPAN)
