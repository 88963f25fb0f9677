"""Correction of predicted kernels by measured ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.models.interval_widths import (
    COMMON_TRANSFER_DEVIATION,
    COVERED_DEVIATIONS,
)
from tvm_xengine.scheduling.problem import CostSource, OpCost

COMMON_DEVIATION = {
    CostSource.PREDICTED: 0.05,
    CostSource.TRANSFERRED: COMMON_TRANSFER_DEVIATION,
}
"""What the logarithms of all errors on a device have in common."""

_ALIKE_SHARE = 0.9
"""Of the rest of an error, what a kernel that falls into the same leaves has, too."""

_NOISE_DEVIATION = 0.05
"""Of the logarithm of a measurement; that of kernels above 20 us (`_NOISE_RATIO` of the trees)."""

_HUBER_DEVIATIONS = 1.345
"""Huber's constant: 95 % as efficient as the mean where errors are Gaussian (Huber 1964)."""

_REWEIGHTINGS = 5
"""Rounds of reweighting; chosen."""

_FEW = 20
"""So many measured errors may widen intervals in full; chosen."""

_COVERAGE = 0.8
"""Share of times that intervals are meant to hold, as in `COVERED_DEVIATIONS`."""

_MEASURED = (CostSource.MEASURED, CostSource.CACHED)


@dataclass(frozen=True)
class Correction:
    """Known errors of a model on some kernels, carried over to others.

    The errors, as logarithms, are a Gaussian process (Rasmussen and Williams 2006, section 2.2; for
    the residuals of a model Kennedy and O'Hagan, JRSS B 2001). Its prior is what the model says of
    itself: how wide its intervals are, and how alike it finds two kernels, which is how often its
    trees put both into the same leaf. Kernels of one device have a part of their errors in common.
    So a plan that measures some convolutions of a network predicts the others better, and on a
    processor that the model has not learned from everything.

    Attributes
    ----------
    symbols, groups
        Of each kernel; a group is a device and where the kernels come from.
    leaves
        Gives where each kernel falls in the trees, (kernels, trees); not asked before something is
        measured, because asking takes as long as predicting.
    predicted
        What the model says, before anything is measured.
    """

    symbols: tuple[str, ...]
    groups: tuple[str, ...]
    leaves: Callable[[], NDArray[np.int_]]
    predicted: Mapping[str, OpCost]

    def corrected(self, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
        """`costs` with what follows from the measured ones for those that are not."""
        known = [k for k, symbol in enumerate(self.symbols) if costs[symbol].source in _MEASURED]
        others = [k for k in range(len(self.symbols)) if k not in set(known)]
        if not known or not others:
            return dict(costs)
        measured_us = np.array([costs[self.symbols[k]].compute_us for k in known])
        typical_us = np.array([self._typical_us(k) for k in known])
        errors = np.asarray(np.log(measured_us / typical_us), dtype=np.float64)
        mean, deviation = self._posterior(known, others, errors)
        rows = zip(others, mean, COVERED_DEVIATIONS * deviation, strict=True)
        found = {self.symbols[k]: self._moved(k, float(m), float(h)) for k, m, h in rows}
        return {**costs, **found}

    def _posterior(
        self, known: Sequence[int], others: Sequence[int], errors: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of the other errors."""
        own = self._deviations(others) ** 2 + self._common(others) ** 2
        between = self._covariance(others, known)
        unshared = (1 - _ALIKE_SHARE) * self._deviations(known) ** 2 + _NOISE_DEVIATION**2
        inverse, widening = _fit(self._covariance(known, known) + np.diag(unshared), errors)
        mean = between @ inverse @ errors
        variance = own - np.einsum("ij,jk,ik->i", between, inverse, between)
        deviation = np.sqrt(np.maximum(variance, _NOISE_DEVIATION**2))
        return mean, deviation * widening

    def _covariance(self, rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.float64]:
        deviations = np.outer(self._deviations(rows), self._deviations(columns))
        groups = np.array(self.groups)
        together = groups[rows][:, None] == groups[columns][None]
        common = np.outer(self._common(rows), self._common(columns)) * together
        alike = self._alike(rows, columns)
        return np.asarray(common + _ALIKE_SHARE * deviations * alike)

    def _alike(self, rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.float64]:
        """Share of the trees that put both kernels into the same leaf."""
        alike = np.zeros((len(rows), len(columns)), dtype=np.float64)
        leaves = self.leaves()
        for leaf in leaves.T:
            alike += leaf[rows][:, None] == leaf[columns][None]
        return np.asarray(alike / leaves.shape[1])

    def _typical_us(self, k: int) -> float:
        cost = self.predicted[self.symbols[k]]
        return math.sqrt(cost.lo_us * cost.hi_us)

    def _common(self, rows: Sequence[int]) -> NDArray[np.float64]:
        costs = (self.predicted[self.symbols[k]] for k in rows)
        return np.array([COMMON_DEVIATION[cost.source] for cost in costs])

    def _deviations(self, rows: Sequence[int]) -> NDArray[np.float64]:
        """Of each error, without what it has in common with all of its device."""
        costs = (self.predicted[self.symbols[k]] for k in rows)
        halves = np.array([math.log(cost.hi_us / cost.lo_us) / 2 for cost in costs])
        rest = (halves / COVERED_DEVIATIONS) ** 2 - self._common(rows) ** 2
        return np.sqrt(np.maximum(rest, _NOISE_DEVIATION**2))

    def _moved(self, k: int, error: float, half: float) -> OpCost:
        """The predicted cost, with another typical time and interval."""
        cost = self.predicted[self.symbols[k]]
        typical_us = self._typical_us(k) * math.exp(error)
        lo_us, hi_us = typical_us * math.exp(-half), typical_us * math.exp(half)
        mean_us = cost.compute_us * math.exp(error)
        return replace(cost, compute_us=min(max(mean_us, lo_us), hi_us), interval_us=(lo_us, hi_us))


def _fit(
    covariance: NDArray[np.float64], errors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """The inverse covariance of the known errors, and how much wider intervals must be.

    Each error is compared with what all others say of it, which has a closed form (Rasmussen and
    Williams, section 5.4.2). One that lies far off gets a variance of its own, so that it counts
    less (Huber, Annals of Mathematical Statistics 1964); a few kernels are many times slower on
    another processor, and the rest is not. Intervals widen until four errors out of five lie
    inside. Few errors say little, so they widen little, and they never narrow.
    """
    odd = np.zeros(len(errors))
    for _ in range(_REWEIGHTINGS):
        inverse = np.asarray(np.linalg.inv(covariance + np.diag(odd)), dtype=np.float64)
        precision = np.diag(inverse)
        left_out = np.abs(inverse @ errors) / precision
        variance = 1.0 / precision - odd
        odd = np.maximum(0.0, (left_out / _HUBER_DEVIATIONS) ** 2 - variance)
    count = len(errors)
    level = min(1.0, _COVERAGE * (count + 1) / count)
    needed = float(np.quantile(left_out / np.sqrt(variance), level)) / COVERED_DEVIATIONS
    return inverse, math.pow(max(1.0, needed), min(1.0, count / _FEW))
