"""Grow a dataset by walking networks in many sizes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm

from tvm_xengine.codegen.device_kernel import DeviceKernel, TensorSpec, prepare_kernel
from tvm_xengine.codegen.targets import resolve_target
from tvm_xengine.cost_models.dataset import DatasetFolder, KernelRecord
from tvm_xengine.cost_models.feature_table import FEATURE_SET
from tvm_xengine.cost_models.features import kernel_features
from tvm_xengine.cost_models.fingerprint import device_fingerprint
from tvm_xengine.cost_models.measure import measure_kernels
from tvm_xengine.cost_models.timers import IsolatedTimer, passing_libraries
from tvm_xengine.cost_models.timing import Effort
from tvm_xengine.cost_models.variants import Variant
from tvm_xengine.errors import XEngineError
from tvm_xengine.extract import extract_graph
from tvm_xengine.passes.lower_to_kernels import LowerToKernels
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TRAIN_STEP

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CollectOptions:
    """What to collect.

    Attributes
    ----------
    targets
        Target descriptions, each a device.
    kernels
        Stop when so many are measured, those that were there before included.
    most_flops
        Kernels that do more are left out: they take long and teach little more.
    """

    targets: tuple[str, ...]
    kernels: int
    effort: Effort = field(default_factory=Effort)
    most_flops: float = 1e8


OnVariant = Callable[[int, int, str], None]


def collect(
    folder: DatasetFolder,
    variants: Iterable[Variant],
    options: CollectOptions,
    on_progress: OnVariant | None = None,
) -> int:
    """Measure the kernels of networks until there are enough; returns how many there are.

    Everything is on disk as soon as it is known: interrupting loses nothing, and a second call
    with equal arguments goes on where the first one stopped.

    Parameters
    ----------
    on_progress
        Called after each network with the number of kernels measured, the number wanted and what
        the network was.
    """
    measured = len(folder.measured())
    for variant in variants:
        if measured >= options.kernels:
            break
        try:
            kernels = training_kernels(variant, options.targets)
        except XEngineError as error:
            _logger.warning("%s is left out: %s", variant, error)
            continue
        wanted = [k for k in kernels if _add(folder, k, variant.family) <= options.most_flops]
        with TemporaryDirectory() as scratch:
            timer = IsolatedTimer(passing_libraries(Path(scratch)))
            measure_kernels(wanted, folder.measurements, effort=options.effort, timer=timer)
        measured = len(folder.measured())
        if on_progress is not None:
            on_progress(measured, options.kernels, str(variant))
    return measured


def training_kernels(variant: Variant, targets: Sequence[str]) -> list[DeviceKernel]:
    """The kernels of a network's training step, forward, backward and update, for each target."""
    training = build_training_step(variant.build(), optimizer=variant.optimizer)
    lowered = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP)])(training.mod)
    names = list(dict.fromkeys(extract_graph(lowered, TRAIN_STEP).kernels.values()))
    funcs = [(name, lowered[name]) for name in names]
    kernels = []
    for description in targets:
        target = resolve_target(description)
        kernels += [prepare_kernel(func, target, name) for name, func in funcs]
    return kernels


def _add(folder: DatasetFolder, kernel: DeviceKernel, family: str) -> float:
    """Remember what a kernel is; returns its arithmetic operations."""
    device = device_fingerprint(kernel.target)
    features = kernel_features(kernel)
    record = KernelRecord(
        kernel=kernel.key,
        device=device,
        target=str(kernel.target),
        name=kernel.name,
        families=(family,),
        shapes=f"{_describe(kernel.inputs)} -> {_describe(kernel.outputs)}",
        feature_set=FEATURE_SET,
        features=tuple(float(f"{value:.6g}") for value in features.values),
        work=features.work,
        flops=features.flops,
        moved_bytes=features.moved_bytes,
        workspace_bytes=kernel.workspace_bytes,
    )
    folder.add(record, features.names)
    return features.flops


def _describe(specs: Sequence[TensorSpec]) -> str:
    return " ".join(f"{spec.dtype}{list(spec.shape)}".replace(" ", "") for spec in specs)
