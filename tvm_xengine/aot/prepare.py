"""What every form of an export begins with: its functions planned, and the run of the self-test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from tvm import relax

from tvm_xengine.aot.check.batches import batch_inputs
from tvm_xengine.aot.check.reference import Expected, Trial, expected_results
from tvm_xengine.aot.check.single_samples import check_single_samples
from tvm_xengine.aot.entries import USUAL, Entry
from tvm_xengine.aot.package.contents import is_zero_bytes
from tvm_xengine.aot.package.names import package_name
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target
from tvm_xengine.aot.plan.plan_beside_state import SharedFunction, plan_evaluation, plan_shared
from tvm_xengine.aot.plan.plan_step import Wishes, plan_as_planned, plan_training
from tvm_xengine.aot.plan.planned import PlannedFunction, StateLayout
from tvm_xengine.aot.plan.region_problem import OUTSIDE, Machine
from tvm_xengine.aot.plan.regions import FLASH, Region, regions_platform, writable_platform
from tvm_xengine.aot.plan.state_layout import lay_out_state, with_sums
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.lean.short_storage import ShortStorage, with_short_storage
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.errors import ExportError, NoScheduleError
from tvm_xengine.frontends.batch import with_batch_size
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.program.step_program import Outside, OutsideView
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.relax_ir.types import Array, static_shape
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.solvers.result import Objective, StopReason
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.single_samples import SingleSamples, build_single_samples
from tvm_xengine.training.step import TrainingStep

OnProgress = Callable[[str], None]
OnPlan = Callable[[Plan], None]
"""Takes the plan of the training step when there is one."""

_ALIGNMENT_BYTES = {Backend.C: 8, Backend.LLVM: 64, Backend.VM: 64}
"""LLVM may use aligned vector loads; TVM's runtime aligns what it allocates so as well
(`kAllocAlignment` of its device API)."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes
    ----------
    regions
        Memory of the processor, fastest first; ``flash`` bounds constants and initial state.
    learning_rate
        Initial learning rate.
    selftest_steps
        Steps of the self-test.
    platform
        The regions once more as devices, with links and energy; None takes usual links.
    storage
        What is stored in a short type; None stores everything as it is computed.
    wishes
        Constraints on the schedule of the training step, or the schedule itself.
    entries
        Entry points of the package.
    layout
        For which build system its files are laid out (`package.layout.LAYOUTS`).
    evaluated
        What ``eval`` and ``infer`` compute, where that is not the model that is trained: the model without
        a loss that became a part of it.
    recipe
        How the training step was made; only ``accumulate`` and ``apply`` need it.
    """

    target: str
    regions: tuple[Region, ...]
    backend: Backend = Backend.C
    optimize: Optimize = Optimize.SPEED
    plan: PlanOptions = field(default_factory=PlanOptions)
    learning_rate: float = 0.01
    selftest_steps: int = 20
    platform: Platform | None = None
    storage: ShortStorage | None = None
    wishes: Wishes = field(default_factory=Wishes)
    entries: tuple[Entry, ...] = USUAL
    recipe: Recipe | None = None
    layout: str = "cmake"
    evaluated: ForwardModel | None = None


@dataclass(frozen=True)
class PreparedExport:
    """The functions of a package, planned in the memory of one machine.

    Attributes
    ----------
    model, training
        As they were given, everything stored as it is computed.
    stored
        The training step as it is exported.
    functions
        Its entry points.
    layout
        The state that they share.
    keep_all_bytes
        Size of the first region's arena if the training step kept all tensors there; None without one.
    single
        The functions over single samples; None where the package has none.
    """

    options: ExportOptions
    machine: Machine
    model: ForwardModel
    training: TrainingStep
    stored: TrainingStep
    functions: Mapping[Entry, PlannedFunction]
    layout: StateLayout
    keep_all_bytes: int | None
    single: SingleSamples | None = None

    @property
    def name(self) -> str:
        """Prefix of every file and C name."""
        return package_name(self.model.name)

    @property
    def evaluated(self) -> ForwardModel:
        """What evaluation and inference compute."""
        return self.options.evaluated or self.model

    @property
    def train(self) -> PlannedFunction:
        """The training step."""
        return self.functions[Entry.TRAIN_STEP]

    @property
    def evaluate(self) -> PlannedFunction:
        """The evaluation of a batch."""
        return self.functions[Entry.EVAL]

    @property
    def arena_bytes(self) -> dict[str, int]:
        """Bytes of each region that the functions take."""
        arenas = [f.program.interface.arena_bytes for f in self.functions.values()]
        return {region: max(arena[region] for arena in arenas) for region in arenas[0]}

    @property
    def constants(self) -> dict[str, Array]:
        """Values of the arrays in flash, by name."""
        functions = reversed(tuple(self.functions.values()))
        return {name: value for f in functions for name, value in f.constants.items()}

    @property
    def flash_bytes(self) -> int:
        """Bytes of constants and initial state in flash."""
        state = (np.asarray(self.stored.initial_state[name]) for name in self.layout.state)
        initial = (value for value in state if not is_zero_bytes(value))
        return sum(int(value.nbytes) for value in (*self.constants.values(), *initial))

    @cached_property
    def trial(self) -> Trial:
        """The run of the self-test."""
        output = _as_operand(outputs_of(self.model.main)[0].ty)
        types = {param.name: param.ty for param in self.training.function.params}
        batch = {name: _as_operand(types[name]) for name in self.training.batch_names}
        settings = dict.fromkeys(self.training.hyper_names, self.options.learning_rate)
        learns = any(entry.learns for entry in self.functions)
        steps = self.options.selftest_steps if learns else 0
        ranges = self.training.signature.ranges
        drawn = batch_inputs(batch, output, self.model.input_names, ranges)
        return Trial(drawn, settings, steps)

    @cached_property
    def expected(self) -> Expected:
        """What this machine computes in that run."""
        options = self.options
        return expected_results(
            self.evaluated, self.training, self.trial, options.optimize, options.storage
        )


def was_interrupted(prepared: PreparedExport) -> bool:
    """Whether an interrupt (Ctrl-C) has ended the search for a plan, which is the best one by then."""
    results = (function.plan.result for function in prepared.functions.values())
    return any(result.stopped_by is StopReason.INTERRUPTED for result in results)


def check_flash(prepared: PreparedExport) -> None:
    """Check that constants and initial state fit the region for them.

    Raises
    ------
    NoScheduleError
        If they do not.
    """
    needed = prepared.flash_bytes
    for region in prepared.options.regions:
        if region.name == FLASH and needed > region.size_bytes:
            raise NoScheduleError(
                f"constants and initial state take {needed} bytes of flash, more than the"
                f" {region.size_bytes} of the region {FLASH}"
            )


def prepare_export(
    model: ForwardModel,
    training: TrainingStep,
    options: ExportOptions,
    on_progress: OnProgress,
    on_plan: OnPlan = lambda _: None,
) -> PreparedExport:
    """Plan the training step and the evaluation, and compare single samples with a batch.

    Raises
    ------
    InvalidPlatformError
        If the target is unknown.
    InvalidScheduleError
        If a schedule is given that breaks a rule of the step.
    NoScheduleError
        If the regions are too small; it says what each one needs at least.
    UnsupportedModuleError
        If something cannot be emitted; it is named.
    """
    prepared = plan_export(model, training, options, on_progress, on_plan)
    check_samples(prepared, on_progress)
    return prepared


def check_samples(prepared: PreparedExport, on_progress: OnProgress) -> None:
    """Check that functions over single samples compute what a batch computes, where there are any.

    Raises
    ------
    UnsupportedModelError
        If they do not; the message says by how much.
    """
    if not _has_samples(prepared.options.entries):
        return
    on_progress("comparing single samples with a batch")
    model, training, single = prepared.model, prepared.training, prepared.single
    recipe = prepared.options.recipe
    if single is not None and recipe is not None:
        recipe = replace(recipe, optimizer=SGD(), groups=())
        trained = [name for name, role in training.roles.items() if role is Role.PARAMETER]
        single = build_single_samples(with_batch_size(model, 1), recipe, trained)
        training = build_step_by_recipe(model, recipe, trainable=trained)
    check_single_samples(prepared.evaluated, training, prepared.trial, single)


def plan_export(
    model: ForwardModel,
    training: TrainingStep,
    options: ExportOptions,
    on_progress: OnProgress,
    on_plan: OnPlan = lambda _: None,
) -> PreparedExport:
    """The same plans without that comparison, which runs the model."""
    machine = machine_of(options)
    storage, entries = options.storage, options.entries
    stored = stored_step(training, options)
    maker = _Maker(options, machine, model, training, storage, on_progress)
    keep_all_bytes: int | None = None
    functions: dict[Entry, PlannedFunction] = {}
    if Entry.TRAIN_STEP in entries:
        on_progress("planning the training step")
        planned = plan_training(
            stored, machine, options.optimize, options.plan, options.wishes, on_progress
        )
        on_plan(planned.function.plan)
        functions[Entry.TRAIN_STEP] = planned.function
        layout, keep_all_bytes = planned.layout, planned.keep_all_bytes
    else:
        layout = lay_out_state(maker.state_without_step(stored), machine)
    return maker.finished(stored, functions, layout, keep_all_bytes)


@dataclass(frozen=True)
class _Maker:
    """Plans what is planned beside the training step."""

    options: ExportOptions
    machine: Machine
    model: ForwardModel
    training: TrainingStep
    storage: ShortStorage | None
    on_progress: OnProgress

    def state_without_step(self, stored: TrainingStep) -> dict[str, Array]:
        """The state of a package that has no training step."""
        roles = stored.roles
        kept = {
            name: value
            for name, value in stored.initial_state.items()
            if roles[name] in self.machine.state_roles
        }
        if Entry.APPLY in self.options.entries:
            return kept
        wanted = (Role.PARAMETER, Role.STATISTIC)
        return {name: value for name, value in kept.items() if roles[name] in wanted}

    def finished(
        self,
        stored: TrainingStep,
        functions: Mapping[Entry, PlannedFunction],
        layout: StateLayout,
        keep_all_bytes: int | None,
    ) -> PreparedExport:
        """All entry points beside those that are planned."""
        options, made = self.options, dict(functions)
        single = None
        if Entry.ACCUMULATE in options.entries:
            single = self._single_samples(with_batch_size(self.model, 1))
            layout = with_sums(layout, self._zero_sums(single), self.machine)
        for entry in options.entries:
            if entry in made:
                continue
            self.on_progress(f"planning {entry.value}")
            taken = [f.program.interface.arena_bytes for f in made.values()]
            taken_bytes = {n: max((t[n] for t in taken), default=0) for n in layout.state_end_bytes}
            made[entry] = self._shared(entry, single, layout, taken_bytes)
        return PreparedExport(
            options,
            self.machine,
            self.model,
            self.training,
            stored,
            {entry: made[entry] for entry in options.entries},
            layout,
            keep_all_bytes,
            single,
        )

    def _single_samples(self, sample: ForwardModel) -> SingleSamples:
        if self.storage is not None:
            raise ExportError(
                "gradients of single samples are added up in float32: give no --float16 or --bfloat16"
                " with accumulate"
            )
        if self.options.recipe is None or self.options.recipe.micro_batches > 1:
            raise ExportError(
                "accumulate needs a step made of one loss, one optimizer and one batch"
            )
        trained = [name for name, role in self.training.roles.items() if role is Role.PARAMETER]
        return build_single_samples(sample, self.options.recipe, trained)

    def _zero_sums(self, single: SingleSamples) -> dict[str, Array]:
        state = self.training.initial_state
        return {name: np.zeros_like(state[param]) for param, name in single.sums.items()}

    def _shared(
        self,
        entry: Entry,
        single: SingleSamples | None,
        layout: StateLayout,
        taken_bytes: Mapping[str, int],
    ) -> PlannedFunction:
        options, machine = self.options, self.machine
        if entry in (Entry.EVAL, Entry.INFER):
            model = options.evaluated or self.model
            model = model if entry is Entry.EVAL else with_batch_size(model, 1)
            given = (model, layout, machine, options.optimize, options.plan)
            return plan_evaluation(*given, self.storage, taken_bytes, f"{entry.value}_")
        assert single is not None
        mod = single.accumulate if entry is Entry.ACCUMULATE else single.apply
        values = {**self.model.state, **single.constants, **self.training.initial_state}
        function = SharedFunction(mod, entry.value, values, f"{entry.value}_")
        return plan_shared(function, layout, machine, options.optimize, options.plan, taken_bytes)


def _as_operand(ty: relax.TensorType) -> OutsideView:
    return OutsideView(Outside.CALLER, "", static_shape(ty), str(ty.dtype))


def _has_samples(entries: tuple[Entry, ...]) -> bool:
    return any(entry.takes_one_sample for entry in entries)


def prepare_planned(
    model: ForwardModel, training: TrainingStep, planned: PlannedStep, options: ExportOptions
) -> PreparedExport:
    """Give a planned training step kernels for the target, and plan the evaluation beside it.

    Parameters
    ----------
    options
        Their regions, plan and wishes are for the evaluation only; the devices of the plan are
        the regions of the training step.

    Raises
    ------
    BudgetExceededError
        If the scratch memory of a kernel does not fit the budgets of the plan.
    InvalidPlatformError
        If the target is unknown.
    """
    target, platform = embedded_target(options.target), planned.plan.problem.platform
    machine = Machine(target, platform, {}, code_target(target, options.backend))
    train = plan_as_planned(training, machine, options.optimize, planned)
    made = _Maker(options, machine, model, training, None, lambda _: None)
    functions = {Entry.TRAIN_STEP: train.function}
    prepared = made.finished(training, functions, train.layout, train.keep_all_bytes)
    check_samples(prepared, made.on_progress)
    return prepared


def stored_step(training: TrainingStep, options: ExportOptions) -> TrainingStep:
    """The training step with everything stored as `options` say."""
    storage = options.storage
    return training if storage is None else with_short_storage(training, storage)


def machine_of(options: ExportOptions) -> Machine:
    """The processor that `options` name, with its memory.

    Raises
    ------
    InvalidPlatformError
        If the target is unknown.
    """
    target = embedded_target(options.target)
    is_vm = options.backend is Backend.VM
    code = code_target(target, Backend.LLVM if is_vm else options.backend)
    alignment_bytes = _ALIGNMENT_BYTES[options.backend]
    beside = options.plan.objective is Objective.MAKESPAN
    if options.platform is None:
        platform = regions_platform(options.regions, alignment_bytes, copies_beside=beside)
    else:
        platform = writable_platform(options.platform, alignment_bytes, copies_beside=beside)
    check_energy(platform, options.plan.objective)
    bandwidth = {
        region.name: region.bandwidth_gb_s
        for region in options.regions
        if region.bandwidth_gb_s is not None and region.name != platform.home
    }
    # Functions for the virtual machine take views into the arena, and nothing else.
    outside = frozenset[Role]() if is_vm else OUTSIDE
    has_dma = beside and options.backend is Backend.C
    return Machine(target, platform, bandwidth, code, outside, has_dma)
