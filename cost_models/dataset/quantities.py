"""Datasets of energy and of the memory of library calls, for the same models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tvm_xengine.cost_models.dataset.dataset import TIR, Dataset
from tvm_xengine.cost_models.features.table import STAGES, FeatureTable
from tvm_xengine.errors import InvalidDatasetError

ALIGNMENT_BYTES = 64
"""Added to memory, so that a call that needs none has a logarithm, too."""

MEMORY = "memory"

_SIZES = ("log_inputs_bytes", "log_outputs_bytes")


def energy_of_kernels(data: Dataset) -> Dataset:
    """The kernels whose energy was measured; labels in microjoules per call.

    Raises
    ------
    InvalidDatasetError
        When there are none.
    """
    rows = np.flatnonzero(data.energy_uj > 0)
    if not len(rows):
        raise InvalidDatasetError(
            "expected measurements with energy_uj > 0, found none; this machine's timers do not"
            " measure energy, so add them to measurements.jsonl from a board's meter"
        )
    part = data.take(rows)
    return _labelled(part, part.energy_uj)


def memory_of_calls(data: Dataset) -> Dataset:
    """The kernels that a library computes; labels are `ALIGNMENT_BYTES` + bytes of workspace.

    The exact number is known for every library that we call, and plans use that. This is for
    libraries that do not say, and to see how well such a guess would do: features that know the
    workspace, or what the library will run, are left out, and the unit of the rate is a byte of
    inputs and outputs.

    Raises
    ------
    InvalidDatasetError
        When there are none.
    """
    rows = [row for row, source in enumerate(data.sources) if source != TIR]
    if not rows:
        raise InvalidDatasetError(
            "expected kernels of a library, found none; collect some with tvm-xengine costs"
            " collect --sources onednn tir"
        )
    part = data.take(rows)
    names = [
        name
        for name in part.table.names
        if ("library" in name and STAGES not in name) or name in _SIZES
    ]
    table = FeatureTable(
        feature_set=part.table.feature_set,
        names=tuple(names),
        values=np.stack([part.table.column(name) for name in names], axis=1),
        work=np.maximum(1.0, part.table.moved_bytes),
        flops=part.table.flops,
        moved_bytes=part.table.moved_bytes,
    )
    return _labelled(replace(part, table=table), ALIGNMENT_BYTES + part.workspace_bytes)


def _labelled(data: Dataset, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Dataset:
    return replace(
        data,
        time_us=values,
        noise_ratio=np.zeros(len(data)),
        hot_us=np.full(len(data), np.nan),
        rounds_us=tuple((float(value), float(value)) for value in values),
    )


QUANTITIES: Mapping[str, Callable[[Dataset], Dataset]] = {
    "time": lambda data: data,
    "energy": energy_of_kernels,
    MEMORY: memory_of_calls,
}
"""What can be learned; memory is never taken from a model where it is known."""
