"""The smallest budget of a device for which a plan is known, and below which none exists."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.plan import QUICK_EFFORT, plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.solve import answer
from tvm_xengine.solvers.working_set import WorkingSets, working_sets

_STEPS = 8
"""Bisections; they leave less than half a percent of the range."""


@dataclass(frozen=True)
class SmallestBudget:
    """Between what budgets of one device the smallest one lies, the others as they are.

    Attributes
    ----------
    known_bytes
        A schedule with this arena was found.
    least_bytes
        Proven: below it no schedule exists.
    because
        Why less than `least_bytes` does not work.
    value
        Of the objective, by the schedule that was found for `known_bytes`.
    """

    device: str
    known_bytes: int
    least_bytes: int
    because: str
    value: float


def smallest_budget(
    plan: Plan, device: str, time_limit_s: float, search_s: float = 0.0
) -> SmallestBudget:
    """Bisect for the smallest budget of a device for which a schedule is found whose layout fits.

    Parameters
    ----------
    time_limit_s
        For greedy schedules.
    search_s
        For searches that begin with the plan, where the greedy solver finds nothing.
    """
    problem, clock = plan.problem, Clock(time_limit_s + search_s)
    sets = working_sets(problem)
    least = sets.least_bytes()[device]
    known = plan.arenas.arena_bytes[device]
    low, high, value = least, known, plan.result.objective.of(plan.simulation)
    for _ in range(_STEPS):
        if clock.left_s <= 0 or high - low <= problem.platform.alignment_bytes:
            break
        middle = (low + high) // 2
        smaller = problem.with_budgets({device: middle})
        schedule = greedy_schedule(smaller, may_go_on=lambda: clock.left_s > 0)
        needed = _arena_bytes(smaller, schedule, device)
        if search_s and (needed is None or needed >= known):
            schedule = _searched(plan, smaller, search_s / _STEPS)
            needed = _arena_bytes(smaller, schedule, device)
        if schedule is None or needed is None:
            low = middle
            continue
        if needed < known:
            known, value = needed, plan.result.objective.of(simulate(problem, schedule))
        high = middle
    return SmallestBudget(device, known, least, _reason(sets, device), value)


def _searched(plan: Plan, problem: Problem, time_limit_s: float) -> Schedule | None:
    """A schedule under smaller budgets, from that of the plan."""
    request = Request(
        objective=plan.result.objective,
        limits=Limits(time_limit_s),
        start=plan.schedule,
        solver="local-search",
    )
    return answer(problem, request).schedule


def _arena_bytes(problem: Problem, schedule: Schedule | None, device: str) -> int | None:
    """The arena of a schedule on a device; None without one that fits the other devices."""
    if schedule is None:
        return None
    arenas = plan_arenas(problem, schedule, effort=QUICK_EFFORT).arena_bytes
    others = [one for one in problem.platform.devices if one.name != device]
    if any(arenas[one.name] > one.budget_bytes for one in others):
        return None
    return arenas[device]


def _reason(sets: WorkingSets, device: str) -> str:
    least = sets.least_bytes()[device]
    for op, need in sets.op_bytes.items():
        if list(need) == [device] and need[device] == least > sets.home_bytes[device]:
            return (
                f"{op} runs only there, and what it reads, makes and works with, and the state that"
                " cannot leave, must be there together"
            )
    if least:
        return "the state whose home it is must be there when the step begins"
    if not any(device in need for need in sets.op_bytes.values()):
        return "nothing has to be stored there"
    return "every op may run on another device"
