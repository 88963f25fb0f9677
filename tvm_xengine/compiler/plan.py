"""Cost and plan a lowered step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_xengine.compiler.costing.compare import with_compared_kernels
from tvm_xengine.compiler.costing.costed import CostedStep, cost_step
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.lean.better_form import (
    PlannedForm,
    good_ratio,
    is_better,
    is_wasteful,
    may_take_other_form,
    planned_forms,
    planned_in_turn,
    ratio_to_stop_for_forms,
)
from tvm_xengine.compiler.lean.forms import TimeLeft, best_forms, forms, least_value
from tvm_xengine.compiler.lean.kernels import with_needed_variants
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.plan_kernels import PlannedStep, plan_kernels, planned_as
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.answers import with_best_bound, with_bound_of
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.messages import time_limit_message
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.solvers.first_use import compile_plan_for
from tvm_xengine.solvers.result import StopReason
from tvm_xengine.solvers.working_set import working_sets

_SHARE_WITHOUT_SCHEDULE = 0.5
"""Share of the time limit after which kernels with which no schedule was found are given up for leaner
ones, which then get as much time."""
_POOR_SHARE = 0.25
"""Share of the time limit for the whole batch while other forms may be better. They get as long then, and
the best of all gets the rest."""
_LEAST_LEAN_S = 2.0
"""Leaner kernels get so long at least, half of it for a first plan: greedy schedules come within a second."""

_AT_ONCE_S = 1.0
"""Who interrupts waits for three seconds at most, of which a process takes one to end."""

_NO_TIME_S = 1e-3
"""A time limit has to be more than nothing."""


def plan_step(
    lowered: LoweredStep,
    options: CompileOptions,
    stores: Stores | None = None,
    reporter: Reporter | None = None,
) -> PlannedStep:
    """Cost the kernels as `options` say and plan the step under their budgets.

    Raises
    ------
    NoScheduleError
        If no schedule fits the budgets.
    InvalidPlatformError
        If budgets name unknown devices, or energy is the objective and no device states any.
    """
    stores, reporter = stores or Stores.open(options), reporter or Reporter()
    options.budgets.check(lowered.platform)
    costed = cost_step(lowered, options.costs, stores, reporter).with_budgets(options.budgets)
    return plan_costed(costed, options.plan, stores, reporter)


def plan_costed(
    costed: CostedStep, options: PlanOptions, stores: Stores, reporter: Reporter
) -> PlannedStep:
    """Plan a costed step; with ``active`` costs the kernels that the plan relies on are measured.

    All of it keeps the time limit, but for compiling and measuring kernels. An op whose kernel cannot run
    within a budget may take a generated one that needs less workspace,
    run by run. Where no schedule is found, or one that takes much longer than a step with room for
    everything, the step is planned in the form whose plans of any cost are best, which does not depend
    on how busy the machine is (:func:`best_forms`).
    """
    check_energy(costed.problem.platform, options.objective)
    if costed.choice is CostChoice.ACTIVE:
        try:
            costed = with_compared_kernels(costed, stores, reporter)
        except KeyboardInterrupt:
            return _at_once(costed, options)
    fitting, limits = with_needed_variants(costed, stores, reporter), options.limits
    limits = replace(limits, give_up_share=_SHARE_WITHOUT_SCHEDULE)
    if may_take_other_form(options):
        ratio = ratio_to_stop_for_forms(fitting, _POOR_SHARE * limits.time_limit_s)
        limits = replace(limits, poor_share=_POOR_SHARE, good_ratio=ratio)
    compile_plan_for(fitting.problem, options.solver, options.objective, reporter.status)
    watch = _Watch.of(Clock.shared(limits.time_limit_s, limits.clock), stores)
    options = replace(options, over_at_s=watch.clock.over_at_s)
    if working_sets(fitting.problem).is_infeasible():
        return _in_leaner_form(fitting, watch, options, reporter)
    try:
        planned = plan_kernels(fitting, replace(options, limits=limits), stores, reporter)
    except NoScheduleError:
        return _in_leaner_form(fitting, watch, options, reporter)
    floor = least_value(planned.plan.problem, options.objective)
    if fitting is not costed:
        floor = min(floor, least_value(costed.problem, options.objective))
    try:
        planned = _compared(planned, fitting, floor, watch, options, reporter)
    except KeyboardInterrupt:
        planned = planned.interrupted()
    return _saying_what_changed(planned, "a step of the whole batch takes longer in these budgets")


def _at_once(costed: CostedStep, options: PlanOptions) -> PlannedStep:
    """What there is when an interrupt comes before the first search: a plan of any cost."""
    clock = options.limits.clock
    plan = any_plan(costed.problem, options.objective, processor_s=_AT_ONCE_S, clock=clock)
    if plan is None:
        raise KeyboardInterrupt
    return planned_as(costed, plan).interrupted()


def _in_leaner_form(
    fitting: CostedStep,
    watch: _Watch,
    options: PlanOptions,
    reporter: Reporter,
) -> PlannedStep:
    """The plan in another form than the whole batch, of which none was found yet."""
    time_left, stores = TimeLeft.of(watch.clock), watch.stores
    every = forms(fitting, stores, reporter, time_left)
    slices = fitting.lowered.slices
    found = best_forms(every, options.objective, time_left, whole_slices=slices)
    clock = watch.clock
    limit_s = max(clock.left_s, min(clock.until_over_s, _LEAST_LEAN_S))
    if found[0].plan is None and (found[0].step is fitting or limit_s < LEAST_SOLVE_S):
        within = options.within(max(_NO_TIME_S, limit_s))
        try:
            return plan_kernels(fitting, within, stores, reporter)
        except NoScheduleError as error:
            raise _saying_what_is_untried(error, time_left) from error
    options = replace(options, over_at_s=clock.over_at_s)
    try:
        planned = planned_in_turn(found, limit_s, options, stores, reporter)[0].planned
    except NoScheduleError as last:
        raise _saying_what_is_untried(last, time_left) from last
    planned = planned.taking(watch.clock.elapsed_s)
    return _saying_what_changed(planned, "the budgets have no room for the whole batch")


@dataclass(frozen=True)
class _Watch:
    """A clock that stands still while kernels are compiled and measured."""

    begun: Clock
    stores: Stores
    measured_s: float

    @classmethod
    def of(cls, begun: Clock, stores: Stores) -> _Watch:
        """A watch that is started now."""
        return cls(begun, stores, stores.measurements.measured_s)

    @property
    def clock(self) -> Clock:
        """What it shows."""
        return self.begun.paused(self.stores.measurements.measured_s - self.measured_s)


def _compared(
    planned: PlannedStep,
    fitting: CostedStep,
    floor: float,
    watch: _Watch,
    options: PlanOptions,
    reporter: Reporter,
) -> PlannedStep:
    """The plan, or a better one in another form; the search of a poor one goes on."""
    plan, stores = planned.plan, watch.stores
    clock = watch.clock
    if plan.result.stopped_by is StopReason.INTERRUPTED or clock.left_s <= 0:
        return planned  # the kernels of another form take seconds to lower
    whole = best = PlannedForm(fitting, planned)
    value = whole.value(options)
    forms_s = min(max(clock.elapsed_s, _POOR_SHARE * clock.limit_s), clock.left_s)
    as_long = options.within(max(_NO_TIME_S, forms_s))
    others = planned_forms(fitting, plan, floor, as_long, stores, reporter, clock)
    if others and is_better(others[0].value(options), value):
        best, others[0] = others[0], whole
        value = best.value(options)
        floor = least_value(best.planned.plan.problem, options.objective)
    is_poor = value > good_ratio(best.costed) * floor and may_take_other_form(options)
    is_interrupted = best.planned.plan.result.stopped_by is StopReason.INTERRUPTED
    if is_poor and not is_interrupted and watch.clock.left_s >= LEAST_SOLVE_S:
        others = others if is_wasteful(value, floor) else []
        best = _searched_on(best, others, watch, options, reporter)
    return best.planned.taking(watch.clock.elapsed_s)


def _searched_on(
    best: PlannedForm,
    others: Sequence[PlannedForm],
    watch: _Watch,
    options: PlanOptions,
    reporter: Reporter,
) -> PlannedForm:
    """The best form, or another that is better once the rest of the time was spent on its plan.

    It is spent on the best one; where the search for its plan came to its end, on the next best that
    may become better.
    """
    value = best.value(options)
    may_gain = [
        one
        for one in others
        if is_better(least_value(one.planned.plan.problem, options.objective), value)
    ]
    still_open = (one for one in (best, *may_gain) if _is_open(one.planned.plan.result.stopped_by))
    one = next(still_open, None)
    if one is None:
        return best
    known, within = one.planned.plan, options.within(watch.clock.left_s)
    more = plan_kernels(one.costed, within, watch.stores, reporter, known.schedule)
    found = _no_worse(more.plan, known)
    result = replace(with_best_bound(found.result, known.result), solver=known.result.solver)
    made = replace(one, planned=replace(more, plan=replace(found, result=result)))
    return made if one is best or is_better(made.value(options), value) else best


def _is_open(ended: StopReason) -> bool:
    """Whether a search that ended so may find more."""
    return ended.is_limit or ended is StopReason.EXHAUSTED


def _no_worse(plan: Plan, before: Plan) -> Plan:
    """The plan; where the one that it began from is better by the same costs, that one in its layout.

    Its schedule may fit in that layout only.
    """
    value, kept = plan.result.objective.of, before.under(plan.problem)
    if value(plan.simulation) <= value(kept.simulation):
        return plan
    return replace(kept, result=with_bound_of(plan.result, kept.result))


def _saying_what_changed(planned: PlannedStep, why: str) -> PlannedStep:
    """The plan with a sentence on slices, and one on the kernels that its budgets have no room for."""
    plan, slices = planned.plan, planned.lowered.slices
    said = [plan.result.message, time_limit_message(plan.result)]
    if slices > 1:
        said.append(
            f"{why}, so the step runs in {slices} slices of it,"
            " whose sums are added, and the bound is for these"
        )
    said.append(_on_variants(plan.schedule))
    message = "; ".join(text for text in said if text)
    return replace(planned, plan=replace(plan, result=replace(plan.result, message=message)))


def _saying_what_is_untried(error: NoScheduleError, time_left: TimeLeft) -> NoScheduleError:
    """The error, with what a longer time limit would have been used for."""
    if not time_left.is_cut_short:
        return error
    return NoScheduleError(
        f"{error}; there was no time to try all slices of the batch: a longer limit (time_limit_s,"
        " --time-limit) may find a plan in more",
    )


def _on_variants(schedule: Schedule) -> str:
    """What a person should know of runs that take another kernel than the fastest."""
    runs = [step for step in schedule.steps if isinstance(step, Compute)]
    leaner = sum(bool(run.variant) for run in runs)
    if not leaner:
        return ""
    first: dict[str, str] = {}
    unlike = sum(first.setdefault(run.op, run.variant) != run.variant for run in runs)
    said = (
        f"the budgets leave no room for the workspace of the fastest kernel in {leaner}"
        f" {'run' if leaner == 1 else 'runs'}, so others run there, whose sums are rounded in another order"
    )
    if unlike:
        said += f"; {unlike} of all repetitions take another kernel than the first run of their op"
    return said


def plan_keep_all(problem: Problem, device: str) -> Plan:
    """The plan that keeps every tensor until its last use, all on one device, without budget.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    return Plan.of_schedule(*keep_all_on(problem, device), solver="keep all")
