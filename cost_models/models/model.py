"""The interface of cost models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import FeatureTable

CALL_US = 0.1
"""A lower bound on the time of calling a kernel; no prediction is below it."""


@dataclass(frozen=True)
class Prediction:
    """Predicted run times, (rows,), with an interval that should hold four times out of five."""

    time_us: NDArray[np.float64]
    lo_us: NDArray[np.float64]
    hi_us: NDArray[np.float64]

    @property
    def typical_us(self) -> NDArray[np.float64]:
        """The middle of each interval, in logarithms."""
        return np.asarray(np.sqrt(self.lo_us * self.hi_us), dtype=np.float64)

    def later(self, extra_us: NDArray[np.float64]) -> Prediction:
        """The same with a time added to each."""
        return Prediction(self.time_us + extra_us, self.lo_us + extra_us, self.hi_us + extra_us)

    def take(self, rows: Sequence[int]) -> Prediction:
        """These rows only."""
        return Prediction(self.time_us[rows], self.lo_us[rows], self.hi_us[rows])

    def with_rows(self, rows: Sequence[int], part: Prediction) -> Prediction:
        """The same with other predictions for some rows."""
        made = Prediction(self.time_us.copy(), self.lo_us.copy(), self.hi_us.copy())
        made.time_us[rows], made.lo_us[rows], made.hi_us[rows] = (
            part.time_us,
            part.lo_us,
            part.hi_us,
        )
        return made


class Predictor(Protocol):
    """A model that has learned."""

    def predict(self, table: FeatureTable) -> Prediction:
        """Run times of kernels it may never have seen."""


@runtime_checkable
class CostModel(Protocol):
    """A way to learn run times; frozen, so that the same one can learn from many datasets."""

    @property
    def name(self) -> str:
        """As tables call it."""

    def fit(self, data: Dataset) -> Predictor:
        """Learn from measured kernels."""


def point_prediction(time_us: NDArray[np.float64], spread: float) -> Prediction:
    """A prediction whose interval is a constant factor, ``exp(spread)``, up and down."""
    time_us = np.maximum(time_us, CALL_US)
    return Prediction(time_us, time_us * np.exp(-spread), time_us * np.exp(spread))


def spread_of(true_us: NDArray[np.float64], predicted_us: NDArray[np.float64]) -> float:
    """The factor, as its logarithm, within which four predictions out of five lie."""
    return float(np.quantile(np.abs(np.log(predicted_us / true_us)), 0.8))
