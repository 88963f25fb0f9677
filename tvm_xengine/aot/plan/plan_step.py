"""Plan a training step in the regions of one processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tvm_xengine.aot.plan.forms import Forms, plan_forms
from tvm_xengine.aot.plan.in_place import Attempt, better_plan, budgets_in_place
from tvm_xengine.aot.plan.in_regions import OnProgress, behind, forms_in_regions, plan_in_regions
from tvm_xengine.aot.plan.kernels import (
    Optimize,
    TargetKernels,
    kernels_for_target,
    lower_for_target,
)
from tvm_xengine.aot.plan.planned import PlannedFunction, PlannedTraining, values_in_flash
from tvm_xengine.aot.plan.region_problem import (
    Machine,
    outside_views,
    problem_of_plan,
)
from tvm_xengine.aot.plan.slow_operands import (
    end_of,
    state_in_place,
)
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.errors import BudgetExceededError, NoScheduleError
from tvm_xengine.planning.given_schedule import plan_given_schedule
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import Operand, OutsideView
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, without_variants
from tvm_xengine.scheduling.sizes import format_budgets, round_up
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class Wishes:
    """What a user asks of the schedule of the training step.

    Attributes
    ----------
    constraints
        Where ops run, and which are kept or repeated.
    schedule
        Is run instead of planning one.
    schedule_name
        Name of that schedule in messages.
    """

    constraints: ConstraintPatterns = field(default_factory=ConstraintPatterns)
    schedule: Schedule | None = None
    schedule_name: str = "the schedule"


def plan_training(
    training: TrainingStep,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    wishes: Wishes,
    on_progress: OnProgress | None = None,
) -> PlannedTraining:
    """Plan the training step so that every region's arena, state included, fits.

    What the machine reads outside the regions takes no arena bytes.

    Raises
    ------
    InvalidScheduleError
        If the schedule that `wishes` gives breaks a rule of the step.
    NoScheduleError
        If the regions are too small; it says what each one needs at least.
    UnsupportedModuleError
        If an op has no kernel.
    """
    lower = partial(
        lower_for_target,
        *(training.mod, machine.platform, machine.code, optimize, TRAIN_STEP, wishes.constraints),
    )
    lowered = lower()
    fixed = outside_views(lowered, machine.outside)
    prepared = TargetKernels(machine.code, optimize)
    divided = partial(lower, fuses_updates=False)
    function = forms_in_regions(lowered, divided, prepared, machine, fixed)
    whole = function.problem_of(lowered)
    if wishes.schedule is not None:
        form, plan = _plan_running(
            function, function.running(wishes.schedule), wishes.schedule, wishes.schedule_name
        )
        taken = Attempt(function, fixed, {})
    else:
        form, plan, taken = _plan_state(function, machine, fixed, options, on_progress)
    planned = _with_program(training, machine, form, plan, taken.fixed, taken.start_bytes)
    return replace(planned, keep_all_bytes=_keep_all_bytes(whole, machine))


def _plan_state(
    function: Forms,
    machine: Machine,
    fixed: Mapping[str, OutsideView],
    options: PlanOptions,
    on_progress: OnProgress | None,
) -> tuple[LoweredStep, Plan, Attempt]:
    """The step with state that is copied whole, or lies where its readers run in tiles."""
    copied = Attempt(function, fixed, {})

    def plan_whole(forms: Forms, options: PlanOptions) -> tuple[LoweredStep, Plan]:
        return plan_forms(
            forms,
            machine.platform.device(machine.first).budget_bytes,
            options,
            # The evaluation needs the bytes above the state in one piece.
            lambda problem, options, start: plan_in_regions(
                problem, options, on_progress, start, prefer_reserved_home=True
            ),
        )

    def in_place_of(first_bytes: int) -> Attempt | None:
        platform = machine.platform.with_budgets({machine.first: first_bytes})
        return _in_place(function, replace(machine, platform=platform), fixed)

    try:
        if (in_place := _in_place(function, machine, fixed)) is None:
            return *plan_whole(function, options), copied
        return better_plan(
            *(in_place, copied, options, plan_whole),
            lambda step, rest: plan_in_regions(
                step.problem, rest, on_progress, prefer_reserved_home=True
            ),
        )
    except NoScheduleError as error:
        if not machine.has_dma or (less := budgets_in_place(in_place_of, copied)) is None:
            raise
        raise NoScheduleError(
            f"{error}; in tiles these work: {format_budgets(less)}", is_proven=error.is_proven
        ) from error


def _in_place(
    function: Forms, machine: Machine, fixed: Mapping[str, OutsideView]
) -> Attempt | None:
    """The step with state at the begin of its region as far as its readers run in tiles; None without."""
    whole, divided, prepared = function.whole, function.divided, function.prepared
    copied = forms_in_regions(whole, divided, prepared, machine, fixed).problem_of(whole)
    if not (places := state_in_place(whole, machine, copied, prepared)):
        return None
    there: dict[str, Operand] = {**fixed, **places}
    align = machine.platform.alignment_bytes
    start = {place.device: end_of(places, align) for place in places.values()}
    sizes = {device.name: device.budget_bytes for device in machine.platform.devices}
    forms = forms_in_regions(whole, divided, prepared, machine, there, behind(sizes, start))
    return Attempt(forms, there, start)


def plan_as_planned(
    training: TrainingStep, machine: Machine, optimize: Optimize, planned: PlannedStep
) -> PlannedTraining:
    """The training step with the schedule of a plan for other devices, and kernels for a machine.

    Addresses are new, because kernels for the machine have other scratch memory, and what it
    reads outside the regions takes no arena bytes.

    Raises
    ------
    BudgetExceededError
        If the scratch memory of a kernel does not fit the budgets of the plan.
    """
    lowered = kernels_for_target(planned.lowered, machine.code, optimize)
    fixed = outside_views(lowered, machine.outside)
    function = Forms(
        lowered,
        lambda: lowered,
        TargetKernels(machine.code, optimize),
        lambda form: problem_of_plan(form, machine, fixed, planned.plan.problem),
    )
    schedule = without_variants(planned.plan.schedule)  # those of the machine have other names
    name = f"the plan, exported for {machine.target.name},"
    lowered, plan = _plan_running(function, lowered, schedule, name)
    return _with_program(training, machine, lowered, plan, fixed)


def _plan_running(
    function: Forms, form: LoweredStep, schedule: Schedule, name: str
) -> tuple[LoweredStep, Plan]:
    """A form and the plan of a schedule of it, with lean kernels where it names them or needs them."""
    if not any(isinstance(step, Compute) and step.variant for step in schedule.steps):
        try:
            return form, _plan_given(function.problem_of(form), schedule, name)
        except BudgetExceededError:
            if not (lean := function.with_variants(form)).lowered.variants:
                raise
    else:
        lean = function.with_variants(form)
    return lean.lowered, _plan_given(lean.problem, schedule, name)


def _plan_given(problem: Problem, schedule: Schedule, name: str) -> Plan:
    """The plan of a schedule; all state lies at the bottom of its arena where that fits."""
    try:
        return plan_given_schedule(problem, schedule, name, reserve_home=True)
    except BudgetExceededError:
        return plan_given_schedule(problem, schedule, name)


def _with_program(
    training: TrainingStep,
    machine: Machine,
    lowered: LoweredStep,
    plan: Plan,
    fixed: Mapping[str, Operand],
    start_bytes: Mapping[str, int] | None = None,
) -> PlannedTraining:
    problem = plan.problem
    program = make_step_program(lowered, plan, fixed=fixed, arena_start_bytes=start_bytes)
    state = {
        k: v
        for k, v in program.interface.inputs.items()
        if program.interface.roles[k] in machine.state_roles
    }
    end = dict.fromkeys(problem.platform.index, 0)
    for place in state.values():
        size = round_up(place.size_bytes, machine.platform.alignment_bytes)
        end[place.device] = max(end[place.device], place.offset_bytes + size)
    function = PlannedFunction(
        lowered, plan, program, values_in_flash(lowered, fixed, training.initial_state)
    )
    return PlannedTraining(function, state, end, _keep_all_bytes(problem, machine))


def _keep_all_bytes(problem: Problem, machine: Machine) -> int:
    first = machine.first
    return plan_keep_all(problem, first).arenas.arena_bytes[first]
