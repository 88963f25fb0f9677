"""Widths of intervals, and the mean over the typical time, from errors on held-out kernels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.models.model import Prediction

SIZE_LIMITS_US = (20.0, 500.0)
"""Intervals are calibrated apart for kernels that are predicted shorter, between and longer."""

_LEAST_RESIDUALS = 50
"""Errors that a quantile of an interval needs; with fewer all errors are taken together."""

_LARGEST_RATIO = 2.0
"""Held-out kernels that are further off say nothing of the mean of others."""

COVERED_DEVIATIONS = 1.2816
"""Half an interval that holds four times out of five, in standard deviations."""

COMMON_TRANSFER_DEVIATION = 0.2
"""What the logarithms of all errors have in common on a processor that a model has not learned from. Fitted
on one pair of processors, from a Rocket Lake to a Zen 4."""

_PROCESSOR_DEVIATION = 0.19
"""Of a processor from the mean of all, in logarithms of errors: root mean square of three processors (a
Zen 4, an Emerald Rapids, a Zen 3), each asked of a model that knew one or two others."""

BySize = tuple[float, float, float]
"""A number for short, middle and long kernels."""

DIGITS = 6
"""Behind the point of what is learned: processors round the last bits of logarithms differently, and a
model should be the same on each."""


def transfer_deviation(processors: int) -> float:
    """What a processor without labels adds to the deviation of an error.

    It differs from the mean of all, which is only known as that of so many `processors`.
    """
    return _PROCESSOR_DEVIATION * math.sqrt(1 + 1 / processors)


def size_bins(time_us: NDArray[np.float64]) -> NDArray[np.int_]:
    """0, 1 or 2 for short, middle and long kernels, (rows,)."""
    return np.digitize(time_us, SIZE_LIMITS_US)


def calibrated(
    measured_us: NDArray[np.float64],
    predicted_us: NDArray[np.float64],
    spread: NDArray[np.float64],
    coverage: float,
) -> tuple[BySize, BySize]:
    """Half widths in units of `spread`, and the mean of measured / predicted, by predicted time.

    A locally weighted split-conformal interval (Lei et al., JASA 2018, section 5.2), and the smearing
    estimate (Duan, JASA 1983). All arrays are (held-out kernels,).
    """
    ratios = measured_us / predicted_us
    scaled = np.abs(np.log(ratios)) / spread
    widths = [
        round(float(np.quantile(scaled[part], coverage)), DIGITS) for part in _parts(predicted_us)
    ]
    return (widths[0], widths[1], widths[2]), smearing_of(ratios, predicted_us)


def smearing_of(ratios: NDArray[np.float64], predicted_us: NDArray[np.float64]) -> BySize:
    """The mean of measured / predicted, by predicted time, both (held-out kernels,)."""
    clipped = np.clip(ratios, 1 / _LARGEST_RATIO, _LARGEST_RATIO)
    means = [round(float(clipped[part].mean()), DIGITS) for part in _parts(predicted_us)]
    return means[0], means[1], means[2]


def means_of(typical_us: NDArray[np.float64], smearing: BySize) -> NDArray[np.float64]:
    """Mean times of kernels whose typical times these are, (rows,)."""
    return np.asarray(typical_us * np.array(smearing)[size_bins(typical_us)])


def _parts(predicted_us: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """The rows of short, middle and long kernels; all rows in place of too few."""
    bins = size_bins(predicted_us)
    parts = [np.flatnonzero(bins == k) for k in range(len(SIZE_LIMITS_US) + 1)]
    every = np.arange(len(predicted_us))
    return [part if len(part) >= _LEAST_RESIDUALS else every for part in parts]


def with_interval(
    typical_us: NDArray[np.float64],
    mean_us: NDArray[np.float64],
    spread: NDArray[np.float64],
    widths: BySize,
) -> Prediction:
    """Mean times with intervals around the typical ones."""
    factor = np.exp(np.array(widths)[size_bins(typical_us)] * spread)
    lo_us, hi_us = typical_us / factor, typical_us * factor
    return Prediction(np.clip(mean_us, lo_us, hi_us), lo_us, hi_us)


def deviations_of(answer: Prediction) -> NDArray[np.float64]:
    """Standard deviations of the logarithms of errors, (rows,), as intervals say them."""
    halves = np.log(answer.hi_us / answer.lo_us) / 2
    return np.asarray(halves / COVERED_DEVIATIONS, dtype=np.float64)


def moved(
    answer: Prediction, error: NDArray[np.float64], deviation: NDArray[np.float64]
) -> Prediction:
    """Predictions whose errors, as logarithms, are known to have these means and deviations, (rows,)."""
    typical_us = answer.typical_us * np.exp(error)
    half = np.exp(COVERED_DEVIATIONS * deviation)
    lo_us, hi_us = typical_us / half, typical_us * half
    return Prediction(np.clip(answer.time_us * np.exp(error), lo_us, hi_us), lo_us, hi_us)


def widened(answer: Prediction, added: NDArray[np.float64]) -> Prediction:
    """Intervals whose errors have a standard deviation more in their logarithms, (rows,); 0 changes none."""
    own = deviations_of(answer)
    factor = np.exp(COVERED_DEVIATIONS * (np.hypot(own, added) - own))
    return Prediction(answer.time_us, answer.lo_us / factor, answer.hi_us * factor)
