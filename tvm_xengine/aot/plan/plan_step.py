"""Plan a training step and its evaluation in the regions of one processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_xengine.aot.plan.forms import Forms, plan_forms
from tvm_xengine.aot.plan.in_place import Attempt, better_plan, budgets_in_place
from tvm_xengine.aot.plan.kernels import (
    LEAN,
    Optimize,
    TargetKernels,
    kernels_for_target,
    lower_for_target,
)
from tvm_xengine.aot.plan.region_problem import (
    Machine,
    outside_views,
    problem_of_plan,
    region_problem,
)
from tvm_xengine.aot.plan.slow_operands import (
    end_of,
    slow_op_costs,
    state_in_place,
    with_tiles,
)
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.lean.short_storage import ShortStorage, short_evaluation
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.errors import BudgetExceededError, NoScheduleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.passes.store_short import SHORT_TYPES
from tvm_xengine.planning.given_schedule import plan_given_schedule
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.planning.streams.in_time import as_it_runs
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import ArenaView, Operand, Outside, OutsideView, StepProgram
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, without_variants
from tvm_xengine.scheduling.sizes import format_budgets, round_up
from tvm_xengine.training.step import TrainingStep

Array = NDArray[np.generic]
OnProgress = Callable[[str], None]


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


@dataclass(frozen=True)
class PlannedFunction:
    """A function with its plan, its kernels and its straight-line program.

    Attributes
    ----------
    constants
        Values of the arrays in flash, by name.
    """

    lowered: LoweredStep
    plan: Plan
    program: StepProgram
    constants: Mapping[str, Array]

    @property
    def lean_kernels(self) -> int:
        """How many kernels are others than the usual ones, because these need more scratch memory."""
        return len({kernel for kernel, variant in self._variants if variant == LEAN})

    @property
    def tiled_kernels(self) -> int:
        """How many kernels run in tiles that are copied from and to slow memory meanwhile."""
        return len({kernel for kernel, variant in self._variants if variant != LEAN})

    @property
    def _variants(self) -> set[tuple[str, str]]:
        kernel_of = self.lowered.extraction.kernels
        runs = (step for step in self.plan.schedule.steps if isinstance(step, Compute))
        return {(kernel_of[run.op], run.variant) for run in runs if run.variant}

    @property
    def slices(self) -> int:
        """In so many slices of the batch it runs."""
        return self.lowered.slices


@dataclass(frozen=True)
class PlannedTraining:
    """A planned training step.

    Attributes
    ----------
    state
        Place of each state tensor, in order.
    state_end_bytes
        For each region, the end of the state in it: what must be kept between steps.
    keep_all_bytes
        Size of the first region's arena if all tensors were kept there, in slices only where a plan
        in slices is given.
    """

    function: PlannedFunction
    state: Mapping[str, ArenaView]
    state_end_bytes: Mapping[str, int]
    keep_all_bytes: int

    @property
    def layout(self) -> StateLayout:
        """The state as other functions find it."""
        graph = self.function.plan.problem.graph
        short = tuple(name for name in self.state if graph.tensor[name].dtype in SHORT_TYPES)
        return StateLayout(self.state, self.state_end_bytes, short=short)


@dataclass(frozen=True)
class StateLayout:
    """Where the state lies that all functions of a package share.

    Attributes
    ----------
    state
        Place of each state tensor, in order.
    state_end_bytes
        For each region, the end of the state in it: what must be kept between calls.
    sums
        Place of each sum of gradients, behind the state; empty where none are made.
    sums_end_bytes
        For each region, the end of state and sums.
    short
        Names of the state tensors that are kept in a short type.
    """

    state: Mapping[str, ArenaView]
    state_end_bytes: Mapping[str, int]
    sums: Mapping[str, ArenaView] = field(default_factory=dict)
    sums_end_bytes: Mapping[str, int] = field(default_factory=dict)
    short: tuple[str, ...] = ()

    @property
    def places(self) -> dict[str, ArenaView]:
        """Of state and sums."""
        return {**self.state, **self.sums}

    @property
    def end_bytes(self) -> Mapping[str, int]:
        """Where the memory begins that a call may use while state and sums are kept."""
        return self.sums_end_bytes or self.state_end_bytes


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
    function = _forms(lowered, divided, prepared, machine, fixed)
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
            lambda problem, options, start: _plan(
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
            lambda step, rest: _plan(step.problem, rest, on_progress, prefer_reserved_home=True),
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
    copied = _forms(whole, divided, prepared, machine, fixed).problem_of(whole)
    if not (places := state_in_place(whole, machine, copied, prepared)):
        return None
    there: dict[str, Operand] = {**fixed, **places}
    align = machine.platform.alignment_bytes
    start = {place.device: end_of(places, align) for place in places.values()}
    sizes = {device.name: device.budget_bytes for device in machine.platform.devices}
    forms = _forms(whole, divided, prepared, machine, there, _behind(sizes, start))
    return Attempt(forms, there, start)


def _forms(
    whole: LoweredStep,
    divided: Callable[[], LoweredStep],
    prepared: TargetKernels,
    machine: Machine,
    fixed: Mapping[str, Operand],
    sizes: Mapping[str, int] | None = None,
) -> Forms:
    """The forms of a function some of whose tensors are `fixed`, in regions of such sizes."""

    def problem_of(form: LoweredStep) -> Problem:
        costs = slow_op_costs(form, machine, fixed)
        return region_problem(form, machine, fixed, costs).with_budgets(sizes or {})

    return Forms(
        whole,
        divided,
        prepared,
        problem_of,
        lambda form: with_tiles(form, machine, fixed, prepared),
    )


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
        lowered, plan, program, _constants(lowered, fixed, training.initial_state)
    )
    return PlannedTraining(function, state, end, _keep_all_bytes(problem, machine))


def _keep_all_bytes(problem: Problem, machine: Machine) -> int:
    first = machine.first
    return plan_keep_all(problem, first).arenas.arena_bytes[first]


def plan_evaluation(
    model: ForwardModel,
    layout: StateLayout,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    storage: ShortStorage | None = None,
    taken_bytes: Mapping[str, int] | None = None,
    prefix: str = "eval_",
) -> PlannedFunction:
    """Plan the forward function in inference mode, next to the state.

    It reads the state where it is kept, and stores in a short type what `storage` says.

    Parameters
    ----------
    taken_bytes
        What other functions of the package take of each region.
    prefix
        Of the constants that lowering makes.

    Raises
    ------
    NoScheduleError
        If it does not fit.
    """
    mod, constants = short_evaluation(model, storage, layout.short)
    function = SharedFunction(mod, "main", {**model.state, **constants}, prefix)
    return plan_shared(function, layout, machine, optimize, options, taken_bytes or {})


@dataclass(frozen=True)
class SharedFunction:
    """A function that is planned next to state whose places are known.

    Attributes
    ----------
    values
        Values of what it reads in flash, by name.
    prefix
        Of the constants that lowering makes.
    """

    mod: tvm.IRModule
    name: str
    values: Mapping[str, Array]
    prefix: str


def plan_shared(
    function: SharedFunction,
    layout: StateLayout,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    taken_bytes: Mapping[str, int],
) -> PlannedFunction:
    """Plan a function that reads and writes the state where `layout` has it.

    Raises
    ------
    NoScheduleError
        If it does not fit behind state and sums.
    """
    lowered = lower_for_target(
        function.mod, machine.platform, machine.code, optimize, function.name
    )
    outside = outside_views(lowered, {*machine.outside, Role.CONSTANT}, function.prefix)
    used = {tensor.name for tensor in lowered.extraction.graph.bases}
    shared = {name: place for name, place in layout.places.items() if name in used}
    fixed: dict[str, Operand] = {**outside, **shared}
    sizes = {device.name: device.budget_bytes for device in machine.platform.devices}
    rest, taken = (_behind(limit, layout.end_bytes) for limit in (sizes, taken_bytes))
    forms = _forms(
        lowered,
        lambda: lowered,  # it updates nothing, or has no batch
        TargetKernels(machine.code, optimize),
        machine,
        fixed,
        rest,
    )
    try:
        lowered, plan = plan_forms(
            forms,
            min(rest[machine.first], taken[machine.first]),
            options,
            lambda problem, options, start: _plan_in_rest(
                problem, taken, machine.first, options, start
            ),
        )
    except NoScheduleError as error:
        kept = format_budgets({name: size for name, size in layout.end_bytes.items() if size})
        raise NoScheduleError(
            f"{function.prefix.rstrip('_')} does not fit behind {kept} of state, which come on top of"
            f" these sizes: {error}",
            is_proven=error.is_proven and _is_compact(layout, machine),
        ) from error
    program = make_step_program(lowered, plan, fixed=fixed, arena_start_bytes=layout.end_bytes)
    constants = _constants(lowered, fixed, function.values)
    return PlannedFunction(lowered, plan, program, constants)


def _is_compact(layout: StateLayout, machine: Machine) -> bool:
    """Whether state and sums take no more of the only region than their bytes."""
    align = machine.platform.alignment_bytes
    size = sum(round_up(place.size_bytes, align) for place in layout.places.values())
    return len(machine.platform.devices) == 1 and layout.end_bytes[machine.first] <= size


def _plan_in_rest(
    problem: Problem,
    taken_bytes: Mapping[str, int],
    first: str,
    options: PlanOptions,
    start: Schedule | None,
) -> Plan:
    """Plan in the bytes that other functions take anyway, or else in all bytes of the budgets."""
    keep = plan_keep_all(problem, first)
    rest_bytes = {device.name: device.budget_bytes for device in problem.platform.devices}
    for limit in (taken_bytes, rest_bytes):
        if keep.arenas.arena_bytes[first] <= limit[first]:
            return keep
        try:
            return _plan(problem.with_budgets(limit), options, None, start)
        except NoScheduleError as error:
            refused = error
    raise refused


def _behind(sizes: Mapping[str, int], start_bytes: Mapping[str, int]) -> dict[str, int]:
    """What is left of each region; at least a byte, because a budget of nothing is no budget."""
    return {name: max(sizes.get(name, 0) - used, 1) for name, used in start_bytes.items()}


def _plan(
    problem: Problem,
    options: PlanOptions,
    on_progress: OnProgress | None,
    start: Schedule | None = None,
    *,
    prefer_reserved_home: bool = False,
) -> Plan:
    sizes = {device.name: device.budget_bytes for device in problem.platform.devices}
    try:
        plan = plan_schedule(
            problem,
            options,
            on_progress,
            start=start,
            prefer_reserved_home=prefer_reserved_home,
        )
        return as_it_runs(plan, reserve_home=True) if prefer_reserved_home else plan
    except NoScheduleError as error:
        # Behind its first clause, which names options of other commands, the message has the reasons.
        reasons = str(error).partition("; ")[2].replace("--budget ", "")
        raise NoScheduleError(
            f"no schedule fits the regions {format_budgets(sizes)}; {reasons or error}",
            is_proven=error.is_proven,
        ) from error


def _constants(
    lowered: LoweredStep, fixed: Mapping[str, Operand], values: Mapping[str, Array]
) -> dict[str, Array]:
    """The values behind the constants outside the arenas."""
    known = {**values, **lowered.constants}
    return {
        place.name: np.asarray(known[name])
        for name, place in fixed.items()
        if isinstance(place, OutsideView) and place.kind is Outside.CONSTANT
    }
