"""Plans of a step in other forms, where those of the whole batch take long or do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean.forms import Form, TimeLeft, best_forms, cut_s, forms
from tvm_xengine.compiler.lean.kernels import may_take_variants
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.plan_kernels import PlannedStep, plan_kernels, planned_as
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.solvers.result import Objective, StopReason

_WASTE_RATIO, _LARGE_WASTE_RATIO = 0.02, 0.2
"""A plan of the whole batch that takes so much longer than a step with room for everything is compared
with plans in other forms. Only where more is at stake kernels of slices are measured, which takes minutes,
and forms are made for longer than the plan took."""
_FEWEST_SLICES = 2
"""What a cut takes at least is that of a cut in two."""
_LEAST_GAIN_RATIO = 0.02
"""What another form has to gain; sums over slices are rounded in another order than those of a batch."""
_LEAST_FORMS_S = 3.0
"""Processor time for making other forms and comparing them, though the plan took less: two cuts of a small
network."""


@dataclass(frozen=True)
class PlannedForm:
    """A form of a step with its plan.

    Attributes
    ----------
    costed
        With every kernel that a run may take in this form, of which the plan has chosen.
    """

    costed: CostedStep
    planned: PlannedStep

    def value(self, options: PlanOptions) -> float:
        """Of its plan."""
        return options.objective.of(self.planned.plan.simulation)


def may_take_other_form(options: PlanOptions) -> bool:
    """Whether plans in other forms are compared: not where a solver finds its own schedules."""
    return options.solver == "auto" and options.objective is not Objective.MAKESPAN


def good_ratio(costed: CostedStep) -> float:
    """A plan that takes at most so many times as long as with room for everything is not compared."""
    return 1 + (_LARGE_WASTE_RATIO if costed.choice is CostChoice.MEASURED else _WASTE_RATIO)


def ratio_to_stop_for_forms(costed: CostedStep, forms_s: float) -> float:
    """A plan that takes more times as long as that is not searched any longer, but other forms are made.

    It is larger where they have to gain more: where there are slices only, and a cut takes longer than
    `forms_s`.
    """
    is_soon = may_take_variants(costed) or cut_s(costed.offered, _FEWEST_SLICES) <= forms_s
    return good_ratio(costed) if is_soon else 1 + _LARGE_WASTE_RATIO


def is_better(value: float, than: float) -> bool:
    """Whether a plan in another form gains enough, or may do so by a bound on its value."""
    return value < _to_be_better(than)


def _to_be_better(than: float) -> float:
    """The value that a plan in another form has to be below."""
    return (1 - _LEAST_GAIN_RATIO) * than


def is_wasteful(value: float, floor: float) -> bool:
    """Whether so much is at stake that other forms are searched for as long as the limit allows."""
    return value > (1 + _LARGE_WASTE_RATIO) * floor


def planned_forms(
    costed: CostedStep,
    known: Plan,
    floor: float,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    clock: Clock | None = None,
) -> list[PlannedForm]:
    """Plans in other forms than one of the whole batch, the best first.

    None is looked for where that plan takes hardly longer than a step with room for everything, or
    where a solver is asked for that finds its own schedules.

    Parameters
    ----------
    known
        Of the whole batch; plans with more kernels begin from its schedule.
    floor
        The value of a step with room for everything.
    clock
        When the search for forms has to end, so that the search of a plan has its time, too; by default
        both have as long as `options` say.

    Raises
    ------
    KeyboardInterrupt
        If one came before a better plan was found.
    """
    objective, value = options.objective, options.objective.of(known.simulation)
    if value <= good_ratio(costed) * floor or not may_take_other_form(options):
        return []
    limit_s = options.limits.time_limit_s
    clock = clock or Clock.shared(2 * limit_s, options.limits.clock)
    forms_s = clock.until_over_s - limit_s
    if not is_wasteful(value, floor):
        forms_s = min(forms_s, max(limit_s, _LEAST_FORMS_S))
    time_left = TimeLeft(forms_s, source=options.limits.clock)
    every = forms(costed, stores, reporter, time_left, has_plan=True)
    slices = costed.lowered.slices
    below = _to_be_better(value)
    found = [
        form
        for form in best_forms(every, objective, time_left, whole_slices=slices, below=below)
        if form.step is not costed and form.plan is not None
    ]
    if costed.choice is CostChoice.ACTIVE:
        # A plan of any cost is predicted, and no match for one that was measured.
        found = [
            form
            for form in found
            if form.plan and is_better(objective.of(form.plan.simulation), value)
        ]
        found = found if limit_s >= LEAST_SOLVE_S * len(found) else []
    if not found:
        return []
    options = replace(options, over_at_s=options.limits.clock.now_s() + limit_s)
    found = [
        replace(form, known=known.schedule)
        if form.step.lowered.slices == costed.lowered.slices
        and form.plan
        and value < objective.of(form.plan.simulation)
        else form
        for form in found
    ]
    planned = planned_in_turn(found, limit_s, options, stores, reporter)
    best = planned[0]
    is_interrupted = best.planned.plan.result.stopped_by is StopReason.INTERRUPTED
    if is_interrupted and not is_better(best.value(options), value):
        raise KeyboardInterrupt  # which the solve took, to return what it had
    return planned


def planned_in_turn(
    found: Sequence[Form[CostedStep]],
    limit_s: float,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
) -> list[PlannedForm]:
    """Plans of some forms, the best first, which share the time; without any, plans of any cost.

    The best says whether an interrupt ended the search, and has the time of all of them.

    Raises
    ------
    NoScheduleError
        If a form of which no plan is known has none.
    """
    each = limit_s / len(found)
    if each < LEAST_SOLVE_S and found[0].plan is not None:
        return [PlannedForm(found[0].step, planned_as(found[0].step, found[0].plan))]
    planned: list[PlannedForm] = []
    for form in found:
        within = options.within(each)
        try:
            made = plan_kernels(form.step, within, stores, reporter, form.start)
        except NoScheduleError:
            if form.plan is None:
                raise
            made = planned_as(form.step, form.plan)
        planned.append(PlannedForm(form.step, made))
        if made.plan.result.stopped_by is StopReason.INTERRUPTED:
            break
    results = [one.planned.plan.result for one in planned]
    planned.sort(key=lambda one: one.value(options))
    best = planned[0].planned.taking(sum(result.solve_s for result in results))
    if results[-1].stopped_by is StopReason.INTERRUPTED:
        best = best.interrupted()
    return [replace(planned[0], planned=best), *planned[1:]]
