"""The plan of a schedule that a user gives, checked against every rule."""

from __future__ import annotations

from tvm_xengine.errors import BudgetExceededError, InvalidScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import (
    Compute,
    Free,
    Schedule,
    with_frees,
    with_kernels_that_fit,
)
from tvm_xengine.scheduling.sizes import format_bytes

GIVEN = "given"
"""Name of the solver of a schedule that no solver has found."""


def plan_given_schedule(
    problem: Problem, schedule: Schedule, where: str, *, reserve_home: bool = False
) -> Plan:
    """The plan that runs a schedule.

    Where it breaks a budget and names no variants, its runs take kernels for which it leaves room.

    Parameters
    ----------
    problem
        What the schedule is for, with its budgets.
    schedule
        Without any frees it gets the earliest ones.
    where
        Name of the schedule in messages.
    reserve_home
        As in `plan_arenas`.

    Raises
    ------
    InvalidScheduleError
        Naming the first step that breaks a rule of the problem, a budget or a constraint.
    """
    try:
        return _as_given(problem, schedule, where, reserve_home=reserve_home)
    except BudgetExceededError:
        runs = (step for step in schedule.steps if isinstance(step, Compute))
        if not problem.has_variants or any(run.variant for run in runs):
            raise
    fitting = with_kernels_that_fit(problem, schedule)
    try:
        return _as_given(problem, fitting, where, reserve_home=reserve_home)
    except BudgetExceededError:  # the layout of the larger workspaces has gaps
        nothing = dict.fromkeys(problem.platform.index, 1)
        leanest = with_kernels_that_fit(problem.with_budgets(nothing), schedule)
        return _as_given(problem, leanest, where, reserve_home=reserve_home)


def _as_given(problem: Problem, schedule: Schedule, where: str, *, reserve_home: bool) -> Plan:
    try:
        if not any(isinstance(step, Free) for step in schedule.steps):
            schedule = with_frees(problem, schedule.steps)
        plan = Plan.of_schedule(problem, schedule, GIVEN, reserve_home=reserve_home)
    except BudgetExceededError as error:
        raise BudgetExceededError(f"{where} needs too much memory: {error}") from error
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"{where} does not fit this step: {error}") from error
    _check_layout(problem, plan, where)
    return plan


def _check_layout(problem: Problem, plan: Plan, where: str) -> None:
    for device in problem.platform.devices:
        needed = plan.arenas.arena_bytes[device.name]
        if needed > device.budget_bytes:
            raise BudgetExceededError(
                f"{where} needs {format_bytes(needed)} on {device.name} when its tensors are laid"
                f" out, and the budget is {format_bytes(device.budget_bytes)}"
            )
