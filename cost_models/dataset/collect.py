"""Grow a dataset by walking networks in many sizes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm
from tvm.target import Target

from tvm_xengine.cost_models.corpus.variants import Variant
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import KernelSources, add_kernel
from tvm_xengine.cost_models.measure.boards import measure_on_boards
from tvm_xengine.cost_models.measure.caches import COLD, HOT
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.this_machine import (
    device_fingerprint,
    machine_of,
    remote_machine,
)
from tvm_xengine.cost_models.measure.timers import IsolatedTimer, passing_libraries
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import InvalidPlatformError, XEngineError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import AUTO, available_sources, prepare_from
from tvm_xengine.kernels.store.kernel_store import OnProgress
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.kernel_calls import kernels_called
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.training.build import build_training_step

_logger = logging.getLogger(__name__)

Device = tuple[Target, Sequence[str]]
"""A target, and where its kernels come from, the first that has one."""

_NOT_BUILT = (XEngineError, ValueError, TypeError, RuntimeError)
"""Errors of networks that cannot be built; the compiler raises the last three."""


@dataclass(frozen=True)
class CollectOptions:
    """What to collect.

    Attributes
    ----------
    targets
        Target descriptions, each a device.
    kernels
        Stop when so many are measured, those that were there before included.
    sources
        Where kernels come from, the first that has one; a target that a source does not compute
        for goes without it.
    most_flops
        Kernels that do more are left out: they take long and teach little more.
    boards
        Addresses of boards that measure, as `RpcTimer` takes them, all at once; none measure here. They
        have the targets in turn.
    """

    targets: tuple[str, ...]
    kernels: int
    sources: tuple[str, ...] = (AUTO,)
    effort: Effort = field(default_factory=Effort)
    most_flops: float = 1e8
    boards: tuple[str, ...] = ()


def collect(
    folder: DatasetFolder,
    variants: Iterable[Variant],
    options: CollectOptions,
    on_progress: OnProgress | None = None,
) -> int:
    """Measure the kernels of networks until there are enough; returns how many there are.

    Everything is on disk as soon as it is known: interrupting loses nothing, and a second call
    with equal arguments goes on where the first one stopped. A network that cannot be built is left
    out, and said so.

    Parameters
    ----------
    on_progress
        Called after each network with the number of kernels measured, the number wanted and what
        the network was.
    """
    measured = len(folder.measured())
    sources = KernelSources(folder.folder)
    devices = devices_of(options)
    places = _places(options)
    for variant in variants:
        if measured >= options.kernels:
            break
        try:
            kernels = training_kernels(variant, devices)
        except _NOT_BUILT as error:
            _logger.warning("%s is left out: %s", variant, str(error).partition("\n")[0])
            continue
        wanted: dict[str, list[DeviceKernel]] = {}
        missing = options.kernels - measured
        for kernel in kernels:
            for address, machine in places[str(kernel.target)].items():
                device = device_fingerprint(kernel.target, machine)
                is_known = all(
                    folder.measurements.find(kernel.key, device, caches) for caches in (COLD, HOT)
                )
                if not is_known and sum(map(len, wanted.values())) >= missing:
                    continue
                sources.add(kernel, device)
                families = (variant.family,)
                record = add_kernel(folder, kernel, device, families, machine, variant.text)
                if not is_known and record.flops <= options.most_flops:
                    wanted.setdefault(address, []).append(kernel)
        for caches in (COLD, HOT):
            _measure(wanted, folder, replace(options.effort, caches=caches))
        measured = len(folder.measured())
        if on_progress is not None:
            on_progress(measured, options.kernels, str(variant))
    return measured


_HERE = ""
"""Stands for this machine among the addresses of boards."""


def _places(options: CollectOptions) -> dict[str, dict[str, Machine]]:
    """For each target the machines that measure its kernels, by address."""
    targets = [resolve_target(description) for description in options.targets]
    if not options.boards:
        return {str(target): {_HERE: machine_of(target)} for target in targets}
    places: dict[str, dict[str, Machine]] = {str(target): {} for target in targets}
    for address, target in zip(options.boards, cycle(targets), strict=False):
        places[str(target)][address] = remote_machine(target, address)
    return places


def _measure(
    wanted: Mapping[str, Sequence[DeviceKernel]], folder: DatasetFolder, effort: Effort
) -> None:
    """Measure kernels here, or on the boards at their addresses."""
    if _HERE not in wanted:
        measure_on_boards(wanted, folder.measurements, effort=effort)
        return
    with TemporaryDirectory() as scratch:
        timer = IsolatedTimer(passing_libraries(Path(scratch)))
        measure_kernels(wanted[_HERE], folder.measurements, effort=effort, timer=timer)


def devices_of(options: CollectOptions) -> tuple[Device, ...]:
    """Each target with the sources that compute for it here."""
    targets = [(resolve_target(description), description) for description in options.targets]
    return tuple(
        (target, available_sources(options.sources, target, description))
        for target, description in targets
    )


def training_kernels(variant: Variant, devices: Sequence[Device]) -> list[DeviceKernel]:
    """The kernels of a network's training step, forward, backward and update, for each device.

    A device has those that one of its sources computes.
    """
    training = build_training_step(variant.build(), optimizer=variant.optimizer)
    lowered = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP)])(training.mod)
    names = kernels_called(lowered[TRAIN_STEP])
    kernels = []
    for target, sources in devices:
        for name in names:
            with suppress(InvalidPlatformError):  # none of its sources has this kernel
                kernels.append(prepare_from(sources, lowered[name], target, name))
    return kernels
