"""The forms of a step that need less memory: with variants of kernels, and in slices of the batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.kernel_choice import kernels_with_choice
from tvm_xengine.compiler.lean.kernels import (
    KERNEL_S,
    variants_s,
    with_needed_variants,
    with_variants,
)
from tvm_xengine.compiler.lean.slices import costed_in_slices, slicings
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.planning.any_plan import any_plan, any_plan_s
from tvm_xengine.planning.clock import Clock, grace_s
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.relaxation.loads import floor_of
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import MACHINE_TIME, TimeSource
from tvm_xengine.solvers.working_set import working_sets

_CUT_S_PER_KERNEL, _CUT_S_PER_OP = 0.03, 3e-3
"""Processor time to cut the batch: to make each kernel of the slices, and for each op of the result, with its
part of a first plan. LeNet in two takes 1.5 s, ResNet-8 3.6 s for 217 ops and 6 s for 700."""
_LEAST_ANY_S, _LEAST_ANY_S_PER_OP = 0.25, 2.5e-3
"""For a plan of any cost, however late it is: greedy walks of a hundred ops end in less."""
_SHARE, _LEAST_S, _LEAST_SHARE = 0.8, 3.0, 0.85
"""Share of the time in which planning has to end, once there is no schedule of the whole batch, for making
leaner forms and comparing them: it is more important to have a plan than a good one. In any case so much
processor time, or that share of the time for all of planning: two cuts of a small network take less, and
should not depend on how busy the machine is."""
_SHARE_WITH_PLAN = 0.5
"""Share of that time where a form has a plan: the search for a better one gets the rest."""
LESS_RATIO = 0.9
"""Where only memory counts, slices that save less than a tenth are no reason to look at more of them."""
_MORE_RATIO = 0.02
"""A plan that takes so much longer than with room for everything may be better in more slices."""


class LoweredProblem(Protocol):
    """A lowered step with its scheduling problem."""

    @property
    def lowered(self) -> LoweredStep:
        """With every kernel that a run may take."""

    @property
    def problem(self) -> Problem:
        """With the costs of these kernels, and the budgets."""


StepT = TypeVar("StepT", bound=LoweredProblem)


@dataclass(frozen=True)
class Form(Generic[StepT]):
    """One form of a step.

    Attributes
    ----------
    step
        With every kernel that a run may take in this form.
    plan
        A plan of any cost; None where none is known.
    known
        A better schedule of another form that this one can run, too.
    """

    step: StepT
    plan: Plan | None = None
    known: Schedule | None = None

    @property
    def start(self) -> Schedule | None:
        """The schedule for a search to begin from."""
        return self.known or (None if self.plan is None else self.plan.schedule)


class TimeLeft:
    """What is left of some time of this thread, in which others do not count, for other forms of a step.

    Parameters
    ----------
    processor_s, with_plan_s
        For forms, and for them once one has a plan; as long by default.
    source
        By which time passes.

    Attributes
    ----------
    is_cut_short
        Whether there was no time for a cut.
    """

    def __init__(
        self,
        processor_s: float,
        with_plan_s: float | None = None,
        source: TimeSource = MACHINE_TIME,
    ) -> None:
        self.source = source
        now_s = source.thread_s()
        self._until_s = now_s + processor_s
        self._with_plan_until_s = self._until_s if with_plan_s is None else now_s + with_plan_s
        self.is_cut_short = False

    @classmethod
    def of(cls, clock: Clock) -> TimeLeft:
        """The time where the whole batch has no schedule."""
        all_s = clock.limit_s + 2 * grace_s(clock.limit_s)
        every_s = max(min(_LEAST_S, _LEAST_SHARE * all_s), _SHARE * clock.until_late_s)
        return cls(every_s, _SHARE_WITH_PLAN * every_s, clock.source)

    def has_plan(self) -> None:
        """Some form has a plan, so that there may be less time for others."""
        self._until_s = min(self._until_s, self._with_plan_until_s)

    @property
    def left_s(self) -> float:
        """Seconds; negative when the time is up."""
        return self._until_s - self.source.thread_s()

    def for_any_plan(self, problem: Problem) -> float:
        """Seconds of it for a plan of any cost."""
        least_s = max(_LEAST_ANY_S, _LEAST_ANY_S_PER_OP * len(problem.graph.ops))
        return min(any_plan_s(problem), max(least_s, self.left_s))

    def may_cut(self, step: LoweredStep, parts: int) -> bool:
        """Whether a cut of a step in so many slices would end in time."""
        self.is_cut_short = not self.may_take(cut_s(step, parts))
        return not self.is_cut_short

    def may_take(self, takes_s: float) -> bool:
        """Whether there is time for what takes so long; it is counted if there is."""
        if takes_s > self.left_s:
            return False
        self.source.worked(takes_s)
        return True


def cut_s(step: LoweredStep, parts: int) -> float:
    """Processor time that a cut of a step in so many slices is expected to take."""
    ops = parts * len(step.extraction.graph.ops)
    compared_s = KERNEL_S * len(kernels_with_choice(step))
    return _CUT_S_PER_KERNEL * len(step.kernels) + compared_s + _CUT_S_PER_OP * ops


def forms(
    costed: CostedStep,
    stores: Stores,
    reporter: Reporter,
    time_left: TimeLeft | None = None,
    *,
    has_plan: bool = False,
) -> Iterator[CostedStep]:
    """The step with variants of its kernels, whole and then in more and more slices.

    Slices need less for activations only, so there are none where a budget has no room for the state. Where
    none has room for the whole batch, the first slices are so small that all of one can be kept. Where
    time is short, slices have no more variants than they need, and come first if it does not suffice for the
    whole batch, too, which may have no plan with any variants.

    Parameters
    ----------
    costed
        With the kernels that ops need whose own do not fit.
    time_left
        For all of it, and for plans of any cost in between; by default there is enough.
    has_plan
        Whether the whole batch has a plan without more variants, so that it has one with them.
    """
    time_left = time_left or TimeLeft(math.inf)
    is_beyond = working_sets(costed.problem).is_infeasible()  # with any kernels
    home_bytes = working_sets(costed.problem).home_bytes
    has_room = all(
        home_bytes[one.name] <= one.budget_bytes for one in costed.problem.platform.devices
    )
    slices = list(in_order_of_promise(costed, is_beyond=is_beyond)) if has_room else []
    whole_s = variants_s(costed) + any_plan_s(costed.problem)
    cut_first_s = cut_s(costed.offered, slices[0]) if slices else 0.0
    first_s = whole_s if has_plan else whole_s + cut_first_s
    is_hurried = slices and not is_beyond and first_s > time_left.left_s
    is_cut = False
    if not is_hurried:
        yield costed if is_beyond else with_variants(costed, stores, reporter)
    for parts in slices:
        if not time_left.may_cut(costed.offered, parts):
            break
        reporter.status(f"dividing the batch in {parts} slices")
        sliced = costed_in_slices(costed, parts, stores, reporter)
        reporter.status("")
        if sliced is None:
            break
        has_time = not is_hurried and time_left.may_take(variants_s(sliced))
        with_enough = with_variants if has_time else with_needed_variants
        yield with_enough(sliced, stores, reporter)
        is_cut = True
    if is_hurried and time_left.may_take(variants_s(costed)):
        yield with_variants(costed, stores, reporter)
    elif is_hurried and not is_cut:
        yield costed


def in_order_of_promise(costed: CostedStep, *, is_beyond: bool) -> Iterable[int]:
    """Numbers of slices, first those of which a budget has room for all that one keeps, then fewer."""
    every = list(slicings(costed.offered))
    if not is_beyond:
        return every
    problem, device = costed.problem, costed.problem.platform.home
    if any(device not in there for there in problem.costs.values()):
        return every
    peak_bytes = simulate(*keep_all_on(problem, device)).peak_bytes[device]
    state_bytes = sum(problem.home_bytes.values())
    room_bytes = sum(one.budget_bytes for one in problem.platform.devices) - state_bytes
    fits = [parts for parts in every if peak_bytes - state_bytes <= parts * room_bytes]
    return [*fits, *(parts for parts in reversed(every) if parts not in fits)]


def best_forms(
    steps: Iterable[StepT],
    objective: Objective,
    time_left: TimeLeft,
    *,
    whole_slices: int = 1,
    below: float = math.inf,
) -> list[Form[StepT]]:
    """The best forms of the whole batch and in slices, best first.

    Forms are compared by plans of any cost. No more slices are looked at than those whose plan takes
    hardly longer than with room for everything, since each slice more costs time. Where no form has a
    plan, it is the one whose largest op needs the smallest share of a budget.

    Parameters
    ----------
    steps
        The step with variants of its kernels, whole and in more and more slices.
    whole_slices
        The slices of the whole batch, more than one where shares of it run side by side.
    below
        Only forms that may have a plan of a smaller value; there may be none then.
    time_left
        For plans of any cost.
    """
    found: list[Form[StepT]] = []
    without: list[tuple[float, Form[StepT]]] = []
    for step in steps:
        problem = step.problem
        is_worthwhile = least_value(problem, objective) < below
        if is_worthwhile:
            is_infeasible = working_sets(problem).is_infeasible()
            any_s = time_left.for_any_plan(problem)
            plan = (
                None
                if is_infeasible
                else any_plan(problem, objective, processor_s=any_s, clock=time_left.source)
            )
            if plan is None:
                without.append((largest_share(problem), Form(step)))
            else:
                found.append(Form(step, plan))
                time_left.has_plan()
        if step.lowered.slices == whole_slices:
            continue
        is_tried = bool(found) and found[-1].step is step
        if not is_worthwhile or (is_tried and _is_as_fast_as_can_be(found[-1], objective)):
            break
    if not found:
        return [min(without, key=lambda pair: pair[0])[1]] if without else []
    ranked = sorted(found, key=lambda form: _value(form, objective))
    kinds = {form.step.lowered.slices == whole_slices: form for form in reversed(ranked)}
    return sorted(kinds.values(), key=ranked.index)


def least_value(problem: Problem, objective: Objective) -> float:
    """A bound that no schedule of a problem is below, at once; 0 for the makespan."""
    return 0.0 if objective is Objective.MAKESPAN else floor_of(problem, objective)


def largest_share(problem: Problem) -> float:
    """The largest share of a budget that ops which can run nowhere else need alone, or the state."""
    budgets = {device.name: device.budget_bytes for device in problem.platform.devices}
    least_bytes = working_sets(problem).least_bytes()
    return max((size / budgets[device] for device, size in least_bytes.items()), default=0.0)


def _is_as_fast_as_can_be(form: Form[StepT], objective: Objective) -> bool:
    """Whether a form's plan takes hardly longer than with room for everything, or that is not known."""
    floor = least_value(form.step.problem, objective)
    return not floor or _value(form, objective) <= (1 + _MORE_RATIO) * floor


def _value(form: Form[StepT], objective: Objective) -> float:
    assert form.plan is not None
    return objective.of(form.plan.simulation)
