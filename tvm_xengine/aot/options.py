"""What is asked of an export, and the machine that it names."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_xengine.aot.entries import USUAL, Entry
from tvm_xengine.aot.package.names import check_package_name
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target
from tvm_xengine.aot.plan.plan_step import Wishes
from tvm_xengine.aot.plan.region_problem import OUTSIDE, Machine
from tvm_xengine.aot.plan.regions import Region, regions_platform, writable_platform
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.lean.short_storage import ShortStorage, with_short_storage
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.solvers.result import Objective
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep

_ALIGNMENT_BYTES = {Backend.C: 8, Backend.LLVM: 64, Backend.VM: 64}
"""LLVM may use aligned vector loads; TVM's runtime aligns what it allocates so as well
(`kAllocAlignment` of its device API)."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes
    ----------
    regions
        Memory of the processor, fastest first; ``flash`` bounds constants, initial state
        and code, as far as the target's compiler is installed.
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
    name
        Prefix of files and C names, a C identifier in lower case; None follows the model's name.

    Raises
    ------
    ExportError
        If the name is none.
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
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_package_name(self.name)


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
