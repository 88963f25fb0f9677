"""Predicted costs of kernels."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tvm_xengine.cost_models.models
from tvm_xengine.cost_models.calibration.calibration import read_calibration
from tvm_xengine.cost_models.features.added import added_features, feature_set
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.table import FeatureTable, KernelFeatures, table_of
from tvm_xengine.cost_models.measure.caches import COLD
from tvm_xengine.cost_models.measure.garbage import collection_paused
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.measurements import default_cache_path
from tvm_xengine.cost_models.measure.this_machine import this_machine
from tvm_xengine.cost_models.models.baselines import RooflinePredictor
from tvm_xengine.cost_models.models.model import Predictor
from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.prior import correction_of, costs_of
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.targets import is_gpu, thread_count, vector_bytes
from tvm_xengine.scheduling.problem import CostSource, OpCost

if TYPE_CHECKING:
    from tvm_xengine.cost_models.models.model_file import ModelFile

TYPICAL_ROOFLINE = RooflinePredictor(
    flops_per_us=2500.0,
    bytes_per_us=5000.0,
    overhead_us=0.5,
    lane_exponent=0.7,
    spread=1.5,
)
"""A core of some GHz; for devices that no model knows. Its interval is a factor of 4.5."""

TYPICAL_GPU_ROOFLINE = RooflinePredictor(
    flops_per_us=2e6,
    bytes_per_us=3e5,
    overhead_us=8.0,
    lane_exponent=0.0,
    spread=2.0,
)
"""A GPU of some TFLOP/s with untuned kernels, and a launch. Its interval is a factor of 7."""

_LIBRARY_FLOPS_PER_US_AND_VECTOR_BYTE = 1000.0
"""Operations of one core per microsecond and byte of its vectors: a half of the peak at 2 GHz;
chosen."""

_LIBRARY_OVERHEAD_US = 3.0
"""Of a call with its memory objects; chosen."""

_SAME_FAMILY = {"AMD64": "x86_64", "arm64": "aarch64"}

SHIPPED_MODEL = Path(str(files(tvm_xengine.cost_models.models))) / "cpu.costmodel"
"""The model that comes with the package: ``tvm-xengine costs train -o cpu.costmodel`` makes it of the
labels that ship."""


def predict_costs(
    kernels: Sequence[DeviceKernel], model: ModelFile | None, caches: str = COLD
) -> dict[str, OpCost]:
    """For each kernel's symbol what it should cost in a state of the caches; nothing is compiled or run.

    Kernels for targets or of libraries that the model does not know, or all when there is no
    model, get a typical roofline, and say so in their source; so do those of a processor that
    the model has not learned from, whose intervals are wider.
    """
    return predict_to_correct(kernels, model, caches)[0]


def predict_by(predictor: Predictor, kernels: Sequence[DeviceKernel]) -> dict[str, OpCost]:
    """For each kernel's symbol what a model of somebody else says that it costs.

    Raises
    ------
    InvalidDatasetError
        If it does not give a time and an interval around it for each kernel.
    """
    distinct = distinct_kernels(kernels)
    answer = predictor.predict(_features(distinct))
    columns = [np.asarray(getattr(answer, name)) for name in ("lo_us", "time_us", "hi_us")]
    if any(column.shape != (len(distinct),) for column in columns):
        found = ", ".join(str(column.shape) for column in columns)
        raise InvalidDatasetError(
            f"expected the cost model to predict {len(distinct)} times with lower and upper ends, got"
            f" arrays of the shapes {found}"
        )
    lo_us, time_us, hi_us = columns
    fits = (
        np.isfinite(hi_us) & (time_us > 0) & (lo_us >= 0) & (lo_us <= time_us) & (time_us <= hi_us)
    )
    if not fits.all():
        at = int(np.flatnonzero(~fits)[0])
        raise InvalidDatasetError(
            "expected the cost model to predict 0 <= lo_us <= time_us <= hi_us, finite and time_us > 0,"
            f" got {lo_us[at]}, {time_us[at]}, {hi_us[at]} for the kernel {distinct[at].name}"
        )
    sources = [CostSource.PREDICTED] * len(distinct)
    return costs_of([kernel.symbol for kernel in distinct], answer, sources)


def predict_to_correct(
    kernels: Sequence[DeviceKernel], model: ModelFile | None, caches: str = COLD
) -> tuple[dict[str, OpCost], Correction | None]:
    """The same, and what corrects the model's predictions by kernels that are measured later."""
    distinct = distinct_kernels(kernels)
    costs: dict[str, OpCost] = {}
    known: list[DeviceKernel] = []
    on_gpu: list[DeviceKernel] = []
    on_cpu: list[DeviceKernel] = []
    for kernel in distinct:
        if model is not None and knows(model, kernel):
            known.append(kernel)
        elif kernel.library is not None:
            costs[kernel.symbol] = _library_cost(kernel)
        else:
            (on_gpu if is_gpu(kernel.target) else on_cpu).append(kernel)
    costs |= _roofline(on_gpu, TYPICAL_GPU_ROOFLINE) | _roofline(on_cpu, TYPICAL_ROOFLINE)
    if model is None or not known:
        return costs, None
    symbols = tuple(kernel.symbol for kernel in known)
    groups = tuple(f"{kernel.target} {kernel.source}" for kernel in known)
    targets = [str(kernel.target) for kernel in known]
    correction = correction_of(model, symbols, groups, targets, _features(known), caches)
    return {**costs, **correction.predicted}, correction


