"""From a problem to a schedule whose address layout fits every budget."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter

from tvm_xengine.errors import InvalidScheduleError, NoScheduleError
from tvm_xengine.planning.alternatives.savings import with_savings
from tvm_xengine.planning.answers import with_best_bound, with_bound_of, with_finder
from tvm_xengine.planning.any_plan import any_plan, any_plan_s
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock
from tvm_xengine.planning.in_time import as_it_runs, in_streams
from tvm_xengine.planning.messages import no_schedule_message
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.tighten import fit_layout, with_smaller_budgets
from tvm_xengine.scheduling.arena.plan import (
    PACKING_EFFORT,
    ArenaPlan,
    plan_arenas,
    quick_effort,
)
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.first_use import compile_plan_for
from tvm_xengine.solvers.request import MAX_SEED, Request
from tvm_xengine.solvers.result import Limits, Objective, Scope, SolveResult, Status, StopReason
from tvm_xengine.solvers.solve import answer, backend_for, solve

_FIRST_SHARE = 0.75
"""Share of the time limit for the first answer. The rest is for answers under tightened budgets, or,
where the first layout fits, for a better schedule. Less would take from the proof, which only the first
answer contributes to; with more, nothing is left where layouts need several attempts."""
_RETRY_SHARE = 0.4
"""Share of what is left of the time for one answer under tightened budgets, since there may be more."""
_MOST_LESS = 4
"""Further answers under budgets that are tightened less, once a layout fits: the last is a sixteenth off."""
_WORTHWHILE_SHARE, _WORTHWHILE_S = 0.15, 2.0
"""With less than this share of the time limit, and less than these seconds, an answer under tightened
budgets is left to the local search, which begins from the last schedule: a proof of that answer is of
no use, and workers that look for one take the time from the search."""
_LONG_STEPS = 400
_UNHURRIED_S = 10.0
"""With less time left the layout of a long schedule is packed with a tenth of the usual effort: on a
U-Net of two devices that takes 0.2 s in place of 2.5 s. Shorter schedules are always packed with all
of it, so that the same schedule has the same arena whatever time is left."""
_HOME_S = 2.0
"""Processor time, beyond the limit if need be, for a layout with all state at the bottom: without one
the evaluation of a package may not fit, which must not depend on how busy the machine is."""
_LATE_S = 0.5
"""Processor time, beyond the limit if need be, for attempts at a plan of any cost where there is none: two or
three on a hundred ops."""
_AFTER_S, _AFTER_S_PER_OP = 0.25, 2e-4
"""What attempts at a plan of any cost take after their time, whichever is more: greedy goes on for a quarter
of a second on a small graph; on a large one layout, bound and simulations take so long for each op."""
_MOST_IN_STREAMS = 16
"""Schedules on the way that are tried as they run: each takes some hundredths of a second."""
_RESUMABLE = ("auto", "local-search")
"""Solvers that improve on a schedule they are given."""


@dataclass(frozen=True)
class PlanOptions:
    """Solver, objective and limits of a plan; see `tvm_xengine.solvers.solve`.

    Attributes
    ----------
    over_at_s
        When nothing new may begin, by `time.perf_counter`; by default the limit says so. Plans that
        are made for one answer share it.
    """

    solver: str = "auto"
    objective: Objective = Objective.COST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    backend: str | None = None
    over_at_s: float | None = None

    def within(self, limit_s: float) -> PlanOptions:
        """The same with another time limit."""
        return replace(self, limits=replace(self.limits, time_limit_s=limit_s))


def plan_schedule(
    problem: Problem,
    options: PlanOptions,
    on_progress: Callable[[str], None] | None = None,
    *,
    start: Schedule | None = None,
    stop: threading.Event | None = None,
    prefer_reserved_home: bool = False,
) -> Plan:
    """The best schedule found whose arenas, not only its live bytes, fit the budgets of `problem`.

    Where devices and links run side by side, streams wait for each other's memory as little as the
    budgets allow, and the makespan of the plan counts these waits.

    Solvers count live bytes; an address layout may need more. Where it does, the solver is asked
    again with smaller budgets. All answers share the time limit of `options`. The bound of the
    first answer is kept, because only that one holds for the budgets asked for.

    Parameters
    ----------
    start
        A schedule to begin from, such as that of a plan with other costs. Where its arenas fit,
        no worse one is returned.
    stop
        Set it to end the solve; the plan then has the best schedule so far.
    prefer_reserved_home
        Whether a plan is preferred whose state at home keeps its bytes while it is away, so that
        all of it lies at the bottom of its arena.

    Raises
    ------
    NoScheduleError
        With the solver's diagnosis: what budget is known to work, and what binds.
    KeyboardInterrupt
        If one came before any schedule was found.
    """
    problem = replace(problem, saves_energy=options.objective is Objective.ENERGY)
    compile_plan_for(problem, options.solver, options.objective, on_progress)
    question = _Question(
        problem,
        options,
        start,
        on_progress,
        stop or threading.Event(),
        Clock(options.limits.time_limit_s, options.over_at_s),
    )
    plan = _answered(question, is_own_stop=stop is None, prefer_reserved_home=prefer_reserved_home)
    if not prefer_reserved_home:
        steps = len(plan.schedule.steps)
        plan = as_it_runs(
            plan,
            effort=question.effort(steps),
            is_late=lambda: steps >= _LONG_STEPS and question.clock.is_over,
        )
        plan = _fastest_in_streams(question, plan) if plan.is_overlapped else plan
    return replace(plan, result=replace(plan.result, solve_s=question.clock.elapsed_s))


def _answered(question: _Question, *, is_own_stop: bool, prefer_reserved_home: bool) -> Plan:
    """The best plan that is found in time; an interruption ends it where only that can stop it."""
    first = question.first()
    known = _known_plan(question, first)
    if first.schedule is None:
        if known is not None:
            return known
        if first.stopped_by is StopReason.INTERRUPTED and is_own_stop:
            raise KeyboardInterrupt  # which the solve took, to return what it had
    found = _found_plan(question, first, known)
    return _with_reserved_home(question, found) if prefer_reserved_home else found


def _fastest_in_streams(question: _Question, plan: Plan) -> Plan:
    """The plan, or one of a schedule on the way whose streams wait less for each other's memory.

    Until layouts are known a schedule promises the makespan without such waits, which is a bound for it.
    """
    problem = question.problem
    # The first is what the search began from, and most unlike its last.
    first, rest = question.passed[:1], sorted(question.passed[1:], key=itemgetter(0))
    for value, schedule in first + rest[:: math.ceil(len(rest) / _MOST_IN_STREAMS) or 1]:
        if question.clock.is_over or question.stop.is_set():
            break
        if value >= plan.step_us():
            continue
        arenas = plan_arenas(problem, schedule, effort=quick_effort(len(schedule.steps)))
        if not arenas.excess_bytes(problem.platform):
            result = replace(plan.result, status=Status.FEASIBLE, schedule=schedule, value=value)
            other = Plan(problem, result, schedule, simulate(problem, schedule), arenas)
            streams = in_streams(
                other, lambda: question.clock.is_over, effort=question.effort(len(schedule.steps))
            )
            plan = min(plan, streams, key=Plan.step_us)
    return plan


def _found_plan(question: _Question, first: SolveResult, known: Plan | None) -> Plan:
    """The best plan by the first answer and those after it, or else one of any cost."""
    if first.schedule is None:
        other = _any_plan(question, first) if _was_too_slow(question, first) else None
        if other is None:
            raise NoScheduleError(
                no_schedule_message(question.problem, first),
                is_proven=first.status is Status.INFEASIBLE and first.scope is Scope.EVERY_SCHEDULE,
            )
        return other
    value = question.options.objective.of
    try:
        found = _plan_with_arenas(question, first)
    except NoScheduleError:
        other = known or _passed_plan(question, first, math.inf) or _any_plan(question, first)
        if other is None:
            raise
        return other
    if known and value(known.simulation) < value(found.simulation):
        found = known
    found = _passed_plan(question, first, value(found.simulation)) or found
    return question.finished(found)


@dataclass(frozen=True)
class _Question:
    """The problem and the options of a plan; all answers share one clock.

    Attributes
    ----------
    passed
        (value, schedule) of each that was the best of an answer for a while.
    """

    problem: Problem
    options: PlanOptions
    start: Schedule | None
    on_progress: Callable[[str], None] | None
    stop: threading.Event
    clock: Clock
    passed: list[tuple[float, Schedule]] = field(default_factory=list)

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
            on_better=self._pass,
            stop=self.stop,
        )

    def _pass(self, value: float, schedule: Schedule) -> None:
        self.passed.append((value, schedule))

    def again(
        self, problem: Problem, share: float, attempt: int, start: Schedule | None
    ) -> SolveResult:
        """An answer in a share of the time that is left, from a schedule that may break budgets."""
        options = self.options
        limit_s = self.clock.share_s(share)
        solver = self._solver_for(limit_s)
        request = Request(
            objective=options.objective,
            limits=replace(options.limits, time_limit_s=limit_s),
            seed=(options.seed + attempt) % (MAX_SEED + 1),
            start=start,
            on_progress=self.on_progress,
            on_better=self._pass,
            solver=solver,
            backend=backend_for(solver, options.backend if solver == options.solver else None)
            or "",
            stop=self.stop,
        )
        return answer(problem, request)

    def tightened(
        self,
        margin: Mapping[str, int],
        attempt: int,
        last: SolveResult,
        until_processor_s: float = 0.0,
    ) -> SolveResult | None:
        """An answer under budgets that are smaller by the margin, from the last one; None without.

        Parameters
        ----------
        until_processor_s
            By `time.process_time`; till then there is one although the time is up.
        """
        is_late = not self.clock.may_retry and time.process_time() >= until_processor_s
        if is_late or self.stop.is_set():
            return None
        problem = with_smaller_budgets(self.problem, margin)
        if problem is None:
            return None
        result = self.again(problem, _RETRY_SHARE, attempt + 1, last.schedule)
        return result if result.schedule is not None else None

    def lay_out(
        self, result: SolveResult, attempt: int, *, reserve_home: bool = False
    ) -> tuple[ArenaPlan, Mapping[str, int]]:
        """The layout of a result, and by how many bytes it exceeds which budgets."""
        assert result.schedule is not None
        seed = self.options.seed + attempt
        schedule = result.schedule
        effort = self.effort(len(schedule.steps))
        arenas = plan_arenas(
            self.problem, schedule, effort=effort, seed=seed, reserve_home=reserve_home
        )
        return arenas, arenas.excess_bytes(self.problem.platform)

    def effort(self, steps: int) -> int:
        """For the layout of a schedule of so many steps."""
        is_hurried = self.clock.left_s <= _UNHURRIED_S and steps >= _LONG_STEPS
        return quick_effort(steps) if is_hurried else PACKING_EFFORT

    def finished(self, plan: Plan) -> Plan:
        """The plan with the savings that a solver of the search has left."""
        is_open = plan.result.status is not Status.OPTIMAL and self.options.solver in _RESUMABLE

        def is_over() -> bool:
            return self.stop.is_set() or self.clock.is_late

        return with_savings(plan, is_over) if is_open else plan

    def _solver_for(self, limit_s: float) -> str:
        """The best solver for a short time limit."""
        total_s = self.options.limits.time_limit_s
        if limit_s >= min(_WORTHWHILE_SHARE * total_s, _WORTHWHILE_S):
            return self.options.solver
        return "local-search" if self.options.solver in _RESUMABLE else "greedy"


def _known_plan(question: _Question, first: SolveResult) -> Plan | None:
    """The schedule to begin from; None where it breaks a rule of the problem or does not fit."""
    problem, options, schedule = question.problem, question.options, question.start
    if schedule is None:
        return None
    try:
        simulation = simulate(problem, schedule)
    except InvalidScheduleError:
        return None
    # First as `any_plan` lays it out, so that what fitted there fits here, and soon.
    for effort in (quick_effort(len(schedule.steps)), PACKING_EFFORT):
        arenas = plan_arenas(problem, schedule, effort=effort)
        if not arenas.excess_bytes(problem.platform):
            break
    else:
        return None
    value = options.objective.of(simulation)
    result = replace(
        first,
        status=Status.FEASIBLE,
        schedule=schedule,
        value=value,
        solver=f"{options.solver} (start)",
    )
    question.passed.append((value, schedule))
    return Plan(problem, with_bound_of(first, result), schedule, simulation, arenas)


def _plan_with_arenas(question: _Question, first: SolveResult) -> Plan:
    """The first answer, or a later one, whose layout fits the budgets asked for."""
    margins: list[Mapping[str, int]] = []

    def tightened(margin: Mapping[str, int], attempt: int, last: SolveResult) -> SolveResult | None:
        margins.append(margin)
        return question.tightened(margin, attempt, last)

    result, arenas = fit_layout(first, question.lay_out, tightened)
    if result is not first:
        result, arenas = _with_less_margin(question, first, (result, arenas), margins)
    elif _may_improve(question, first):
        more = question.again(question.problem, 1.0, 1, first.schedule)
        more = with_finder(more, first.solver)
        if more.schedule is not None:
            better, excess = question.lay_out(more, 0)
            if not excess:
                arenas = better
            result = with_best_bound(first, more) if excess else with_best_bound(more, first)
            first = result
    return _plan_of(question, first, result, arenas)


def _passed_plan(question: _Question, first: SolveResult, below: float) -> Plan | None:
    """The cheapest schedule that was the best for a while and whose layout fits, if it is below a value.

    Each is laid out with little effort, from the cheapest on, and then with more while there is time.
    """
    problem, clock, fits = question.problem, question.clock, None
    for effort_of in (quick_effort, lambda _steps: PACKING_EFFORT):
        for value, schedule in sorted(question.passed, key=itemgetter(0)):
            is_late = clock.is_over if effort_of is quick_effort else clock.left_s <= 0
            if value >= below or is_late or question.stop.is_set():
                break
            arenas = plan_arenas(problem, schedule, effort=effort_of(len(schedule.steps)))
            if not arenas.excess_bytes(problem.platform):
                fits, below = (schedule, arenas), value
                break
    if fits is None:
        return None
    schedule, arenas = fits
    result = replace(first, status=Status.FEASIBLE, schedule=schedule, value=below)
    return _plan_of(question, first, with_bound_of(first, result), arenas)


def _with_less_margin(
    question: _Question,
    first: SolveResult,
    fits: tuple[SolveResult, ArenaPlan],
    margins: Sequence[Mapping[str, int]],
) -> tuple[SolveResult, ArenaPlan]:
    """The result whose layout fits, or a better one between its margin and the last with which none did.

    What a layout adds differs by more than that from one schedule to another of the same value.
    """
    if not _may_improve(question, first):
        return fits
    most, least = dict(margins[-1]), dict(margins[-2]) if len(margins) > 1 else {}
    for attempt in range(len(margins), len(margins) + _MOST_LESS):
        if question.clock.left_s < LEAST_SOLVE_S:
            break
        middle = {name: (size + least.get(name, 0)) // 2 for name, size in most.items()}
        other = question.tightened(middle, attempt, first)
        if other is None or other.value is None or fits[0].value is None:
            least = middle
            continue
        if other.value >= fits[0].value:
            most = middle
            continue
        arenas, excess = question.lay_out(other, attempt)
        if excess:
            least = middle
        else:
            fits, most = (other, arenas), middle
    return fits


def _any_plan(question: _Question, first: SolveResult) -> Plan | None:
    """A plan of any cost; where no other plan waits for the time, however busy the machine is."""
    clock, is_alone = question.clock, question.options.over_at_s is None
    if clock.is_over and not is_alone:
        return None
    # An attempt that runs when nothing new may begin has half of the time in which it should end.
    after_s = max(_AFTER_S, _AFTER_S_PER_OP * len(question.problem.graph.ops))
    left_s = (clock.until_over_s + clock.until_late_s) / 2 - after_s
    found = any_plan(
        question.problem,
        question.options.objective,
        processor_s=min(any_plan_s(question.problem), max(left_s, _LATE_S)),
        may_go_on=lambda: not question.stop.is_set() and (is_alone or not clock.is_over),
    )
    return None if found is None else replace(found, result=_noted(first, found.result))


def _with_reserved_home(question: _Question, plan: Plan) -> Plan:
    """A plan like this whose state lies below all else, with smaller budgets; else `plan`."""

    def lay_out(result: SolveResult, attempt: int) -> tuple[ArenaPlan, Mapping[str, int]]:
        return question.lay_out(result, attempt, reserve_home=True)

    tightened = partial(question.tightened, until_processor_s=time.process_time() + _HOME_S)
    try:
        result, arenas = fit_layout(plan.result, lay_out, tightened)
    except NoScheduleError:
        return plan
    return _plan_of(question, plan.result, result, arenas)


def _plan_of(
    question: _Question, first: SolveResult, result: SolveResult, arenas: ArenaPlan
) -> Plan:
    schedule = result.schedule
    assert schedule is not None
    simulation = simulate(question.problem, schedule)
    noted = result if result is first else _noted(first, result)
    return Plan(question.problem, noted, schedule, simulation, arenas)


def _noted(first: SolveResult, later: SolveResult) -> SolveResult:
    """A later answer with the bound of the first one, and why it was asked for."""
    note = "budgets were tightened, because an address layout needed more than the peak"
    message = f"{later.message}; {note}" if later.message else note
    return replace(with_bound_of(first, later), message=message)


def _was_too_slow(question: _Question, first: SolveResult) -> bool:
    """Whether a solver that takes schedules from others found none in the time limit."""
    return first.stopped_by is StopReason.LIMIT and question.options.solver in _RESUMABLE


def _may_improve(question: _Question, first: SolveResult) -> bool:
    """Whether the rest of the time limit may lead to a better schedule than the first."""
    return (
        first.stopped_by is StopReason.LIMIT
        and question.options.solver in _RESUMABLE
        and question.clock.left_s > LEAST_SOLVE_S
    )
