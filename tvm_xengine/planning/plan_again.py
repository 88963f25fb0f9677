"""A plan made again for costs that have changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.answers import with_bound_of
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.result import Objective

_LEAST_GAIN_RATIO = 0.01
"""A schedule that gains less is not worth a change: repeated measurements differ by more."""


@dataclass(frozen=True)
class Replanned:
    """What was planned, measured, and planned again; of a step, in microseconds.

    Attributes
    ----------
    predicted_us
        Of the plan that the run began with.
    measured_us
        Median of that plan in the run.
    replanned_us
        Of the plan that the run ends with, by the costs that were measured.
    rounds, steps
        How often the step was measured, and in how many steps.
    changed
        Whether the schedule is another one.
    """

    predicted_us: float
    measured_us: float
    replanned_us: float
    rounds: int
    steps: int
    changed: bool


def plan_in_turn(plan: Plan, options: PlanOptions) -> Plan | None:
    """The cheapest plan of the same problem, whose calls run one after the other; None without one."""
    try:
        return plan_schedule(plan.problem, replace(options, objective=Objective.COST))
    except NoScheduleError:
        return None


def plan_again(plan: Plan, problem: Problem, options: PlanOptions) -> tuple[Plan, Plan | None]:
    """The schedule of a plan under other costs, and a plan that is better by a percent or more.

    Parameters
    ----------
    plan
        Of a problem that differs in its costs only.
    problem
        With the other costs.
    """
    kept = plan.under(problem)
    try:
        found = plan_schedule(problem, options, start=plan.schedule)
    except NoScheduleError:  # the layout of the start is not found again, and no other one
        return kept, None
    result = replace(
        with_bound_of(found.result, kept.result),
        solve_s=found.result.solve_s,
        stopped_by=found.result.stopped_by,
    )
    value = options.objective.of
    is_better = value(found.simulation) < (1 - _LEAST_GAIN_RATIO) * value(kept.simulation)
    return replace(kept, result=result), found if is_better else None
