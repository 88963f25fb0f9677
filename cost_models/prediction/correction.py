"""Correction of predicted kernels by measured ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tvm_xengine.cost_models.models.interval_widths import (
    COMMON_TRANSFER_DEVIATION,
    deviations_of,
    moved,
)
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.cost_models.prediction.error_process import ErrorProcess
from tvm_xengine.cost_models.prediction.likeness import Likeness
from tvm_xengine.scheduling.problem import CostSource, OpCost

COMMON_DEVIATION = {
    CostSource.PREDICTED: 0.05,
    CostSource.TRANSFERRED: COMMON_TRANSFER_DEVIATION,
}
"""What the logarithms of all errors on a device have in common."""


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
    likeness
        Gives that of all kernels; not asked before something is measured, because asking takes as long as
        predicting.
    predicted
        What the model says, before anything is measured.
    """

    symbols: tuple[str, ...]
    groups: tuple[str, ...]
    likeness: Callable[[], Likeness]
    predicted: Mapping[str, OpCost]

    def corrected(self, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
        """`costs` with what follows from the measured ones for those that are not."""
        is_known = [costs[symbol].source.is_measured for symbol in self.symbols]
        known, others = (
            np.flatnonzero(rows).tolist() for rows in (is_known, np.logical_not(is_known))
        )
        if not known or not others:
            return dict(costs)
        predicted = self._prediction()
        measured_us = np.array([costs[self.symbols[k]].compute_us for k in known])
        errors = np.asarray(np.log(measured_us / predicted.take(known).typical_us), np.float64)
        found_errors = self._process(predicted).posterior(known, others, errors)
        answer = moved(predicted.take(others), found_errors.mean, found_errors.deviation)
        symbols = [self.symbols[k] for k in others]
        rows = zip(
            symbols,
            *(x.tolist() for x in (answer.time_us, answer.lo_us, answer.hi_us)),
            strict=True,
        )
        found = {
            symbol: replace(self.predicted[symbol], compute_us=time_us, interval_us=(lo_us, hi_us))
            for symbol, time_us, lo_us, hi_us in rows
        }
        return {**costs, **found}

    def _prediction(self) -> Prediction:
        costs = [self.predicted[symbol] for symbol in self.symbols]
        rows = np.array([(cost.compute_us, cost.lo_us, cost.hi_us) for cost in costs])
        return Prediction(*rows.T)

    def _process(self, predicted: Prediction) -> ErrorProcess:
        numbers = {group: number for number, group in enumerate(dict.fromkeys(self.groups))}
        return ErrorProcess(
            deviations_of(predicted),
            np.array([COMMON_DEVIATION[self.predicted[one].source] for one in self.symbols]),
            np.array([numbers[group] for group in self.groups]),
            self.likeness(),
        )
