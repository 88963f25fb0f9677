"""What is said of an alternative is what the validator says of its schedule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.explain.plans import chain_plan, plans
from tests.solvers.samples.networks import chain, single
from tests.strategies import cases
from tvm_xengine.errors import BudgetExceededError
from tvm_xengine.explain.fates import fates
from tvm_xengine.planning.alternatives.changed_schedule import (
    LAYOUT,
    Alternative,
    PlannedSteps,
    Way,
)
from tvm_xengine.planning.alternatives.ops import op_alternatives
from tvm_xengine.planning.alternatives.tensors import tensor_alternatives
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits


def _every(plan: Plan) -> list[Alternative]:
    planned = PlannedSteps(plan)
    of_tensors = [tensor_alternatives(planned, t.name) for t in plan.problem.graph.bases]
    of_ops = [op_alternatives(planned, op.name) for op in plan.problem.graph.ops]
    return [one for many in (*of_tensors, *of_ops) for one in many]


@settings(max_examples=cases(60))
@given(plans())
def test_the_price_of_an_alternative_is_the_simulated_difference(plan: Plan) -> None:
    objective = plan.result.objective
    for one in _every(plan):
        simulation = simulate(plan.problem, one.schedule, enforce_budgets=False)
        difference = objective.of(simulation) - objective.of(plan.simulation)
        assert one.difference == pytest.approx(difference)
        assert one.peak_bytes == simulation.peak_bytes


@settings(max_examples=cases(60))
@given(plans())
def test_a_budget_lacks_exactly_the_bytes_that_an_alternative_is_said_to_need(plan: Plan) -> None:
    budget = {device.name: device.budget_bytes for device in plan.problem.platform.devices}
    for one in _every(plan):
        if any(excess.during == LAYOUT for excess in one.excess):
            arenas = plan_arenas(plan.problem, one.schedule).arena_bytes
            assert any(arenas[name] > size for name, size in budget.items())
            simulate(plan.problem, one.schedule)
            continue
        needed = {e.device: budget[e.device] + e.excess_bytes for e in one.excess}
        simulate(plan.problem.with_budgets(needed), one.schedule)
        for device, size in needed.items():
            with pytest.raises(BudgetExceededError):
                less = plan.problem.with_budgets({**needed, device: size - 1})
                simulate(less, one.schedule)


@settings(max_examples=cases(60))
@given(plans())
def test_alternatives_are_told_best_first_and_none_is_the_plan(plan: Plan) -> None:
    planned = PlannedSteps(plan)
    for tensor in plan.problem.graph.bases:
        found = tensor_alternatives(planned, tensor.name)
        assert [one.rank for one in found] == sorted(one.rank for one in found)
        assert plan.schedule not in [one.schedule for one in found]


def test_nothing_that_fits_is_better_than_the_bound_of_the_plan() -> None:
    problem = single(chain(6), 0.6)
    plan = plan_schedule(problem, PlanOptions(limits=Limits(5.0)))
    assert plan.result.bound > 0
    fitting = [one for one in _every(plan) if one.fits]
    assert fitting
    for one in fitting:
        assert plan.result.bound <= plan.simulation.cost_us + one.difference + 1e-6


def test_keeping_what_is_recomputed_takes_less_time_and_more_memory() -> None:
    plan = chain_plan()
    planned = PlannedSteps(plan)
    recomputed = [name for name, fate in fates(plan).items() if fate.recomputed]
    assert recomputed
    for name in recomputed:
        kept = [one for one in tensor_alternatives(planned, name) if one.way is Way.KEEP]
        assert kept
        for one in kept:
            assert one.difference < 0
            assert one.schedule.recomputed_ops < plan.schedule.recomputed_ops
