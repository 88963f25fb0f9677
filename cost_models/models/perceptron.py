"""A small neural network, in the manner of NeuSight and TLP: features to a utilisation.

Needs scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction, point_prediction
from tvm_xengine.errors import InvalidDatasetError

_FARTHEST = 5.0
"""Standard deviations beyond which a feature says nothing more: networks extrapolate without bounds."""


@dataclass(frozen=True)
class Perceptron:
    """Two hidden layers that give the logarithm of time per work.

    Attributes
    ----------
    hidden
        Widths of the hidden layers; chosen, as a baseline is not tuned.
    """

    hidden: tuple[int, ...] = (128, 64)
    seed: int = 0
    name: str = "small neural network"

    def fit(self, data: Dataset) -> PerceptronPredictor:
        """Learn, with a tenth of the rows to stop early; they give the interval, too.

        Raises
        ------
        InvalidDatasetError
            When scikit-learn is missing.
        """
        try:
            from sklearn.neural_network import MLPRegressor
        except ImportError as error:
            raise InvalidDatasetError(
                "the small neural network needs scikit-learn; install it with pip install 'tvm-xengine[data]'"
            ) from error
        mean, spread = data.table.values.mean(axis=0), data.table.values.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        x, y = _scaled(data.table, mean, scale), np.log(data.time_us / data.table.work)
        kept = np.random.default_rng(self.seed).random(len(data)) > 0.1
        network = MLPRegressor(
            hidden_layer_sizes=self.hidden,
            early_stopping=True,
            max_iter=300,
            random_state=self.seed,
        ).fit(x[kept], y[kept] - y.mean())
        others = ~kept if (~kept).any() else kept
        errors = np.abs(network.predict(x[others]) + y.mean() - y[others])
        limits = (float(y.min() - 1), float(y.max() + 1))
        return PerceptronPredictor(
            network, mean, scale, float(y.mean()), limits, float(np.quantile(errors, 0.8))
        )


@dataclass(frozen=True)
class PerceptronPredictor:
    """A fitted `Perceptron`."""

    network: Any
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    offset: float
    limits: tuple[float, float]
    spread: float

    def predict(self, table: FeatureTable) -> Prediction:
        """The rate that the network gives, times the work."""
        rate = self.network.predict(_scaled(table, self.mean, self.scale)) + self.offset
        return point_prediction(table.work * np.exp(np.clip(rate, *self.limits)), self.spread)


def _scaled(
    table: FeatureTable, mean: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.clip((table.values - mean) / scale, -_FARTHEST, _FARTHEST)
