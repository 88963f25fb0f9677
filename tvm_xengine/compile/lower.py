"""Lower a training step to kernel calls, with every kernel prepared for every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import tvm
from tvm import tirx

from tvm_xengine.compile.prepared import PreparedKernels
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.store.kernel_store import OnProgress
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.kernels.thread_pool import thread_pool_size
from tvm_xengine.passes.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.split_groups import KernelNeeds, SplitGroups
from tvm_xengine.relax_ir.extract import Extraction, extract_graph
from tvm_xengine.relax_ir.signature import TRAIN_STEP, StepSignature, lifted_constants
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.value_range import ValueRange


@dataclass(frozen=True)
class LoweredStep:
    """A training step of kernel calls, with each kernel prepared for each device.

    Attributes
    ----------
    func_name
        The Relax function that is the step.
    kernels
        By (name of the PrimFunc, name of the device).
    """

    mod: tvm.IRModule
    func_name: str
    extraction: Extraction
    platform: Platform
    kernels: Mapping[tuple[str, str], DeviceKernel]

    @cached_property
    def distinct(self) -> Sequence[DeviceKernel]:
        """Every kernel once."""
        return distinct_kernels(self.kernels.values())

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

    def kernel(self, op: str, device: str) -> DeviceKernel:
        """The kernel of an op on a device."""
        return self.kernels[self.extraction.kernels[op], device]


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
) -> LoweredStep:
    """Lower a function of `mod` to kernel calls, from the sources that each device names.

    The pool of threads that kernels may run on is started first (`thread_pool_size`).

    Parameters
    ----------
    tuned
        Schedules for generated kernels, used where they are faster than the built-in rules.

    Raises
    ------
    UnsupportedModuleError
        If an op has no kernel or a shape is not static; it is named.
    InvalidPlatformError
        If a device names unknown kernel sources, or only sources that are missing here.
    """
    thread_pool_size()
    return lower_with(PreparedKernels(platform, tuned), mod, platform, func_name, on_progress)


def lower_with(
    prepared: KernelPreparation,
    mod: tvm.IRModule,
    platform: Platform,
    func_name: str,
    on_progress: OnProgress | None = None,
    *,
    passes: Sequence[tvm.ir.transform.Pass] = (),
) -> LoweredStep:
    """Lower a function of `mod` to kernel calls with kernels that `prepared` makes.

    Fused kernels whose temporary memory makes the arena larger are taken apart
    (:class:`SplitGroups`).

    Parameters
    ----------
    passes
        Applied to the kernel calls last.

    Raises
    ------
    UnsupportedModuleError
        If an op has no kernel or a shape is not static; it is named.
    """
    devices = [device.name for device in platform.computing]
    lowered = tvm.transform.Sequential([LowerToKernels(func_name)])(mod)
    if on_progress is not None:
        _prepare_all(prepared, lowered, devices, on_progress)
    lowered = tvm.transform.Sequential([SplitGroups(func_name, prepared.needs), *passes])(lowered)
    extraction = extract_graph(lowered, func_name, alignment_bytes=platform.alignment_bytes)
    kernels = {
        (name, device): prepared.prepare(lowered[name], device, name)
        for device in devices
        for name in dict.fromkeys(extraction.kernels.values())
    }
    return LoweredStep(lowered, func_name, extraction, platform, kernels)


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
