"""Lower a training step to kernel calls, with every kernel prepared for every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import tvm
from tvm import tirx

from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.hinted_places import pinned_by_hints
from tvm_xengine.compiler.prepared import PreparedKernels
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.store.kernel_store import OnProgress
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.passes.fusion.split_groups import KernelNeeds, SplitGroups
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.write_over_state import WriteOverState
from tvm_xengine.relax_ir.extract import Extraction, extract_graph
from tvm_xengine.relax_ir.hints import read_places
from tvm_xengine.relax_ir.signature import TRAIN_STEP, StepSignature, lifted_constants
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.value_range import ValueRange

if TYPE_CHECKING:
    from tvm_xengine.cluster.ranks import Ranks


@dataclass(frozen=True)
class LoweredStep:
    """A training step of kernel calls, with each kernel prepared for each device.

    Attributes
    ----------
    func_name
        The Relax function that is the step.
    kernels
        By (name of the PrimFunc, name of the device).
    constraints
        What every schedule of the step must respect.
    ranks
        The processes that hold the devices; None where this one holds all.
    cut
        Where the batch is cut; None where the step takes all of it at once.
    share_of
        The share of the batch that an op works on, or that an input is; what is not named is of all shares.
    inputs_in_slices
        For each input of the batch that the step takes in slices, the names of those.
    home
        Where state lies between steps, by name; what is not named is on the platform's home device.
    variants
        Other kernels that a run may take, by the key of `kernels` and a name.
    """

    mod: tvm.IRModule
    func_name: str
    extraction: Extraction
    platform: Platform
    kernels: Mapping[tuple[str, str], DeviceKernel]
    constraints: Constraints = field(default_factory=Constraints)
    ranks: Ranks | None = None
    cut: BatchCut | None = None
    share_of: Mapping[str, int] = field(default_factory=dict)
    inputs_in_slices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    home: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[tuple[str, str], Mapping[str, DeviceKernel]] = field(default_factory=dict)

    @property
    def slices(self) -> int:
        """In so many slices of the batch the step runs."""
        return 1 if self.cut is None else len(self.cut.samples)

    @cached_property
    def distinct(self) -> Sequence[DeviceKernel]:
        """Every kernel once."""
        variants = (kernel for named in self.variants.values() for kernel in named.values())
        return distinct_kernels([*self.kernels.values(), *variants])

    @property
    def results(self) -> Mapping[str, str]:
        """For each named result of the function, the tensor that holds it."""
        outputs = self.extraction.graph.outputs
        names = StepSignature.read(self.mod[self.func_name]).results or outputs
        return dict(zip(names, outputs, strict=True))

    @property
    def ranges(self) -> Mapping[str, ValueRange]:
        """Allowed values of integer inputs, by name."""
        return StepSignature.read(self.mod[self.func_name]).ranges

    @property
    def constants(self) -> Mapping[str, Array]:
        """Values of the constants that lowering has made parameters of, by name."""
        return lifted_constants(self.mod[self.func_name])

    def kernels_on(self, device: str) -> list[DeviceKernel]:
        """The kernels of a device, variants included."""
        return [
            kernel
            for key, usual in self.kernels.items()
            if key[1] == device
            for kernel in (usual, *self.variants.get(key, {}).values())
        ]

    def kernel(self, op: str, device: str, variant: str = "") -> DeviceKernel:
        """The kernel of an op on a device, or that variant of it."""
        key = self.extraction.kernels[op], device
        return self.variants[key][variant] if variant else self.kernels[key]


class KernelPreparation(Protocol):
    """Prepares kernels for the devices of a platform, and remembers them."""

    @property
    def needs(self) -> KernelNeeds:
        """Memory and time of a kernel, which decide whether a fusion pays."""

    def prepare(self, func: tirx.PrimFunc, device: str, name: str = "kernel") -> DeviceKernel:
        """The kernel `func` for a device; `name` appears in progress reports."""


def lower_step(
    mod: tvm.IRModule,
    platform: Platform,
    on_progress: OnProgress | None = None,
    *,
    func_name: str = TRAIN_STEP,
    tuned: TunedSchedules | None = None,
    constraints: ConstraintPatterns | None = None,
) -> LoweredStep:
    """Lower a function of `mod` to kernel calls, from the sources that each device names.

    The pool of threads that kernels may run on is started first (`thread_pool_size`).

    Parameters
    ----------
    tuned
        Schedules for generated kernels, used where they are faster than the built-in rules.
    constraints
        Where ops run, and which are kept or repeated.

    Raises
    ------
    UnsupportedModuleError
        If an op has no kernel or a shape is not static; it is named.
    InvalidProblemError
        If a pattern of `constraints` matches nothing that it can be used for.
    InvalidPlatformError
        If a device names unknown kernel sources, or only sources that are missing here.
    """
    thread_pool_size()
    prepared = PreparedKernels(platform, tuned)
    return lower_with(prepared, mod, platform, func_name, on_progress, constraints=constraints)


def lower_with(
    prepared: KernelPreparation,
    mod: tvm.IRModule,
    platform: Platform,
    func_name: str,
    on_progress: OnProgress | None = None,
    *,
    first: Sequence[tvm.ir.transform.Pass] = (),
    passes: Sequence[tvm.ir.transform.Pass] = (),
    constraints: ConstraintPatterns | None = None,
) -> LoweredStep:
    """Lower a function of `mod` to kernel calls with kernels that `prepared` makes.

    Fused kernels whose temporary memory enlarges the arena are split
    (:class:`SplitGroups`), and new state is written over the old (:class:`WriteOverState`). Hints
    in the function become constraints; those of `constraints` win over them.

    Parameters
    ----------
    first, passes
        Applied to the kernel calls, before they are split and last.
    constraints
        Where ops run, and which are kept or repeated.

    Raises
    ------
    UnsupportedModuleError
        If an op has no kernel or a shape is not static; it is named.
    """
    devices = [device.name for device in platform.computing]
    lowered = tvm.transform.Sequential([LowerToKernels(func_name), *first])(mod)
    if on_progress is not None:
        _prepare_all(prepared, lowered, devices, on_progress)
    after = [SplitGroups(func_name, prepared.needs), WriteOverState(func_name), *passes]
    lowered = tvm.transform.Sequential(after)(lowered)
    wishes = constraints or ConstraintPatterns()
    lowered = wishes.repeated(lowered, func_name)
    extraction = extract_graph(lowered, func_name, alignment_bytes=platform.alignment_bytes)
    kernels = {
        (name, device): prepared.prepare(lowered[name], device, name)
        for device in devices
        for name in dict.fromkeys(extraction.kernels.values())
    }
    hinted = pinned_by_hints(read_places(lowered[func_name]), extraction.graph, platform)
    found = wishes.of(extraction.graph, platform)
    found = replace(found, pinned={**hinted, **found.pinned})
    return LoweredStep(lowered, func_name, extraction, platform, kernels, found)


def _prepare_all(
    prepared: KernelPreparation,
    mod: tvm.IRModule,
    devices: Sequence[str],
    on_progress: OnProgress,
) -> None:
    symbols = [g for g, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)]
    wanted = [(symbol, device) for symbol in symbols for device in devices]
    for done, (symbol, device) in enumerate(wanted, 1):
        prepared.prepare(mod[symbol], device, symbol.name_hint)
        on_progress(done, len(wanted), symbol.name_hint)
