"""A plan of any cost does not depend on how late it is, or on the objective."""

import pytest

from tests.solvers.samples.chains import training_chain
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.solvers.result import Limits, Objective

PROBLEM = training_chain(12, 60)
"""Of the 112 bytes that keeping all needs."""


def test_the_arena_fits_and_the_objective_is_the_one_asked_for() -> None:
    by_cost, by_makespan = any_plan(PROBLEM), any_plan(PROBLEM, Objective.MAKESPAN)
    assert by_cost and by_makespan
    assert by_cost.arenas.arena_bytes["cpu"] <= 60
    assert by_cost.schedule == by_makespan.schedule
    assert by_makespan.result.objective is Objective.MAKESPAN
    assert by_makespan.result.value == by_makespan.simulation.makespan_us
    assert 0 < by_cost.result.bound <= by_cost.simulation.cost_us
    assert 0 < by_makespan.result.bound <= by_makespan.simulation.makespan_us


def test_the_first_attempt_is_made_without_time() -> None:
    assert any_plan(PROBLEM, processor_s=1e-9, may_go_on=lambda: False)
    assert any_plan(training_chain(12, 20)) is None


def test_a_plan_to_begin_from_is_kept_where_the_solver_finds_none() -> None:
    known = any_plan(PROBLEM)
    assert known
    options = PlanOptions("keep-all", limits=Limits(1.0))
    with pytest.raises(NoScheduleError):
        plan_schedule(PROBLEM, options)
    assert plan_schedule(PROBLEM, options, start=known.schedule).schedule == known.schedule
