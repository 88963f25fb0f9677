"""Correction of predicted kernels by measured ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.models.interval_widths import (
    COMMON_TRANSFER_DEVIATION,
    COVERED_DEVIATIONS,
)
from tvm_xengine.cost_models.prediction.error_process import ErrorProcess, deviations_of
from tvm_xengine.scheduling.problem import CostSource, OpCost

COMMON_DEVIATION = {
    CostSource.PREDICTED: 0.05,
    CostSource.TRANSFERRED: COMMON_TRANSFER_DEVIATION,
}
"""What the logarithms of all errors on a device have in common."""

_MEASURED = (CostSource.MEASURED, CostSource.CACHED)


@dataclass(frozen=True)
class Correction:
    """Known errors of a model on some kernels, carried over to others.

    The errors are those of an `ErrorProcess`, whose groups are devices and where their kernels come from.
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
        mean, deviation = self._process().posterior(known, others, errors)
        rows = zip(others, mean, COVERED_DEVIATIONS * deviation, strict=True)
        found = {self.symbols[k]: self._moved(k, float(m), float(h)) for k, m, h in rows}
        return {**costs, **found}

    def _process(self) -> ErrorProcess:
        costs = [self.predicted[symbol] for symbol in self.symbols]
        ends_us = (
            np.array([cost.lo_us for cost in costs]),
            np.array([cost.hi_us for cost in costs]),
        )
        numbers = {group: number for number, group in enumerate(dict.fromkeys(self.groups))}
        return ErrorProcess(
            deviations_of(*ends_us),
            np.array([COMMON_DEVIATION[cost.source] for cost in costs]),
            np.array([numbers[group] for group in self.groups]),
            self.leaves(),
        )

    def _typical_us(self, k: int) -> float:
        cost = self.predicted[self.symbols[k]]
        return math.sqrt(cost.lo_us * cost.hi_us)

    def _moved(self, k: int, error: float, half: float) -> OpCost:
        """The predicted cost, with another typical time and interval."""
        cost = self.predicted[self.symbols[k]]
        typical_us = self._typical_us(k) * math.exp(error)
        lo_us, hi_us = typical_us * math.exp(-half), typical_us * math.exp(half)
        mean_us = cost.compute_us * math.exp(error)
        return replace(cost, compute_us=min(max(mean_us, lo_us), hi_us), interval_us=(lo_us, hi_us))
