"""Cost and plan a lowered step."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tvm_xengine.compiler.costing.costed import CostedStep, cost_step
from tvm_xengine.compiler.costing.costs import known_kernels, measured_costs
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.lean.forms import Form, TimeLeft, best_forms, forms, least_value
from tvm_xengine.compiler.lean.kernels import with_needed_variants
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.active import ActivePlan, Planning, plan_actively
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.answers import with_best_bound, with_finder
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock, grace_s
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.messages import time_limit_message
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.solvers.first_use import compile_searches_for
from tvm_xengine.solvers.result import Objective, StopReason

_SKETCH_S = 10.0
"""Longest solve in a round of active measuring; a user waits for at most six of them."""
_SKETCH_SHARE, _PLAN_SHARE = 1 / 6, 3 / 4
"""Shares of what is left of the time limit: for one such round, so that six of them leave a third, and
for a plan after them, since that may be made once more with what it asks to be measured."""
_SHARE_WITHOUT_SCHEDULE = 0.5
"""Share of the time limit after which kernels with which no schedule was found are given up for leaner
ones, which then get as much time."""
_POOR_SHARE = 0.25
"""Share of the time limit for the whole batch while other forms may be better. They get as long then, and
the best of all gets the rest."""
_LEAST_LEAN_S = 2.0
"""Leaner kernels get so long at least, half of it for a first plan: greedy schedules come within a second."""

_NO_TIME_S = 1e-3
"""A time limit has to be more than nothing."""
_WASTE_RATIO, _LARGE_WASTE_RATIO = 0.02, 0.2
"""A plan of the whole batch that takes so much longer than a step with room for everything is compared
with plans in other forms. Only where more is at stake kernels of slices are measured, which takes minutes,
and forms are made for longer than the plan took."""
_LEAST_GAIN_RATIO = 0.02
"""What another form has to gain; sums over slices are rounded in another order than those of a batch."""
_LEAST_FORMS_S = 3.0
"""Processor time for making other forms and comparing them, though the plan took less: two cuts of a small
network."""

_SKETCH_GAP_RATIO = 0.01
"""A round only has to show which kernels matter, so it need not prove the last percent."""


@dataclass(frozen=True)
class PlannedStep:
    """A lowered step with its plan.

    Attributes
    ----------
    lowered
        With the kernels that were chosen.
    measured_kernels
        Number of kernels of the step with measured costs.
    """

    lowered: LoweredStep
    plan: Plan
    measured_kernels: int


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
    fitting, limits = with_needed_variants(costed, stores, reporter), options.limits
    limits = replace(limits, give_up_share=_SHARE_WITHOUT_SCHEDULE)
    if _may_take_other_form(options):
        limits = replace(limits, poor_share=_POOR_SHARE, good_ratio=_good_ratio(costed))
    compile_searches_for(fitting.problem, options.solver, options.objective, reporter.status)
    watch = _Watch.of(Clock.shared(limits.time_limit_s), stores)
    options = replace(options, over_at_s=watch.clock.over_at_s)
    try:
        planned = plan_kernels(fitting, replace(options, limits=limits), stores, reporter)
    except NoScheduleError as error:
        time_left = TimeLeft.of(watch.clock)
        every = forms(fitting, stores, reporter, time_left.may_cut)
        found = best_forms(every, options.objective, time_left)
        clock = watch.clock
        limit_s = max(clock.left_s, min(clock.until_over_s, _LEAST_LEAN_S))
        if found[0].plan is None and (found[0].step is fitting or limit_s < LEAST_SOLVE_S):
            raise _saying_what_is_untried(error, time_left) from error
        options = replace(options, over_at_s=clock.over_at_s)
        try:
            planned = _best_planned(found, limit_s, options, stores, reporter).planned
        except NoScheduleError as last:
            raise _saying_what_is_untried(last, time_left) from last
        planned = _with_solve_s(planned, watch.clock.elapsed_s)
        return _saying_what_changed(planned, "the budgets have no room for the whole batch")
    floor = least_value(planned.plan.problem, options.objective)
    if fitting is not costed:
        floor = min(floor, least_value(costed.problem, options.objective))
    try:
        planned = _compared(planned, fitting, floor, watch, options, reporter)
    except KeyboardInterrupt:
        result = replace(planned.plan.result, stopped_by=StopReason.INTERRUPTED)
        planned = replace(planned, plan=replace(planned.plan, result=result))
    return _saying_what_changed(planned, "a step of the whole batch takes longer in these budgets")


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
    plan, value, stores = planned.plan, options.objective.of(planned.plan.simulation), watch.stores
    if plan.result.stopped_by is StopReason.INTERRUPTED:
        return planned
    # As long as that plan took, so that a user does not wait for what may come to nothing.
    clock = watch.clock
    as_long = options.within(max(_NO_TIME_S, min(clock.elapsed_s, clock.left_s)))
    other = better_form(fitting, plan.schedule, value, floor, as_long, stores, reporter, clock)
    if other is not None:
        fitting, planned, value = other.step, other.planned, other.value(options)
        floor = least_value(planned.plan.problem, options.objective)
    plan, left_s = planned.plan, watch.clock.left_s
    is_poor = value > _good_ratio(fitting) * floor
    is_open = plan.result.stopped_by is StopReason.LIMIT and is_poor
    if not (is_open and _may_take_other_form(options)) or left_s < LEAST_SOLVE_S:
        return planned if other is None else _with_solve_s(planned, watch.clock.elapsed_s)
    more = plan_kernels(fitting, options.within(left_s), stores, reporter, plan.schedule)
    result = replace(with_best_bound(more.plan.result, plan.result), solver=plan.result.solver)
    more = replace(more, plan=replace(more.plan, result=result))
    return _with_solve_s(more, watch.clock.elapsed_s)


def _may_take_other_form(options: PlanOptions) -> bool:
    """Whether plans in other forms are compared: not where a solver finds its own schedules."""
    return options.solver == "auto" and options.objective is not Objective.MAKESPAN


def _good_ratio(costed: CostedStep) -> float:
    """A plan that takes at most so many times as long as with room for everything is not compared."""
    return 1 + (_LARGE_WASTE_RATIO if costed.choice is CostChoice.MEASURED else _WASTE_RATIO)


@dataclass(frozen=True)
class PlannedForm:
    """A form of a step with its plan.

    Attributes
    ----------
    step
        With every kernel that a run may take.
    """

    step: CostedStep
    planned: PlannedStep

    def value(self, options: PlanOptions) -> float:
        """Of its plan."""
        return options.objective.of(self.planned.plan.simulation)


def better_form(
    costed: CostedStep,
    known: Schedule,
    value: float,
    floor: float,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    clock: Clock | None = None,
) -> PlannedForm | None:
    """A plan in another form that is better than a schedule of the whole batch; None without.

    None is looked for where the schedule takes hardly longer than a step with room for everything, or
    where a solver is asked for that finds its own schedules.

    Parameters
    ----------
    known
        A schedule of the whole batch, from which plans with more kernels begin.
    value
        Of that schedule.
    floor
        Of a step with room for everything.
    clock
        When the search for forms has to end, so that the search of a plan has its time, too; by default
        both have as long as `options` say.

    Raises
    ------
    KeyboardInterrupt
        If one came before a better plan was found.
    """
    objective, below = options.objective, (1 - _LEAST_GAIN_RATIO) * value
    if value <= _good_ratio(costed) * floor or not _may_take_other_form(options):
        return None
    limit_s = options.limits.time_limit_s
    clock = clock or Clock.shared(2 * limit_s)
    forms_s = clock.until_over_s - limit_s
    if value <= (1 + _LARGE_WASTE_RATIO) * floor:
        forms_s = min(forms_s, max(limit_s, _LEAST_FORMS_S))
    time_left = TimeLeft(forms_s)
    found = [
        form
        for form in best_forms(
            forms(costed, stores, reporter, time_left.may_cut), objective, time_left, below=below
        )
        if form.step is not costed and form.plan is not None
    ]
    if costed.choice is CostChoice.ACTIVE:
        # A plan of any cost is predicted, and no match for one that was measured.
        found = [form for form in found if form.plan and objective.of(form.plan.simulation) < below]
        found = found if limit_s >= LEAST_SOLVE_S * len(found) else []
    if not found:
        return None
    options = replace(options, over_at_s=time.perf_counter() + limit_s)
    found = [
        replace(form, known=known)
        if form.step.lowered.slices == costed.lowered.slices
        and form.plan
        and value < objective.of(form.plan.simulation)
        else form
        for form in found
    ]
    other = _best_planned(found, limit_s, options, stores, reporter)
    if other.value(options) < below:
        return other
    if other.planned.plan.result.stopped_by is StopReason.INTERRUPTED:
        raise KeyboardInterrupt  # which the solve took, to return what it had
    return None


def _best_planned(
    found: Sequence[Form[CostedStep]],
    limit_s: float,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
) -> PlannedForm:
    """The best plan of some forms, which share the time; without any, their plans of any cost."""
    each = limit_s / len(found)
    if each < LEAST_SOLVE_S and found[0].plan is not None:
        return PlannedForm(found[0].step, _planned(found[0].step, found[0].plan))
    planned: list[PlannedForm] = []
    for form in found:
        within = options.within(each)
        try:
            made = plan_kernels(form.step, within, stores, reporter, form.start)
        except NoScheduleError:
            if form.plan is None:
                raise
            made = _planned(form.step, form.plan)
        planned.append(PlannedForm(form.step, made))
        if made.plan.result.stopped_by is StopReason.INTERRUPTED:
            return _chosen(planned[-1], planned)
    return _chosen(min(planned, key=lambda one: one.value(options)), planned)


def _chosen(best: PlannedForm, planned: Sequence[PlannedForm]) -> PlannedForm:
    """The best of some plans, which took the time of all of them."""
    solve_s = sum(one.planned.plan.result.solve_s for one in planned)
    return replace(best, planned=_with_solve_s(best.planned, solve_s))


def _with_solve_s(planned: PlannedStep, solve_s: float) -> PlannedStep:
    result = replace(planned.plan.result, solve_s=solve_s)
    return replace(planned, plan=replace(planned.plan, result=result))


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


def plan_kernels(
    costed: CostedStep,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    start: Schedule | None = None,
) -> PlannedStep:
    """Plan a costed step with the kernels that it has."""
    if costed.choice is CostChoice.ACTIVE:
        active = _plan_with_active_costs(costed, options, stores, reporter, start)
        return PlannedStep(costed.lowered, active.plan, active.measured_kernels)
    plan = _plan(costed.problem, options, reporter, start)
    result = with_finder(plan.result, _first_by(start, options))
    return _planned(costed, replace(plan, result=result))


def _planned(costed: CostedStep, plan: Plan) -> PlannedStep:
    measured = len(costed.lowered.distinct) if costed.choice is CostChoice.MEASURED else 0
    return PlannedStep(costed.lowered, plan, measured)


def _plan(
    problem: Problem, options: PlanOptions, reporter: Reporter, start: Schedule | None
) -> Plan:
    reporter.status("solving")
    try:
        return plan_schedule(
            problem, options, lambda text: reporter.status(f"solving: {text}"), start=start
        )
    finally:
        reporter.status("")


def _plan_with_active_costs(
    costed: CostedStep,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    given: Schedule | None,
) -> ActivePlan:
    """Plan with active costs. All solves share the time limit; time for measuring does not count.

    The first solve begins from the given schedule, later ones from the best so far.
    """
    lowered, cache = costed.lowered, stores.measurements
    measure = measured_costs(cache, store=stores.kernels, reporter=reporter)
    left_s, solved_s = options.limits.time_limit_s, 0.0
    found_by = _first_by(given, options)

    def planned(
        problem: Problem, start: Schedule | None, *, share: float, most_s: float, gap_ratio: float
    ) -> Plan:
        nonlocal left_s, solved_s, found_by
        limit_s = max(LEAST_SOLVE_S, min(most_s, share * left_s))
        limits = replace(options.limits, time_limit_s=limit_s, gap_ratio=gap_ratio)
        began_s = time.perf_counter()
        over_at_s = began_s + left_s + grace_s(options.limits.time_limit_s)
        wanted = replace(options, limits=limits, over_at_s=over_at_s)
        try:
            plan = _plan(problem, wanted, reporter, start or given)
            result = with_finder(plan.result, found_by)
            found_by = result.solver
            return replace(plan, result=result)
        finally:
            took_s = time.perf_counter() - began_s
            left_s, solved_s = left_s - took_s, solved_s + took_s

    gap_ratio = options.limits.gap_ratio
    planning = Planning(
        kernels={kernel.symbol: kernel for kernel in lowered.distinct},
        kernel_of=lambda *run: lowered.kernel(*run).symbol,
        problem_with=costed.with_costs,
        sketch=partial(
            planned,
            share=_SKETCH_SHARE,
            most_s=_SKETCH_S,
            gap_ratio=max(_SKETCH_GAP_RATIO, gap_ratio),
        ),
        plan=partial(planned, share=_PLAN_SHARE, most_s=math.inf, gap_ratio=gap_ratio),
        measure=measure,
    )
    if costed.correction is not None:
        planning = replace(planning, correct=costed.correction.corrected)
    known = known_kernels(lowered.distinct, cache)
    found = plan_actively(planning, {**costed.costs, **(measure(known) if known else {})})
    result = replace(found.plan.result, solve_s=solved_s)
    return replace(found, plan=replace(found.plan, result=result))


def _first_by(start: Schedule | None, options: PlanOptions) -> str:
    """What found the schedule to begin from: :func:`any_plan` did, if there is one."""
    return "" if start is None else f"{options.solver} (greedy)"


def plan_keep_all(problem: Problem, device: str) -> Plan:
    """The plan that keeps every tensor until its last use, all on one device, without budget.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    return Plan.of_schedule(*keep_all_on(problem, device), solver="keep all")
