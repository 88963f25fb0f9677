"""A function of a package in slices of its batch, where the regions have no room for all of it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm_xengine.compiler.lean.forms import largest_share
from tvm_xengine.compiler.lean.slices import form_running, in_slices, slicings
from tvm_xengine.compiler.lower import KernelPreparation, LoweredStep
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.working_set import working_sets

_SHARE_OF_WHOLE_BATCH = 0.5
"""Share of the time limit after which the whole batch is given up, if no schedule is found for it."""
_LEAST_S = 2.0
"""A function in slices is planned for so long at least; a greedy schedule is there before."""


@dataclass(frozen=True)
class Sliceable:
    """A lowered function whose batch may be divided.

    Attributes
    ----------
    whole
        The function on the whole batch.
    divided
        Gives the function whose calls are divided, of the same kernels but for updates: one that is
        fused into a gradient needs the sum over the batch first, so that it cannot be divided.
    prepared
        Makes the kernels of slices.
    problem_of
        The scheduling problem of the function in some form.
    """

    whole: LoweredStep
    divided: Callable[[], LoweredStep]
    prepared: KernelPreparation
    problem_of: Callable[[LoweredStep], Problem]

    def running(self, schedule: Schedule) -> LoweredStep:
        """The form whose ops a schedule runs; the whole batch where there is none."""
        if set(schedule.computed) <= self.whole.extraction.graph.op.keys():
            return self.whole
        form = form_running(schedule, self.divided(), self.prepared)
        return form if form.slices > 1 else self.whole


PlanForm = Callable[[Problem, PlanOptions, Schedule | None], Plan]
"""Plans one form; the schedule, if any, fits."""


def plan_in_slices(
    function: Sliceable, options: PlanOptions, plan_form: PlanForm
) -> tuple[LoweredStep, Plan]:
    """The function and its plan: of the whole batch, or else in the fewest slices that have a plan.

    Which number of slices is taken does not depend on how busy the machine is, but for whole batches
    whose first schedule takes half of the time limit to find.

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
        divided = _divided(function, options, largest_share(problem))
        if divided.form is None:
            proven = error.is_proven and divided.others_are_infeasible
            raise NoScheduleError(str(error), is_proven=proven) from error
        is_proven = error.is_proven and divided.others_are_infeasible
    rest = options.within(max(clock.left_s, _LEAST_S))
    form, problem = divided.form
    try:
        return form, plan_form(problem, rest, divided.schedule)
    except NoScheduleError as error:
        raise NoScheduleError(str(error), is_proven=error.is_proven and is_proven) from error


@dataclass(frozen=True)
class _Divided:
    """The form in slices to plan.

    Attributes
    ----------
    form
        The first one that has a schedule, or else that with the smallest needs; None where the whole
        batch needs less.
    schedule
        Fits; None where none is known.
    others_are_infeasible
        Whether the other forms are proven to have no schedule.
    """

    form: tuple[LoweredStep, Problem] | None
    schedule: Schedule | None
    others_are_infeasible: bool


def _divided(function: Sliceable, options: PlanOptions, whole_share: float) -> _Divided:
    least, sliced = whole_share, None
    still_open: list[LoweredStep] = []
    divided = function.divided()
    for parts in slicings(divided):
        form = in_slices(divided, parts, function.prepared)
        if form is None:
            break
        problem = function.problem_of(form)
        if (share := largest_share(problem)) < least:
            least, sliced = share, (form, problem)
        if working_sets(problem).is_infeasible():
            continue
        start = any_plan(problem, options.objective)
        if start is not None:
            return _Divided((form, problem), start.schedule, others_are_infeasible=False)
        still_open.append(form)
    others = [form for form in still_open if sliced is None or form is not sliced[0]]
    return _Divided(sliced, None, others_are_infeasible=not others)
