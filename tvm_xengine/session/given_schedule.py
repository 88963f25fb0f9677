"""A plan from a saved or hand-written schedule."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.plan import PlannedStep
from tvm_xengine.planning.given_schedule import plan_given_schedule
from tvm_xengine.scheduling.schedule import Schedule, read_schedule
from tvm_xengine.session.stages import StepPlan, StepProblem


def plan_of_schedule(
    problem: StepProblem, schedule: Schedule | str | Path, name: str = "the schedule"
) -> StepPlan:
    """The plan that runs a schedule, which is checked against every rule of the problem.

    Parameters
    ----------
    problem
        What the schedule is for, with its budgets.
    schedule
        Or a file of one. Without any frees it gets the earliest ones.
    name
        Name of the schedule in messages, where it is no file.

    Raises
    ------
    InvalidScheduleError
        Naming the first step that breaks a rule of the problem, a budget or a constraint.
    """
    where = name if isinstance(schedule, Schedule) else str(schedule)
    found = schedule if isinstance(schedule, Schedule) else read_schedule(schedule)
    plan = plan_given_schedule(problem.problem, found, where)
    costed, step = problem.costed, problem.lowered.step
    measured = len(step.distinct) if costed.choice is CostChoice.MEASURED else 0
    return StepPlan(problem.lowered, PlannedStep(costed.lowered, plan, measured))
