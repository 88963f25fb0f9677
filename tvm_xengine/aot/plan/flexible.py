"""A function of a package in a form that needs less memory: with lean kernels, in slices of its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tvm_xengine.compiler.lean.forms import largest_share
from tvm_xengine.compiler.lean.kernels import room_used
from tvm_xengine.compiler.lean.slices import form_running, in_slices, slicings
from tvm_xengine.compiler.lower import KernelPreparation, LoweredStep
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Free, Schedule, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.working_set import working_sets

_SHARE_OF_WHOLE_BATCH = 0.5
"""Share of the time limit after which the whole batch is given up, if no schedule is found for it."""
_LEAST_S = 2.0
"""A function in slices is planned for so long at least; a greedy schedule is there before."""


@dataclass(frozen=True)
class Flexible:
    """A lowered function that may take other forms.

    Attributes
    ----------
    whole
        The function on the whole batch.
    divided
        Gives the function whose calls are divided, of the same kernels but for updates: one that is
        fused into a gradient needs the sum over the batch first, so that it cannot be divided.
    prepared
        Makes the kernels of slices.
    lean
        The function with kernels that need less scratch memory; the same one where there are none.
    problem_of
        The scheduling problem of the function in some form.
    """

    whole: LoweredStep
    divided: Callable[[], LoweredStep]
    prepared: KernelPreparation
    lean: Callable[[LoweredStep], LoweredStep]
    problem_of: Callable[[LoweredStep], Problem]

    def running(self, schedule: Schedule) -> Iterator[LoweredStep]:
        """The forms whose ops a schedule runs: with fast kernels, where it leaves room for them, or lean."""
        form = self.whole
        if not set(schedule.computed) <= self.whole.extraction.graph.op.keys():
            sliced = form_running(schedule, self.divided(), self.prepared)
            form = sliced if sliced.slices > 1 else self.whole
        yield form
        if (lean := self.lean(form)) is not form:
            if not any(isinstance(step, Free) for step in schedule.steps):
                schedule = with_frees(self.problem_of(lean), schedule.steps)
            yield self.with_room_used(lean, form, schedule)
            yield lean

    def with_room_used(
        self, lean: LoweredStep, fast: LoweredStep, schedule: Schedule
    ) -> LoweredStep:
        """The lean form with the fast kernels that a schedule leaves room for."""
        ours, theirs = ((form, self.problem_of(form)) for form in (lean, fast))
        return room_used(ours, theirs, schedule)

    def others(self) -> Iterator[tuple[LoweredStep, LoweredStep]]:
        """Forms that may need less, each with the same one with fast kernels: the whole batch, and in
        more and more slices with fast kernels and with lean ones."""
        if (lean := self.lean(self.whole)) is not self.whole:
            yield lean, self.whole
        divided = self.divided()
        for parts in slicings(divided):
            form = in_slices(divided, parts, self.prepared)
            if form is None:
                return
            yield form, form
            if (lean := self.lean(form)) is not form:
                yield lean, form


PlanForm = Callable[[Problem, PlanOptions, Schedule | None], Plan]
"""Plans one form; the schedule, if any, fits."""


def plan_flexibly(
    function: Flexible, options: PlanOptions, plan_form: PlanForm
) -> tuple[LoweredStep, Plan]:
    """The function and its plan: of the whole batch with fast kernels, or else in the best other form.

    Other forms are compared by schedules of any cost; no more slices are looked at than those in which
    the fast kernels fit. Which form is taken does not depend on how busy the machine is, but for whole
    batches whose first schedule takes half of the time limit to find.

    Raises
    ------
    NoScheduleError
        If none is found; it says what the form with the smallest needs takes at least.
    """
    problem = function.problem_of(function.whole)
    clock = Clock.shared(options.limits.time_limit_s)
    limits = replace(options.limits, give_up_share=_SHARE_OF_WHOLE_BATCH)
    try:
        return function.whole, plan_form(problem, replace(options, limits=limits), None)
    except NoScheduleError as error:
        other = _best_other(function, options, largest_share(problem))
        if other.form is None:
            proven = error.is_proven and other.rest_is_infeasible
            raise NoScheduleError(str(error), is_proven=proven) from error
        is_proven = error.is_proven and other.rest_is_infeasible
    rest = options.within(max(clock.left_s, _LEAST_S))
    form, problem = other.form
    try:
        return form, plan_form(problem, rest, other.schedule)
    except NoScheduleError as error:
        if other.lean is not None:  # the layout has no room for the fast kernels among its own
            return other.lean, plan_form(function.problem_of(other.lean), rest, other.schedule)
        raise NoScheduleError(str(error), is_proven=error.is_proven and is_proven) from error


@dataclass(frozen=True)
class _Other:
    """Another form to plan.

    Attributes
    ----------
    form
        The best one that has a schedule, or else that with the smallest needs; None where the whole
        batch with fast kernels needs less.
    schedule
        Fits; None where none is known.
    rest_is_infeasible
        Whether the other forms are proven to have no schedule.
    lean
        The same form without the fast kernels that the schedule leaves room for; None where it has none.
    """

    form: tuple[LoweredStep, Problem] | None
    schedule: Schedule | None = None
    rest_is_infeasible: bool = False
    lean: LoweredStep | None = None


def _best_other(function: Flexible, options: PlanOptions, whole_share: float) -> _Other:
    least, neediest = whole_share, None
    still_open: list[LoweredStep] = []
    found: list[tuple[float, _Other]] = []
    for form, fast in function.others():
        problem = function.problem_of(form)
        if (share := largest_share(problem)) < least:
            least, neediest = share, (form, problem)
        if working_sets(problem).is_infeasible():
            continue
        start = any_plan(problem, options.objective)
        if start is None:
            still_open.append(form)
            continue
        found.append(_with_room_used(function, form, fast, start, options))
        if form is fast:
            break
    if found:
        return min(found, key=lambda pair: pair[0])[1]
    rest = [form for form in still_open if neediest is None or form is not neediest[0]]
    return _Other(neediest, rest_is_infeasible=not rest)


def _with_room_used(
    function: Flexible, form: LoweredStep, fast: LoweredStep, start: Plan, options: PlanOptions
) -> tuple[float, _Other]:
    """A form that has a schedule, with the fast kernels that this leaves room for, and its value."""
    mixed = function.with_room_used(form, fast, start.schedule) if form is not fast else form
    problem = function.problem_of(mixed)
    value = options.objective.of(simulate(problem, start.schedule))
    lean = None if mixed is form else form
    return value, _Other((mixed, problem), start.schedule, lean=lean)
