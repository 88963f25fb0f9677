"""Fronts of time against budget."""

from __future__ import annotations

import pytest

from tests.solvers.samples.chains import training_chain
from tests.solvers.samples.networks import chain, single
from tvm_xengine.planning import pareto as fronts
from tvm_xengine.planning.pareto import ParetoPoint, pareto, with_best_of_smaller
from tvm_xengine.planning.question import PlanOptions
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, Status
from tvm_xengine.solvers.solve import solve


def test_a_larger_budget_never_costs_more() -> None:
    budgets = [{"cpu": size} for size in (80, 56, 48, 40)]
    points = pareto(training_chain(5, 100), budgets, PlanOptions(limits=Limits(time_limit_s=2.0)))
    values = [point.result.value for point in points]
    assert all(value is not None for value in values)
    assert values == sorted(values, key=lambda value: value or 0.0)
    assert values[0] != values[-1]


def test_points_come_in_the_order_asked_for() -> None:
    budgets = [{"cpu": 80}, {"cpu": 48}]
    seen: list[dict[str, int]] = []
    points = pareto(
        training_chain(6, 100),
        budgets,
        PlanOptions(limits=Limits(time_limit_s=2.0)),
        on_point=lambda point: seen.append(dict(point.budgets)),
    )
    assert [dict(point.budgets) for point in points] == budgets
    assert seen == budgets[::-1]


def test_what_is_proven_for_more_memory_holds_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {80: 60.0, 56: 40.0, 48: 100.0}

    def solved(problem: Problem, *_given: object, **_options: object) -> SolveResult:
        bound = bounds[problem.platform.devices[0].budget_bytes]
        return SolveResult(Status.FEASIBLE, Schedule(()), Objective.COST, 100.0, bound, 0.0, "auto")

    monkeypatch.setattr(fronts, "solve", solved)
    points = pareto(training_chain(5, 100), [{"cpu": size} for size in bounds], PlanOptions())
    assert [point.result.bound for point in points] == [60.0, 60.0, 100.0]


def _point(budget_bytes: int, value: float | None, floor: float = 0.0) -> ParetoPoint:
    status, schedule = (
        (Status.NO_SOLUTION, None) if value is None else (Status.FEASIBLE, Schedule(()))
    )
    result = SolveResult(status, schedule, Objective.COST, value, 50.0, 0.0, "auto")
    return ParetoPoint({"cpu": budget_bytes}, result, training_chain(2, 10).graph, 1, floor)


def test_a_point_takes_over_what_needs_less_memory_and_is_better() -> None:
    points = [_point(300, 120.0), _point(200, None), _point(100, 90.0, floor=80.0)]
    found = with_best_of_smaller(points)
    assert [point.result.value for point in found] == [90.0, 90.0, 90.0]
    assert [point.budgets["cpu"] for point in found] == [300, 200, 100]
    # The bound of a smaller budget does not hold for a larger one; the floor of the form does.
    assert [point.result.bound for point in found] == [80.0, 80.0, 50.0]


def test_a_point_takes_nothing_over_that_needs_more_memory_or_is_worse() -> None:
    points = [_point(300, 80.0), _point(200, 90.0), _point(100, 100.0)]
    assert with_best_of_smaller(points) == tuple(points)


def test_a_front_begins_with_the_schedule_that_it_is_given() -> None:
    """A search of a twentieth of a second finds nothing as good on its own."""
    problem = single(chain(40), 0.5)
    (device,) = problem.platform.devices
    known = solve(problem, "local-search", limits=Limits(1.0))
    (point,) = pareto(
        problem,
        [{device.name: device.budget_bytes}],
        PlanOptions("local-search", limits=Limits(0.05)),
        start=known.schedule,
    )
    assert known.value is not None
    assert point.result.value is not None
    assert point.result.value <= known.value
