"""Messages of plans: why there is no schedule, what a limit may have cost, and what to do."""

from __future__ import annotations

from tvm_xengine.scheduling.arena.plan import plan_arenas, quick_effort
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.sizes import format_budgets
from tvm_xengine.solvers.result import BudgetDiagnosis, SolveResult, Status, StopReason

_STOPPED = {
    StopReason.LIMIT: "stopped by the time limit",
    StopReason.WORK: "stopped by the work limit",
}
_LONGER = {
    StopReason.LIMIT: "a longer one (time_limit_s, --time-limit) may find a better plan or bound",
    StopReason.WORK: "a larger one (work_limit, --work-limit) may find a better plan or bound",
}


def no_schedule_message(problem: Problem, result: SolveResult) -> str:
    """Why there is no schedule, each reason once, with budgets in the form of the command line."""
    asked = {device.name: device.budget_bytes for device in problem.platform.devices}
    found = (
        "infeasible: no schedule fits"
        if result.status is Status.INFEASIBLE
        else "no schedule found for"
    )
    lines = [
        f"{found} --budget {format_budgets(asked)}"
        if format_budgets(asked)
        else f"{found} the platform"
    ]
    diagnosis = result.diagnosis
    if diagnosis is None:
        return "; ".join([*lines, result.message])
    if result.status is not Status.INFEASIBLE and result.message != diagnosis.binding:
        lines.append(result.message)
    lines.append(diagnosis.binding)
    if working := _working_budgets(problem, diagnosis):
        lines.append(f"these budgets work: --budget {format_budgets(working)}")
    else:
        least = format_budgets(diagnosis.working_set_bytes)
        lines.append(f"no schedule fits less than --budget {least}")
    return "; ".join(line for line in lines if line)


def time_limit_message(result: SolveResult) -> str:
    """What to do where a time limit ended the search; empty where none did.

    Without the gap: a report shows it, and a better bound may be known by then.
    """
    by = result.stopped_by
    return f"{_STOPPED[by]}; {_LONGER[by]}" if _is_stopped(result) else ""


def time_limit_warning(result: SolveResult) -> str:
    """The same, with what the limit may have cost."""
    if not _is_stopped(result):
        return ""
    stopped, longer = _STOPPED[result.stopped_by], _LONGER[result.stopped_by]
    if result.gap is None:
        return f"{stopped}: nothing is proven of the plan; {longer}"
    return f"{stopped}: the plan is at most {_percent(result.gap)} from the optimum; {longer}"


def _is_stopped(result: SolveResult) -> bool:
    return result.stopped_by.is_limit and result.schedule is not None


def _percent(gap: float) -> str:
    """A share with one digit behind the point, or more where it would be 0."""
    return f"{100 * gap:.1f} %" if gap >= 5e-4 else f"{100 * gap:.1g} %"


def _working_budgets(problem: Problem, diagnosis: BudgetDiagnosis) -> dict[str, int] | None:
    """Budgets for which there is a schedule whose address layout fits, too; None where none is known."""
    if diagnosis.working_budget_bytes is None or diagnosis.working_schedule is None:
        return None
    working, schedule = dict(diagnosis.working_budget_bytes), diagnosis.working_schedule
    # With all effort it may be a little less, for seconds in which the user waits for a refusal.
    effort = quick_effort(len(schedule.steps))
    arenas = plan_arenas(problem.with_budgets(working), schedule, effort=effort)
    return {name: max(size, arenas.arena_bytes[name]) for name, size in working.items()}
