"""A price from the bound holds for every budget, judged by an exact search."""

from __future__ import annotations

import pytest

from tests.explain.plans import chain_plan
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.explain.prices.bound_price import bound_prices, with_better_bound
from tvm_xengine.explain.prices.front import front
from tvm_xengine.explain.prices.smallest_budget import smallest_budget
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.result import Limits, Scope

_ROUNDING_RATIO = 1e-6


def _optimum(problem: Problem) -> float | None:
    try:
        plan = plan_schedule(problem, PlanOptions("astar", limits=Limits(0.5)))
    except NoScheduleError:
        return None
    return plan.simulation.cost_us


@pytest.fixture(scope="module")
def plan() -> Plan:
    return chain_plan(6)


def test_no_optimum_lies_below_the_line_of_the_bound(plan: Plan) -> None:
    (price,) = bound_prices(plan, 20.0).values()
    assert price.per_mib > 0
    device, planned = price.device, price.budget_bytes
    step = plan.problem.platform.alignment_bytes
    for budget_bytes in range(planned // 2, 2 * planned, max(step, planned // 6)):
        optimum = _optimum(plan.problem.with_budgets({device: budget_bytes}))
        if optimum is not None:
            assert optimum >= price.at(budget_bytes) * (1 - _ROUNDING_RATIO)


@pytest.mark.slow
def test_a_front_falls_and_lies_above_its_bounds(plan: Plan) -> None:
    (device,) = plan.problem.platform.index
    (price,) = bound_prices(plan, 20.0).values()
    points = front(plan, device, smallest_budget(plan, device, 5.0), None, price, 6.0)
    assert price.budget_bytes in {one.budget_bytes for one in points}
    values = [one.value for one in points if one.value is not None]
    assert values == sorted(values, reverse=True)
    assert all(one.bound <= one.value for one in points if one.value is not None)
    every_op_once = sum(
        min(c.compute_us for c in costs.values()) for costs in plan.problem.costs.values()
    )
    assert points[-1].value == pytest.approx(every_op_once)


def test_a_bound_of_every_schedule_replaces_one_of_the_given_order(plan: Plan) -> None:
    prices = bound_prices(plan, 20.0)
    result = with_better_bound(plan.result, prices.values())
    assert result.scope is Scope.EVERY_SCHEDULE
    assert result.bound >= max(price.bound for price in prices.values())
