"""Simple cost models as baselines for learned ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction, point_prediction, spread_of

_LANE_BYTES = 4.0
"""A float32."""

_FARTHEST = 5.0
"""Standard deviations from the mean beyond which a line is not followed."""

_QUERIES_AT_ONCE = 512
"""Bounds the memory of the table of distances."""

_MOST_LEFT_OUT = 1000
"""Kernels drawn to calibrate the nearest neighbours: enough for quantiles of errors."""


@dataclass(frozen=True)
class Roofline:
    """max(flops / peak, bytes / bandwidth) + overhead (Williams et al., CACM 2009).

    The peak is proportional to a power of the vector width; the four constants are fitted to the
    measurements, which is friendlier than a data sheet.
    """

    name: str = "roofline"

    def fit(self, data: Dataset) -> RooflinePredictor:
        """Least squares of the logarithms."""
        from scipy.optimize import least_squares  # loads slowly, and who predicts does not fit

        log_time = np.log(data.time_us)

        def residuals(log_parameters: NDArray[np.float64]) -> NDArray[np.float64]:
            with np.errstate(over="ignore"):  # far out, from where the fit turns back
                return np.log(_roofline(log_parameters).time_us(data.table)) - log_time

        # 5 GFLOP/s for a scalar core, 5 GB/s, and half a microsecond.
        start = np.log([5e3, 5e3, 0.5, 0.5])
        found = least_squares(residuals, start, loss="soft_l1").x
        spread = spread_of(data.time_us, _roofline(found).time_us(data.table))
        return replace(_roofline(found), spread=spread)


def _roofline(log_parameters: NDArray[np.float64]) -> RooflinePredictor:
    flops, moved, overhead, exponent = (float(value) for value in np.exp(log_parameters))
    return RooflinePredictor(flops, moved, overhead, exponent, spread=0.0)


@dataclass(frozen=True)
class RooflinePredictor:
    """A fitted `Roofline`.

    Attributes
    ----------
    flops_per_us
        Of code without vectors.
    bytes_per_us, overhead_us, lane_exponent, spread
        The speed grows with ``lanes ** lane_exponent``; `spread` is that of the interval.
    """

    flops_per_us: float
    bytes_per_us: float
    overhead_us: float
    lane_exponent: float
    spread: float

    def time_us(self, table: FeatureTable) -> NDArray[np.float64]:
        """Expected times."""
        lanes = np.maximum(1.0, table.column("machine_vector_bytes") / _LANE_BYTES)
        threads = np.maximum(1.0, table.column("threads"))
        compute = table.flops / (self.flops_per_us * lanes**self.lane_exponent * threads)
        return np.asarray(
            np.maximum(compute, table.touched_bytes / self.bytes_per_us) + self.overhead_us
        )

    def predict(self, table: FeatureTable) -> Prediction:
        """The same with an interval."""
        return point_prediction(self.time_us(table), self.spread)


@dataclass(frozen=True)
class NearestNeighbours:
    """Mean rate of the most similar kernels.

    Attributes
    ----------
    neighbours
        Kernels that are averaged; chosen, as a baseline is not tuned.
    """

    neighbours: int = 3
    name: str = "nearest neighbours"

    def fit(self, data: Dataset) -> NearestNeighboursPredictor:
        """Remember everything; the interval is that of leaving one kernel out, for some drawn."""
        mean, scale = _scale(data.table.values)
        points = (data.table.values - mean) / scale
        rates = np.log(data.time_us / data.table.work)
        count = max(1, min(self.neighbours, len(data) - 1))
        rng = np.random.default_rng(0)
        drawn = rng.choice(len(data), size=min(_MOST_LEFT_OUT, len(data)), replace=False)
        near = _nearest(points, points[drawn], count, drawn if len(data) > 1 else None)
        spread = float(np.quantile(np.abs(rates[near].mean(axis=1) - rates[drawn]), 0.8))
        return NearestNeighboursPredictor(points, rates, mean, scale, count, spread)


@dataclass(frozen=True)
class NearestNeighboursPredictor:
    """A fitted `NearestNeighbours`; `points` are features in units of their spread."""

    points: NDArray[np.float64]
    rates: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    neighbours: int
    spread: float

    def predict(self, table: FeatureTable) -> Prediction:
        """The mean rate of the neighbours, times the work."""
        near = _nearest(self.points, (table.values - self.mean) / self.scale, self.neighbours)
        return point_prediction(table.work * np.exp(self.rates[near].mean(axis=1)), self.spread)


def _nearest(
    points: NDArray[np.float64],
    queries: NDArray[np.float64],
    count: int,
    themselves: NDArray[np.int_] | None = None,
) -> NDArray[np.int_]:
    """Rows of the points nearest to each query, (queries, count), leaving out `themselves`.

    By all distances, since no search tree helps in hundreds of dimensions.
    """
    squares = (points**2).sum(axis=1)
    found = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        # The square of the query is the same for all points.
        distance = squares - 2 * queries[part] @ points.T
        if themselves is not None:
            np.put_along_axis(distance, themselves[part, None], np.inf, axis=1)
        found.append(np.argpartition(distance, count - 1, axis=1)[:, :count])
    return np.concatenate(found)


@dataclass(frozen=True)
class LogLinear:
    """Ridge regression of the logarithm of the rate."""

    penalty: float = 1.0
    name: str = "log-linear"

    def fit(self, data: Dataset) -> LogLinearPredictor:
        """Solve the normal equations."""
        mean, scale = _scale(data.table.values)
        x = _within(data.table, mean, scale)
        rates = np.log(data.time_us / data.table.work)
        gram = x.T @ x + self.penalty * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, x.T @ (rates - rates.mean()))
        spread = float(np.quantile(np.abs(x @ weights + rates.mean() - rates), 0.8))
        limits = (float(rates.min() - 1), float(rates.max() + 1))
        return LogLinearPredictor(weights, float(rates.mean()), mean, scale, limits, spread)


@dataclass(frozen=True)
class LogLinearPredictor:
    """A fitted `LogLinear`; rates are kept within `limits`."""

    weights: NDArray[np.float64]
    offset: float
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    limits: tuple[float, float]
    spread: float

    def predict(self, table: FeatureTable) -> Prediction:
        """The linear rate, times the work."""
        rate = _within(table, self.mean, self.scale) @ self.weights + self.offset
        return point_prediction(table.work * np.exp(np.clip(rate, *self.limits)), self.spread)


def _within(
    table: FeatureTable, mean: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Features in standard deviations, of which none is far out; a feature that was constant is none."""
    return np.asarray(np.clip((table.values - mean) / scale, -_FARTHEST, _FARTHEST))


def _scale(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    spread = values.std(axis=0)
    return values.mean(axis=0), np.where(spread > 0, spread, 1.0)
