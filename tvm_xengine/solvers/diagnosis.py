"""Diagnosis of budgets that are too small."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule, with_kernels_that_fit
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.published.baselines.placed import keep_all
from tvm_xengine.solvers.reach import cut_off
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import BudgetDiagnosis
from tvm_xengine.solvers.working_set import working_sets

_STEPS = 10
"""Bisections between the budgets asked for and ample ones; they leave a thousandth of that range."""


def diagnose(
    problem: Problem, request: Request, may_go_on: Callable[[], bool] | None = None
) -> BudgetDiagnosis:
    """The smallest budgets between the asked ones and ample ones for which greedy finds a schedule.

    All budgets are scaled together, by bisection; the answer is the peak of the smallest schedule
    that was found, raised to the asked budget where that is larger. It is None where that is
    nothing but the asked budgets.

    Parameters
    ----------
    may_go_on
        Asked before each bisection and during it; by default for a little longer than the time limit,
        in which one that would take as long as the last one is not begun.
    """
    is_timed = may_go_on is None
    may_go_on = may_go_on or (lambda: not request.is_late)
    sets = working_sets(problem)
    asked = {device.name: device.budget_bytes for device in problem.platform.devices}
    ample = {name: max(size, _everything_bytes(problem)) for name, size in asked.items()}
    working: dict[str, int] | None = None
    found: Schedule | None = None
    low, high = 0.0, 1.0
    cut = cut_off(problem)
    begin_s = took_s = 0.0
    for step in range(0 if cut else _STEPS):
        if step:
            took_s = request.elapsed_s - begin_s
        begin_s = request.elapsed_s
        if not may_go_on() or (is_timed and request.is_late_in(took_s)):
            break
        ratio = high if step == 0 else (low + high) / 2
        budgets = {name: round(asked[name] + ratio * (ample[name] - asked[name])) for name in asked}
        schedule = _find(problem.with_budgets(budgets), request, may_go_on)
        if schedule is None:
            if step == 0 or not may_go_on():
                break
            low = ratio
            continue
        high, found = ratio, with_kernels_that_fit(problem, schedule)
        peak = simulate(problem, found, enforce_budgets=False).peak_bytes
        working = {name: max(asked[name], peak[name], problem.home_bytes[name]) for name in asked}
    if working == asked:
        working = found = None
    return BudgetDiagnosis(working, sets.least_bytes(), cut or sets.binding(), found)


def diagnose_from_home(problem: Problem, devices: Iterable[str]) -> BudgetDiagnosis:
    """What `diagnose` finds where `devices` have hardly more room than for the state at home there.

    No clock ends it, so that the same problem has the same answer.
    """
    room = problem.platform.alignment_bytes
    tight = problem.with_budgets({name: problem.home_bytes[name] + room for name in devices})
    return diagnose(tight, Request(), may_go_on=lambda: True)


def _find(problem: Problem, request: Request, may_go_on: Callable[[], bool]) -> Schedule | None:
    return keep_all(problem, request) or greedy_schedule(
        problem,
        objective=request.objective,
        may_go_on=may_go_on,
        clock=request.limits.clock,
    )


def _everything_bytes(problem: Problem) -> int:
    """A budget that holds all tensors at once."""
    workspace = max(
        cost.workspace_bytes for costs in problem.costs.values() for cost in costs.values()
    )
    return sum(tensor.size_bytes for tensor in problem.graph.bases) + workspace
