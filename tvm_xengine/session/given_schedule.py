"""A plan from a saved or hand-written schedule."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.plan import PlannedStep
from tvm_xengine.errors import BudgetExceededError, InvalidScheduleError
from tvm_xengine.planning.planner import Plan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Free, Schedule, read_schedule, with_frees
from tvm_xengine.scheduling.sizes import format_bytes
from tvm_xengine.session.stages import StepPlan, StepProblem

GIVEN = "given"
"""Name of the solver of a schedule that no solver has found."""


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
    plain = problem.problem
    try:
        if not any(isinstance(step, Free) for step in found.steps):
            found = with_frees(plain, found.steps)
        plan = Plan.of_schedule(plain, found, GIVEN)
    except BudgetExceededError as error:
        raise BudgetExceededError(f"{where} needs too much memory: {error}") from error
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"{where} does not fit this step: {error}") from error
    _check_layout(plain, plan, where)
    costed, step = problem.costed, problem.lowered.step
    measured = len(step.distinct) if costed.choice is CostChoice.MEASURED else 0
    return StepPlan(problem.lowered, PlannedStep(costed.lowered, plan, measured))


def _check_layout(problem: Problem, plan: Plan, where: str) -> None:
    for device in problem.platform.devices:
        needed = plan.arenas.arena_bytes[device.name]
        if needed > device.budget_bytes:
            raise BudgetExceededError(
                f"{where} needs {format_bytes(needed)} on {device.name} when its tensors are laid"
                f" out, and the budget is {format_bytes(device.budget_bytes)}"
            )
