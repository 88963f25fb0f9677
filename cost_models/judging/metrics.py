"""Errors of predictions relative to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from tvm_xengine.cost_models.dataset.dataset import RANDOM

_LONG_US = 20.0
"""Two measurements of shorter kernels differ by more than a tenth; they make up little of a
step."""


@dataclass(frozen=True)
class Metrics:
    """Errors relative to the measured time.

    Attributes
    ----------
    mean_error_ratio, median_error_ratio
        Of |predicted / measured - 1|.
    within_10_ratio, within_25_ratio, long_within_25_ratio
        Share of kernels (of those above 20 us) that are predicted within 10 % or 25 %.
    kendall
        Rank correlation.
    weighted_error_ratio
        Sum of absolute errors over sum of times.
    worst_total_ratio, median_total_ratio
        Error of the summed time of a network family; random networks are none where there are
        others.
    coverage_ratio
        Share of measurements inside the interval.
    """

    kernels: int
    mean_error_ratio: float
    median_error_ratio: float
    within_10_ratio: float
    within_25_ratio: float
    long_within_25_ratio: float
    kendall: float
    weighted_error_ratio: float
    median_total_ratio: float
    worst_total_ratio: float
    coverage_ratio: float


def metrics_of(
    measured_us: NDArray[np.float64],
    predicted_us: NDArray[np.float64],
    families: Sequence[tuple[str, ...]],
    interval_us: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> Metrics:
    """Compare two times of each kernel; all arrays are (kernels,)."""
    error = np.abs(predicted_us / measured_us - 1)
    is_long = measured_us >= _LONG_US
    totals = []
    known = {name for names in families for name in names}
    for family in sorted(known - {RANDOM} or known):
        rows = np.array([family in names for names in families])
        totals.append(abs(predicted_us[rows].sum() / measured_us[rows].sum() - 1))
    inside = (
        np.mean((interval_us[0] <= measured_us) & (measured_us <= interval_us[1]))
        if interval_us is not None
        else np.nan
    )
    return Metrics(
        kernels=len(measured_us),
        mean_error_ratio=float(error.mean()),
        median_error_ratio=float(np.median(error)),
        within_10_ratio=float((error <= 0.1).mean()),
        within_25_ratio=float((error <= 0.25).mean()),
        long_within_25_ratio=float((error[is_long] <= 0.25).mean()) if is_long.any() else np.nan,
        kendall=float(kendalltau(measured_us, predicted_us).statistic)
        if len(error) > 1
        else np.nan,
        weighted_error_ratio=float(np.abs(predicted_us - measured_us).sum() / measured_us.sum()),
        median_total_ratio=float(np.median(totals)),
        worst_total_ratio=float(max(totals)),
        coverage_ratio=float(inside),
    )


def noise_floor(
    rounds_us: Sequence[tuple[float, ...]], families: Sequence[tuple[str, ...]]
) -> Metrics | None:
    """The first round of each kernel against its last: what two measurements differ by.

    None where no kernel was measured in two rounds.
    """
    rows = [k for k, rounds in enumerate(rounds_us) if len(rounds) > 1]
    if not rows:
        return None
    first = np.array([rounds_us[k][0] for k in rows])
    last = np.array([rounds_us[k][-1] for k in rows])
    return metrics_of(last, first, [families[k] for k in rows])
