"""From a problem to a schedule whose address layout fits every budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tvm_xengine.errors import InvalidProblemError, InvalidScheduleError, NoScheduleError
from tvm_xengine.planning.tighten import fit_layout
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.graph import MAX_BYTES
from tvm_xengine.scheduling.platform import UNLIMITED_BYTES
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.simulate import Simulation, simulate
from tvm_xengine.scheduling.sizes import format_budgets
from tvm_xengine.solvers.request import MAX_SEED, PROOF_RATIO, Request
from tvm_xengine.solvers.result import (
    BudgetDiagnosis,
    Limits,
    Objective,
    SolveResult,
    Status,
    StopReason,
)
from tvm_xengine.solvers.solve import answer, backend_for, solve

_FIRST_SHARE = 0.75
"""Share of the time limit for the first answer. The rest is for answers under tightened budgets, or,
where the first layout fits, for a better schedule."""
_RETRY_SHARE = 0.5
"""Share of what is left of the time for one answer under tightened budgets, since there may be more."""
_LEAST_SOLVE_S = 0.25
_WORTHWHILE_SHARE, _WORTHWHILE_S = 0.15, 2.0
"""With less than this share of the time limit, and less than these seconds, for an answer the greedy
solver gives it: others take seconds on large graphs before they look at the clock."""
_ALLOWED_RATIO, _ALLOWED_S = 1.05, 1.0
"""So many times the time limit and so many seconds later no further layout is tried. What runs then
may end within 1.1 times the time limit and 2 s."""
_UNHURRIED_S = 10.0
_HURRIED_EFFORT = 200_000
"""With less time left a layout is packed with a tenth of the usual effort: on a U-Net of two devices
that takes 0.2 s in place of 2.5 s."""
_RESUMABLE = ("auto", "local-search")
"""Solvers that improve on a schedule they are given."""


@dataclass(frozen=True)
class Plan:
    """A schedule with everything that is known about it.

    Attributes
    ----------
    problem
        With the budgets that were asked for.
    result
        The solver's answer; its bound holds for `problem`.
    simulation, arenas
        Of the result's schedule.
    """

    problem: Problem
    result: SolveResult
    schedule: Schedule
    simulation: Simulation
    arenas: ArenaPlan


@dataclass(frozen=True)
class PlanOptions:
    """How to look for a schedule; see `tvm_xengine.solvers.solve`."""

    solver: str = "auto"
    objective: Objective = Objective.COST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    backend: str | None = None


def plan_schedule(
    problem: Problem,
    options: PlanOptions,
    on_progress: Callable[[str], None] | None = None,
    *,
    start: Schedule | None = None,
    stop: threading.Event | None = None,
) -> Plan:
    """The best schedule that was found whose ARENAS fit the budgets of `problem`.

    Solvers count live bytes; an address layout may need more. Where it does, the solver is asked
    again with smaller budgets. All answers share the time limit of `options`. The bound of the
    first answer is kept, because only that one holds for the budgets asked for.

    Parameters
    ----------
    start
        A schedule to begin from, such as that of a plan with other costs. Where its arenas fit,
        no worse one is returned.
    stop
        Set it to end the solve; the plan is then of the best schedule so far.

    Raises
    ------
    NoScheduleError
        With the solver's diagnosis: what budget is known to work, and what binds.
    """
    question = _Question(problem, options, start, on_progress, stop or threading.Event())
    first = question.first()
    if first.schedule is None:
        raise NoScheduleError(_no_schedule_message(problem, first))
    known = _known_plan(question, first)
    try:
        found = _plan_with_arenas(question, first)
    except NoScheduleError:
        if known is None:
            raise
        return known
    value = options.objective.of
    return known if known and value(known.simulation) < value(found.simulation) else found


@dataclass(frozen=True)
class _Question:
    """What is asked for, and since when; the answers share one time limit."""

    problem: Problem
    options: PlanOptions
    start: Schedule | None
    on_progress: Callable[[str], None] | None
    stop: threading.Event
    begun_s: float = field(default_factory=time.perf_counter)

    @property
    def elapsed_s(self) -> float:
        """Since the first answer was asked for."""
        return time.perf_counter() - self.begun_s

    @property
    def left_s(self) -> float:
        """What is left of the time limit; negative when it is over."""
        return self.options.limits.time_limit_s - self.elapsed_s

    def first(self) -> SolveResult:
        """The answer for the budgets asked for, with a diagnosis where there is no schedule."""
        options, limits = self.options, self.options.limits
        return solve(
            self.problem,
            options.solver,
            options.backend,
            objective=options.objective,
            limits=replace(limits, time_limit_s=_FIRST_SHARE * limits.time_limit_s),
            seed=options.seed,
            start=self.start,
            on_progress=self.on_progress,
            stop=self.stop,
        )

    def again(
        self, problem: Problem, share: float, seed: int, start: Schedule | None
    ) -> SolveResult:
        """An answer for other budgets in a share of the time that is left."""
        options, limits = self.options, self.options.limits
        limit_s = share * self.left_s
        worthwhile_s = min(_WORTHWHILE_SHARE * limits.time_limit_s, _WORTHWHILE_S)
        solver = "greedy" if limit_s < worthwhile_s else options.solver
        request = Request(
            objective=options.objective,
            limits=replace(limits, time_limit_s=max(limit_s, _LEAST_SOLVE_S)),
            seed=seed % (MAX_SEED + 1),
            start=start,
            on_progress=self.on_progress,
            solver=solver,
            backend=backend_for(solver, None if solver == "greedy" else options.backend) or "",
            stop=self.stop,
        )
        return answer(problem, request)


def _known_plan(question: _Question, first: SolveResult) -> Plan | None:
    """The schedule to begin from; None where it breaks a rule of the problem or does not fit."""
    problem, options, schedule = question.problem, question.options, question.start
    if schedule is None:
        return None
    try:
        simulation = simulate(problem, schedule)
    except InvalidScheduleError:
        return None
    arenas = plan_arenas(problem, schedule, seed=options.seed)
    if _excess_bytes(problem, arenas):
        return None
    value = options.objective.of(simulation)
    result = replace(first, schedule=schedule, value=value, solver=f"{options.solver} (start)")
    return Plan(problem, _for_asked_budgets(first, result), schedule, simulation, arenas)


def _plan_with_arenas(question: _Question, first: SolveResult) -> Plan:
    """The first answer, or a later one, whose layout fits the budgets asked for."""
    problem, seed = question.problem, question.options.seed

    def lay_out(result: SolveResult, attempt: int) -> tuple[ArenaPlan, Mapping[str, int]]:
        assert result.schedule is not None
        if question.left_s > _UNHURRIED_S:
            arenas = plan_arenas(problem, result.schedule, seed=seed + attempt)
        else:
            arenas = plan_arenas(
                problem, result.schedule, effort=_HURRIED_EFFORT, seed=seed + attempt
            )
        return arenas, _excess_bytes(problem, arenas)

    def solve_again(margin: Mapping[str, int], attempt: int) -> SolveResult | None:
        limit_s = question.options.limits.time_limit_s
        if question.elapsed_s > _ALLOWED_RATIO * limit_s + _ALLOWED_S:
            return None
        try:
            tightened = _tightened(problem, margin)
        except InvalidProblemError:  # some state is larger than the tightened budget
            return None
        result = question.again(tightened, _RETRY_SHARE, seed + attempt + 1, question.start)
        return result if result.schedule is not None else None

    result, arenas = fit_layout(first, lay_out, solve_again)
    if result is first and _may_improve(question, first):
        more = question.again(problem, 1.0, seed + 1, first.schedule)
        if more.schedule is not None:
            better, excess = lay_out(more, 0)
            if not excess:
                arenas = better
            result = _with_best_bound(first, more) if excess else _with_best_bound(more, first)
            first = result
    assert result.schedule is not None
    simulation = simulate(problem, result.schedule)
    return Plan(problem, _for_asked_budgets(first, result), result.schedule, simulation, arenas)


def _tightened(problem: Problem, margin: Mapping[str, int]) -> Problem:
    """The problem with budgets that are smaller by the margin; at least a byte each."""
    budget = {device.name: device.budget_bytes for device in problem.platform.devices}
    return problem.with_budgets({name: max(1, budget[name] - margin[name]) for name in margin})


def _may_improve(question: _Question, first: SolveResult) -> bool:
    """Whether the rest of the time limit may lead to a better schedule than the first."""
    return (
        first.stopped_by is StopReason.LIMIT
        and question.options.solver in _RESUMABLE
        and question.left_s > _LEAST_SOLVE_S
    )


def _with_best_bound(result: SolveResult, other: SolveResult) -> SolveResult:
    """`result` with the bound of the other answer for the same budgets, where that is higher."""
    if result.value is None or other.scope is not result.scope or other.bound <= result.bound:
        return result
    bound = min(other.bound, result.value)
    is_proven = result.value - bound <= PROOF_RATIO * abs(result.value)
    return replace(result, bound=bound, status=Status.OPTIMAL if is_proven else result.status)


def _excess_bytes(problem: Problem, arenas: ArenaPlan) -> dict[str, int]:
    """By how much arenas are larger than the budgets of their devices."""
    return {
        device.name: arenas.arena_bytes[device.name] - device.budget_bytes
        for device in problem.platform.devices
        if arenas.arena_bytes[device.name] > device.budget_bytes
    }


def keep_all_on(problem: Problem, device: str) -> tuple[Problem, Schedule]:
    """The step that keeps every tensor until its last use, all on one device.

    Returns
    -------
    problem, schedule
        The problem with its state at home on `device`, no budget and no constraints, and its
        schedule.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    missing = [op.name for op in problem.graph.ops if device not in problem.costs[op.name]]
    if missing:
        raise ValueError(f"{device} cannot run {missing}, so it cannot run the whole step")
    platform = problem.platform.with_budgets(
        {other.name: UNLIMITED_BYTES for other in problem.platform.devices}
    )
    home = dict.fromkeys(problem.home, device)
    alone = replace(problem, platform=platform, home=home, constraints=Constraints())
    return alone, with_frees(alone, [Compute(op.name, device) for op in problem.graph.ops])


