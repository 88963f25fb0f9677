"""The temporary memory of a library call that cannot be asked: a typical amount, and an upper bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.dataset.quantities import ALIGNMENT_BYTES
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction

_SIZES = ("log_library_size0", "log_library_size1", "log_library_size2")
"""Of the two inputs and the result, in elements."""

_OPTIONS = tuple(
    f"library_{option}"
    for option in (
        *("bias", "relu", "residual", "conv", "linear", "matmul", "softmax", "norm", "pool"),
        *("data", "weight", "forward", "backward", "gradient", "batch", "add", "elementwise"),
    )
)
"""What a call is, and what it does beside."""

_ELEMENT_BYTES = 4
"""A float32."""

_PADDED_RATIO = 1.25
"""Blocks of channels are filled up with zeros, and results have partial sums beside them. Of 1.1, 1.25 and
1.5 the smallest whose bound held for `_HELD` of the calls of held-out families, locked ones apart."""

_HELD = 0.95
"""Share of calls at or below the bound."""


@dataclass(frozen=True)
class CallMemory:
    """A library copies the tensors of some calls into another layout, in temporary memory.

    The typical value is the size of all tensors, or the median of calls of the same kind where that is
    nearer: most convolutions copy their tensors, most matrix products read them in place. The bound is
    the size of all tensors with padding, and a constant; it is enough for `_HELD` of the calls that it
    learned from.
    """

    name: str = "copies of tensors"

    def fit(self, data: Dataset) -> CallMemoryPredictor:
        """Learn from `memory_of_calls`."""
        copied = ALIGNMENT_BYTES + _tensors_bytes(data.table)
        beside = data.time_us - _PADDED_RATIO * _tensors_bytes(data.table)
        level = min(1.0, _HELD * (len(data) + 1) / len(data))
        amounts = {}
        kinds = np.array(_kinds(data.table))
        for kind in sorted(set(kinds)):
            rows = np.flatnonzero(kinds == kind)
            amount = float(np.median(data.time_us[rows]))
            if _error(data.time_us[rows], amount) < _error(data.time_us[rows], copied[rows]):
                amounts[str(kind)] = amount
        most_bytes = max(float(ALIGNMENT_BYTES), float(np.quantile(beside, level)))
        return CallMemoryPredictor(most_bytes, amounts)


@dataclass(frozen=True)
class CallMemoryPredictor:
    """Fitted `CallMemory`.

    Attributes
    ----------
    amounts_bytes
        The median of each kind of call where it is nearer than the size of all tensors.
    """

    beside_bytes: float
    amounts_bytes: Mapping[str, float]

    def predict(self, table: FeatureTable) -> Prediction:
        """Bytes, with nothing and the bound as the ends of the interval."""
        tensors_bytes = _tensors_bytes(table)
        copied = ALIGNMENT_BYTES + tensors_bytes
        amounts = [self.amounts_bytes.get(kind, np.nan) for kind in _kinds(table)]
        typical = np.where(np.isnan(amounts), copied, amounts)
        most = _PADDED_RATIO * tensors_bytes + self.beside_bytes
        least = np.full(len(table), float(ALIGNMENT_BYTES))
        return Prediction(typical, least, np.maximum(most, typical))


def _error(known: NDArray[np.float64], said: NDArray[np.float64] | float) -> float:
    return float(np.median(np.abs(said / known - 1)))


def _kinds(table: FeatureTable) -> list[str]:
    """For each call, what it is: its features that are either true or not."""
    names = [name for name in table.names if name.startswith(_OPTIONS)]
    columns = [table.column(name) > 0 for name in names]
    calls = zip(*columns, strict=True) if columns else [()] * len(table)
    return [" ".join(np.array(names)[list(call)]) for call in calls]


def _tensors_bytes(table: FeatureTable) -> NDArray[np.float64]:
    elements = sum(2.0 ** table.column(name) - 1 for name in _SIZES)
    return np.asarray(_ELEMENT_BYTES * elements, dtype=np.float64)