def knows(model: ModelFile, kernel: DeviceKernel) -> bool:
    """Whether the model has learned from kernels of this source for this kind of processor."""
    is_known = architecture_of(str(kernel.target)) in model.architectures
    return is_known and kernel.source in model.sources


def default_model() -> ModelFile | None:
    """The model that comes with the package, as this machine calibrates it; None in a checkout without."""
    if not SHIPPED_MODEL.exists():
        return None
    path = calibration_path()
    found = read_calibration(path) if path.exists() else None
    return replace(_shipped_model(SHIPPED_MODEL), calibration=found)


@cache
def _shipped_model(path: Path) -> ModelFile:
    """Read once: it takes half a second, and every form of a step is predicted."""
    from tvm_xengine.cost_models.models.model_file import (
        read_model,  # its trees' library loads slowly
    )

    return read_model(path)


def calibration_path() -> Path:
    """The file of this machine's calibration in the user's cache."""
    return default_cache_path().parent / "machines" / f"{this_machine().key}.json"


def _roofline(kernels: Sequence[DeviceKernel], roofline: RooflinePredictor) -> dict[str, OpCost]:
    if not kernels:
        return {}
    symbols = [kernel.symbol for kernel in kernels]
    sources = [CostSource.ROOFLINE] * len(kernels)
    return costs_of(symbols, roofline.predict(_features(kernels)), sources)


def _features(kernels: Sequence[DeviceKernel]) -> FeatureTable:
    # What other packages add may depend on more than a kernel's code.
    features = kernel_features if added_features() else _known_features
    with collection_paused():
        return table_of([features(kernel) for kernel in kernels], feature_set())


@dataclass(frozen=True, eq=False)
class _ByCode:
    """A kernel that equals every other with the same code for the same target."""

    kernel: DeviceKernel

    def __hash__(self) -> int:
        return hash(self.kernel.symbol)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByCode) and self.kernel.symbol == other.kernel.symbol


def _known_features(kernel: DeviceKernel) -> KernelFeatures:
    return _features_of_code(_ByCode(kernel), this_machine())


@lru_cache(maxsize=1024)
def _features_of_code(code: _ByCode, machine: Machine) -> KernelFeatures:
    """Half of the kernels that a plan asks for are those of its other forms; each takes 3 ms.

    As many are kept as of lowered kernels, which this keeps alive.
    """
    return kernel_features(code.kernel, machine)


def _library_cost(kernel: DeviceKernel) -> OpCost:
    """A roofline: libraries come near the peak that the width of the vectors promises."""
    rate = _LIBRARY_FLOPS_PER_US_AND_VECTOR_BYTE * vector_bytes(kernel.target)
    moved_bytes = sum(spec.size_bytes for spec in (*kernel.inputs, *kernel.outputs))
    moved_bytes += kernel.workspace_bytes
    arithmetic_us = kernel.library_flops / (rate * thread_count(kernel.target))
    memory_us = moved_bytes / TYPICAL_ROOFLINE.bytes_per_us
    time_us = max(arithmetic_us, memory_us) + _LIBRARY_OVERHEAD_US
    factor = math.exp(TYPICAL_ROOFLINE.spread)
    return OpCost(
        time_us, interval_us=(time_us / factor, time_us * factor), source=CostSource.ROOFLINE
    )


def architecture_of(target: str) -> str:
    """The kind of a target (as JSON) and its processor family, this machine's where none is named."""
    description = json.loads(target)
    family = str(description.get("mtriple", platform.machine())).partition("-")[0]
    return f"{description['kind']} {_SAME_FAMILY.get(family, family)}"