def budgets_for_ratio(problem: Problem, ratio: float) -> Mapping[str, int]:
    """Budget of each computing device: resident state plus `ratio` of the rest.

    The rest is what the arena of keeping all tensors on that device needs beyond the resident
    state. Devices that cannot run the whole step keep their budget.
    """
    if not ratio >= 0:
        raise ValueError(f"the budget ratio must be >= 0, got {ratio}")
    resident_bytes = sum(problem.home_bytes.values())
    budgets = {}
    for device in problem.platform.computing:
        if all(device.name in problem.costs[op.name] for op in problem.graph.ops):
            alone, schedule = keep_all_on(problem, device.name)
            arena_bytes = plan_arenas(alone, schedule).arena_bytes[device.name]
            rest_bytes = arena_bytes - resident_bytes
            wanted_bytes = resident_bytes + ratio * rest_bytes
            budgets[device.name] = int(min(wanted_bytes, MAX_BYTES))
    return budgets


def _for_asked_budgets(first: SolveResult, last: SolveResult) -> SolveResult:
    """The last answer, with the bound that was proven for the budgets asked for."""
    if last is first:
        return last
    assert last.value is not None
    bound = min(first.bound, last.value)
    proven = last.status is Status.OPTIMAL and last.value <= first.bound * (1 + 1e-9)
    message = "budgets were tightened, because an address layout needed more than the peak"
    return replace(
        last,
        bound=bound,
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        message=f"{last.message}; {message}" if last.message else message,
    )


def _no_schedule_message(problem: Problem, result: SolveResult) -> str:
    """Why there is no schedule, each thing once, with budgets as one gives them."""
    asked = {device.name: device.budget_bytes for device in problem.platform.devices}
    if result.stopped_by is StopReason.INTERRUPTED:
        return "interrupted before any schedule was found"
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


def _working_budgets(problem: Problem, diagnosis: BudgetDiagnosis) -> dict[str, int] | None:
    """Budgets for which there is a schedule whose address layout fits, too; None where none is known."""
    if diagnosis.working_budget_bytes is None or diagnosis.working_schedule is None:
        return None
    working = dict(diagnosis.working_budget_bytes)
    arenas = plan_arenas(problem.with_budgets(working), diagnosis.working_schedule)
    return {name: max(size, arenas.arena_bytes[name]) for name, size in working.items()}
