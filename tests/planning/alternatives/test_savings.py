"""The last pass over a plan: fewer recomputations and copies, the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings

from tests.explain.plans import chain_plan, plans
from tests.solvers.samples.networks import chain, single
from tests.strategies import cases
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.planning.alternatives.changed_schedule import Alternative, PlannedSteps, Way
from tvm_xengine.planning.alternatives.savings import with_savings
from tvm_xengine.planning.alternatives.tensors import tensor_alternatives
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.schedule import Compute, Transfer, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.solve import solve

_RICH = 2.0
"""Budget ratio with room for everything."""


def _always_on() -> bool:
    return False


def _recompute_all() -> Plan:
    problem = single(chain(8), _RICH)
    return plan_schedule(problem, PlanOptions("recompute-all", limits=Limits(5.0)))


@settings(max_examples=cases(100))
@given(plans())
def test_the_pass_never_makes_a_plan_worse_and_what_it_makes_fits(plan: Plan) -> None:
    better = with_savings(plan, _always_on)
    objective = plan.result.objective
    simulation = simulate(plan.problem, better.schedule)
    assert better.simulation == simulation
    assert better.result.value == pytest.approx(objective.of(simulation))
    assert objective.of(simulation) <= objective.of(plan.simulation)
    assert not better.arenas.excess_bytes(plan.problem.platform)
    assert better.result.bound <= objective.of(simulation)


@settings(max_examples=cases(60))
@given(plans())
def test_a_copy_that_nothing_reads_is_left_out(plan: Plan) -> None:
    objective = plan.result.objective
    for padded in islice(_with_a_useless_copy(plan), 3):
        better = with_savings(padded, _always_on)
        assert objective.of(better.simulation) <= objective.of(plan.simulation) * (1 + 1e-6)


def _with_a_useless_copy(plan: Plan) -> Iterator[Plan]:
    """The plan with a result copied to another device, where it is freed unread."""
    problem, planned = plan.problem, PlannedSteps(plan)
    for place, step in enumerate(planned.steps):
        if not isinstance(step, Compute):
            continue
        for src, dst in problem.platform.link_between:
            if src != step.device:
                continue
            copy = Transfer(problem.graph.op[step.op].outputs[0], src, dst)
            steps = [*planned.steps[: place + 1], copy, *planned.steps[place + 1 :]]
            try:
                schedule = with_frees(problem, steps, survivors=planned.survivors)
                simulation = simulate(problem, schedule)
            except InvalidScheduleError:
                continue
            arenas = plan_arenas(problem, schedule)
            if not arenas.excess_bytes(problem.platform):
                value = plan.result.objective.of(simulation)
                result = replace(plan.result, schedule=schedule, value=value)
                yield Plan(problem, result, schedule, simulation, arenas)


def test_with_room_for_everything_nothing_is_recomputed() -> None:
    plan = _recompute_all()
    assert plan.schedule.recomputed_ops
    better = with_savings(plan, _always_on)
    assert not better.schedule.recomputed_ops
    assert better.result.value == pytest.approx(sum(_once_us(plan)))


def _once_us(plan: Plan) -> list[float]:
    return [costs["d0"].compute_us for costs in plan.problem.costs.values()]


def test_what_an_explanation_would_offer_to_keep_is_kept_already() -> None:
    better = with_savings(chain_plan(24, 0.6), _always_on)
    assert not list(_missed(better))


def _missed(plan: Plan) -> list[Alternative]:
    planned = PlannedSteps(plan)
    every = [one for t in plan.problem.graph.bases for one in tensor_alternatives(planned, t.name)]
    return [one for one in every if one.way is Way.KEEP and one.fits and one.difference < -1e-3]


def test_when_the_time_is_up_the_plan_stays_as_it_is() -> None:
    plan = _recompute_all()
    assert with_savings(plan, lambda: True) is plan


def test_answers_of_published_solvers_stay_as_they_are() -> None:
    plan = _recompute_all()
    answer = solve(plan.problem, "recompute-all", limits=Limits(5.0))
    assert plan.schedule == answer.schedule
