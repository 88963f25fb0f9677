"""The forms of a package's function that need less memory: with lean kernels, in slices of its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tvm_xengine.aot.plan.kernels import TargetKernels
from tvm_xengine.compiler.lean.forms import TimeLeft, best_forms
from tvm_xengine.compiler.lean.slices import form_running, in_slices, slicings
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.errors import NoScheduleError
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
class RegionStep:
    """A lowered function with its scheduling problem in the regions of a processor."""

    lowered: LoweredStep
    problem: Problem


@dataclass(frozen=True)
class Forms:
    """A lowered function that may take other forms.

    Attributes
    ----------
    whole
        The function on the whole batch, with the usual kernels.
    divided
        Gives the function whose calls are divided, of the same kernels but for updates: one that is
        fused into a gradient needs the sum over the batch first, so that it cannot be divided.
    prepared
        Makes the kernels of slices, and lean ones.
    problem_of
        The scheduling problem of the function in some form.
    tiled
        A form whose runs may also take tiles of operands in slow memory.
    """

    whole: LoweredStep
    divided: Callable[[], LoweredStep]
    prepared: TargetKernels
    problem_of: Callable[[LoweredStep], Problem]
    tiled: Callable[[LoweredStep], LoweredStep] = lambda form: form

    def step(self, lowered: LoweredStep) -> RegionStep:
        """A form, with its problem."""
        return RegionStep(lowered, self.problem_of(lowered))

    def with_variants(self, lowered: LoweredStep) -> RegionStep:
        """A form each run of which may take a lean kernel."""
        return self.step(self.tiled(self.prepared.with_variants(lowered)))

    def running(self, schedule: Schedule) -> LoweredStep:
        """The form whose ops a schedule runs."""
        if set(schedule.computed) <= self.whole.extraction.graph.op.keys():
            return self.whole
        sliced = form_running(schedule, self.divided(), self.prepared)
        return sliced if sliced.slices > 1 else self.whole

    def all(self, whole: RegionStep, time_left: TimeLeft) -> Iterator[RegionStep]:
        """The function whole, as given, and then in more and more slices with variants of its kernels, as
        long as there is time."""
        yield whole
        divided = self.divided()
        for parts in slicings(divided):
            if not time_left.may_cut(divided, parts):
                return
            if (sliced := in_slices(divided, parts, self.prepared)) is None:
                return
            yield self.with_variants(sliced)


PlanForm = Callable[[Problem, PlanOptions, Schedule | None], Plan]
"""Plans one form; the schedule, if any, fits."""


def plan_forms(
    function: Forms, ample_bytes: int, options: PlanOptions, plan_form: PlanForm
) -> tuple[LoweredStep, Plan]:
    """The function and its plan: of the whole batch, or else in the best number of slices.

    Slices are compared as those of other steps are (:func:`best_forms`). Which form is taken does not
    depend on how busy the machine is, but for whole batches whose first schedule takes half of the time
    limit to find.

    Parameters
    ----------
    ample_bytes
        Lean kernels, which take time to make, are made only where keeping all tensors takes more than
        this, or constraints say where ops run.

    Raises
    ------
    NoScheduleError
        If none is found; it says what the form with the smallest needs takes at least.
    """
    clock = Clock.shared(options.limits.time_limit_s, options.limits.clock)
    whole = function.step(function.tiled(function.whole))
    first = whole.problem.platform.computing[0].name
    keep_all_bytes = plan_keep_all(whole.problem, first).arenas.arena_bytes[first]
    if keep_all_bytes > ample_bytes or whole.problem.constraints:
        whole = function.with_variants(function.whole)
    limits = replace(options.limits, give_up_share=_SHARE_OF_WHOLE_BATCH)
    try:
        return whole.lowered, plan_form(whole.problem, replace(options, limits=limits), None)
    except NoScheduleError as error:
        looked_at: list[RegionStep] = []
        time_left = TimeLeft.of(clock)

        def forms() -> Iterator[RegionStep]:
            for step in function.all(whole, time_left):
                looked_at.append(step)
                yield step

        best = best_forms(forms(), options.objective, time_left, whole_slices=whole.lowered.slices)[
            0
        ]
        is_proven = error.is_proven and not time_left.is_cut_short
        is_proven &= all(
            step is whole or step is best.step or working_sets(step.problem).is_infeasible()
            for step in looked_at
        )
    rest = options.within(max(clock.left_s, _LEAST_S))
    start = None if best.plan is None else best.plan.schedule
    try:
        return best.step.lowered, plan_form(best.step.problem, rest, start)
    except NoScheduleError as error:
        raise NoScheduleError(str(error), is_proven=error.is_proven and is_proven) from error
