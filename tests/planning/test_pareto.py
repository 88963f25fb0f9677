"""Fronts of time against budget."""

from __future__ import annotations

from tests.solvers.chains import training_chain
from tvm_xengine.planning.pareto import pareto
from tvm_xengine.solvers.result import Limits


def test_a_larger_budget_never_costs_more() -> None:
    budgets = [{"cpu": size} for size in (80, 56, 48, 40)]
    points = pareto(training_chain(5, 100), budgets, limits=Limits(time_limit_s=2.0))
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
        limits=Limits(time_limit_s=2.0),
        on_point=lambda point: seen.append(dict(point.budgets)),
    )
    assert [dict(point.budgets) for point in points] == budgets
    assert seen == budgets[::-1]
