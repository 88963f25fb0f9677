"""The temporary memory of a library call that cannot be asked: a typical amount, and an upper bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.dataset.quantities import ALIGNMENT_BYTES
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction

_SIZES = ("log_library_size0", "log_library_size1", "log_library_size2")
"""Of the two inputs and the result, in elements."""

_ELEMENT_BYTES = 4
"""A float32."""

_PADDED_RATIO = 1.25
"""Blocks of channels are filled up with zeros, and results have partial sums beside them. Of 1.1, 1.25 and
1.5 it was chosen on the calls of families that are not locked."""

_HELD = 0.95
"""Share of calls at or below the bound."""


@dataclass(frozen=True)
class CallMemory:
    """A library lays the tensors of a call out otherwise, in temporary memory.

    Typical is a copy of each. The bound is one of each with padding, and what the calls that it learned from
    need beside them, all but one of twenty.
    """

    name: str = "copies of all tensors"

    def fit(self, data: Dataset) -> CallMemoryPredictor:
        """Learn from `memory_of_calls`."""
        beside = data.time_us - _PADDED_RATIO * _tensors_bytes(data.table)
        level = min(1.0, _HELD * (len(data) + 1) / len(data))
        return CallMemoryPredictor(max(float(ALIGNMENT_BYTES), float(np.quantile(beside, level))))


@dataclass(frozen=True)
class CallMemoryPredictor:
    """Fitted `CallMemory`."""

    beside_bytes: float

    def predict(self, table: FeatureTable) -> Prediction:
        """Bytes, with nothing and the bound as the ends of the interval."""
        tensors_bytes = _tensors_bytes(table)
        typical = ALIGNMENT_BYTES + tensors_bytes
        most = _PADDED_RATIO * tensors_bytes + self.beside_bytes
        least = np.full(len(table), float(ALIGNMENT_BYTES))
        return Prediction(typical, least, np.maximum(most, typical))


def _tensors_bytes(table: FeatureTable) -> NDArray[np.float64]:
    elements = sum(2.0 ** table.column(name) - 1 for name in _SIZES)
    return np.asarray(_ELEMENT_BYTES * elements, dtype=np.float64)
