"""What every form of an export begins with: both functions planned, and the run of the self-test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from tvm_xengine.aot.check.batches import batch_inputs
from tvm_xengine.aot.check.reference import Expected, Trial, expected_results
from tvm_xengine.aot.package.names import package_name
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target
from tvm_xengine.aot.plan.plan_step import (
    PlannedFunction,
    PlannedTraining,
    Wishes,
    plan_as_planned,
    plan_evaluation,
    plan_training,
)
from tvm_xengine.aot.plan.region_problem import OUTSIDE, Machine
from tvm_xengine.aot.plan.regions import Region, regions_platform, writable_platform
from tvm_xengine.aot.targets import EmbeddedTarget, embedded_target
from tvm_xengine.compiler.energy import check_energy
from tvm_xengine.compiler.plan import PlannedStep
from tvm_xengine.compiler.short_storage import ShortStorage, with_short_storage
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.program.step_program import Operand, StepProgram
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.training.step import TrainingStep

OnProgress = Callable[[str], None]

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


@dataclass(frozen=True)
class PreparedExport:
    """A training step and its evaluation, planned in the memory of one machine.

    Attributes
    ----------
    model, training
        As they were given, everything stored as it is computed.
    stored
        The training step as it is exported.
    """

    options: ExportOptions
    machine: Machine
    model: ForwardModel
    training: TrainingStep
    stored: TrainingStep
    train: PlannedTraining
    evaluate: PlannedFunction

    @property
    def name(self) -> str:
        """Prefix of every file and C name."""
        return package_name(self.model.name)

    @property
    def arena_bytes(self) -> dict[str, int]:
        """Bytes of each region that either function takes."""
        arenas = [f.program.interface.arena_bytes for f in (self.train.function, self.evaluate)]
        return {region: max(arena[region] for arena in arenas) for region in arenas[0]}

    @cached_property
    def trial(self) -> Trial:
        """The run of the self-test."""
        batch, data = (_batch(f.program) for f in (self.train.function, self.evaluate))
        (output,) = self.evaluate.program.interface.results.values()
        settings = dict.fromkeys(self.training.hyper_names, self.options.learning_rate)
        return Trial(batch_inputs(batch, output, data), settings, self.options.selftest_steps)

    @cached_property
    def expected(self) -> Expected:
        """What this machine computes in that run."""
        options = self.options
        return expected_results(
            self.model, self.training, self.trial, options.optimize, options.storage
        )


def _batch(program: StepProgram) -> dict[str, Operand]:
    interface = program.interface
    places: dict[str, Operand] = {**interface.inputs, **interface.outside}
    return {name: places[name] for name, r in interface.roles.items() if r is Role.BATCH}


def prepare_export(
    model: ForwardModel, training: TrainingStep, options: ExportOptions, on_progress: OnProgress
) -> PreparedExport:
    """Plan the training step and the evaluation.

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
    machine = _machine(embedded_target(options.target), options)
    storage, plan = options.storage, options.plan
    on_progress("planning the training step")
    stored = training if storage is None else with_short_storage(training, storage)
    train = plan_training(stored, machine, options.optimize, plan, options.wishes, on_progress)
    on_progress("planning the evaluation")
    evaluate = plan_evaluation(model, train, machine, options.optimize, plan, storage)
    return PreparedExport(options, machine, model, training, stored, train, evaluate)


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
    evaluate = plan_evaluation(model, train, machine, options.optimize, options.plan)
    return PreparedExport(options, machine, model, training, training, train, evaluate)


def _machine(target: EmbeddedTarget, options: ExportOptions) -> Machine:
    is_vm = options.backend is Backend.VM
    code = code_target(target, Backend.LLVM if is_vm else options.backend)
    alignment_bytes = _ALIGNMENT_BYTES[options.backend]
    if options.platform is None:
        platform = regions_platform(options.regions, alignment_bytes)
    else:
        platform = writable_platform(options.platform, alignment_bytes)
    check_energy(platform, options.plan.objective)
    bandwidth = {
        region.name: region.bandwidth_gb_s
        for region in options.regions
        if region.bandwidth_gb_s is not None and region.name != platform.home
    }
    # Functions for the virtual machine take views into the arena, and nothing else.
    outside = frozenset[Role]() if is_vm else OUTSIDE
    return Machine(target, platform, bandwidth, code, outside)
