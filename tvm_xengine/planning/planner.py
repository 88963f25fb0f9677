"""From a problem to a schedule whose address layout fits every budget."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

from tvm_xengine.errors import InvalidScheduleError, NoScheduleError
from tvm_xengine.planning.answers import with_best_bound, with_bound_of, with_finder
from tvm_xengine.planning.any_plan import any_plan, any_plan_s
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock
from tvm_xengine.planning.messages import no_schedule_message
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.question import LONG_STEPS, PlanOptions, Question
from tvm_xengine.planning.streams.in_time import as_it_runs, with_fewer_waits
from tvm_xengine.planning.streams.overlapped import faster_in_streams
from tvm_xengine.planning.tighten import fit_layout
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
from tvm_xengine.solvers.result import Objective, Scope, SolveResult, Status, StopReason

__all__ = ["PlanOptions", "plan_schedule"]


_LEAST_TIGHTENED = 2
"""Answers under tightened budgets before a schedule that was found is given up, though the time for it is
over: most layouts fit after two, and what is tried instead, or was the best before, may take a multiple."""
_MOST_LESS = 4
"""Further answers under budgets that are tightened less, once a layout fits: the last is a sixteenth off."""
_HOME_S = 2.0
"""Processor time, beyond the limit if need be, for a layout with all state at the bottom: without one
the evaluation of a package may not fit, which must not depend on how busy the machine is."""
_LATE_S = 0.5
"""Processor time, beyond the limit if need be, for attempts at a plan of any cost where there is none: two or
three on a hundred ops."""
_AFTER_S, _AFTER_S_PER_OP = 0.25, 2e-4
"""What attempts at a plan of any cost take after their time, whichever is more: greedy goes on for a quarter
of a second on a small graph; on a large one layout, bound and simulations take so long for each op."""


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
    question = Question(
        problem,
        options,
        start,
        on_progress,
        stop or threading.Event(),
        Clock.of(options.limits, options.over_at_s),
    )
    plan = _answered(question, is_own_stop=stop is None, prefer_reserved_home=prefer_reserved_home)
    if not prefer_reserved_home:
        steps = len(plan.schedule.steps)
        plan = as_it_runs(
            plan,
            effort=question.effort(steps),
            is_late=lambda: steps >= LONG_STEPS and question.clock.is_over,
        )
        if plan.is_overlapped:
            plan = faster_in_streams(question, plan)
            plan = plan if question.clock.is_over else with_fewer_waits(plan, seed=1)
    return replace(plan, result=replace(plan.result, solve_s=question.clock.elapsed_s))


def _answered(question: Question, *, is_own_stop: bool, prefer_reserved_home: bool) -> Plan:
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


def _found_plan(question: Question, first: SolveResult, known: Plan | None) -> Plan:
    """The best plan by the first answer and those after it, or else one of any cost."""
    if first.schedule is None:
        is_last = not question.options.limits.gives_up and _was_too_slow(question, first)
        other = _any_plan(question, first) if is_last else None
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
        gives_up = question.options.limits.gives_up
        other = known or _passed_plan(question, first, math.inf, is_quick=gives_up)
        if other is None and not gives_up:
            other = _any_plan(question, first)
        if other is None:
            raise
        return other
    if known and value(known.simulation) < value(found.simulation):
        found = known
    found = _passed_plan(question, first, value(found.simulation)) or found
    return question.finished(found)


def _known_plan(question: Question, first: SolveResult) -> Plan | None:
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
    question.note(value, schedule)
    return Plan(problem, with_bound_of(first, result), schedule, simulation, arenas)


def _plan_with_arenas(question: Question, first: SolveResult) -> Plan:
    """The first answer, or a later one, whose layout fits the budgets asked for."""
    if question.is_overlapped and (
        passed := _passed_plan(question, first, math.inf, is_quick=True)
    ):
        return passed  # schedules are chosen by how they run later
    margins: list[Mapping[str, int]] = []

    def tightened(margin: Mapping[str, int], attempt: int, last: SolveResult) -> SolveResult | None:
        margins.append(margin)
        least_s = LEAST_SOLVE_S if len(margins) <= _LEAST_TIGHTENED else 0.0
        until_s = max(question.until_given_up_s, least_s)
        return question.tightened(margin, attempt, last, until_s=until_s)

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


def _passed_plan(
    question: Question, first: SolveResult, below: float, *, is_quick: bool = False
) -> Plan | None:
    """The cheapest schedule that was the best for a while and whose layout fits, if it is below a value.

    Each is laid out with little effort, from the cheapest on, and then with more while there is time.
    """
    clock, fits = question.clock, None
    by_value = sorted(((value, one) for one, value in question.passed.items()), key=itemgetter(0))
    for is_thorough in (False,) if is_quick else (False, True):
        for value, schedule in by_value:
            is_late = clock.left_s <= 0 if is_thorough else clock.is_over
            if value >= below or is_late or question.stop.is_set():
                break
            effort = PACKING_EFFORT if is_thorough else quick_effort(len(schedule.steps))
            found = question.plan_passed(schedule, first, effort)
            if not found.arenas.excess_bytes(question.problem.platform):
                fits, below = found, value
                break
    return fits and replace(fits, result=_noted(first, fits.result))


def _with_less_margin(
    question: Question,
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


def _any_plan(question: Question, first: SolveResult) -> Plan | None:
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
        clock=clock.source,
    )
    return None if found is None else replace(found, result=_noted(first, found.result))


def _with_reserved_home(question: Question, plan: Plan) -> Plan:
    """A plan like this whose state lies below all else, with smaller budgets; else `plan`."""

    def lay_out(result: SolveResult, attempt: int) -> tuple[ArenaPlan, Mapping[str, int]]:
        return question.lay_out(result, attempt, reserve_home=True)

    tightened = partial(
        question.tightened, until_processor_s=question.clock.source.process_s() + _HOME_S
    )
    try:
        result, arenas = fit_layout(plan.result, lay_out, tightened)
    except NoScheduleError:
        return plan
    return _plan_of(question, plan.result, result, arenas)


def _plan_of(
    question: Question, first: SolveResult, result: SolveResult, arenas: ArenaPlan
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


def _was_too_slow(question: Question, first: SolveResult) -> bool:
    """Whether a solver that takes schedules from others found none in the time limit."""
    return first.stopped_by.is_limit and question.is_resumable


def _may_improve(question: Question, first: SolveResult) -> bool:
    """Whether the rest of the time limit may lead to a better schedule than the first.

    For the makespan it is spent once it is known what streams wait for.
    """
    return (
        first.stopped_by.is_limit
        and question.is_resumable
        and question.clock.left_s > LEAST_SOLVE_S
        and not question.is_overlapped
    )
