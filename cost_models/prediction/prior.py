"""Predictions of a model before any kernel is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.cost_models.models.processors import is_foreign
from tvm_xengine.cost_models.prediction.correction import (
    COMMON_DEVIATION,
    COVERED_DEVIATIONS,
    Correction,
)
from tvm_xengine.scheduling.problem import CostSource, OpCost

if TYPE_CHECKING:
    from tvm_xengine.cost_models.models.model_file import ModelFile

_OTHER_PROCESSOR_DEVIATION = 0.25
"""What each error adds on a processor that the model has not learned from, in addition to what all have in
common. It was fitted on one pair of processors, from a Rocket Lake to a Zen 4, which also judges
the coverage of transferred intervals in ``benchmarks/README.md``: that figure is optimistic."""


def correction_of(
    model: ModelFile,
    symbols: Sequence[str],
    groups: Sequence[str],
    targets: Sequence[str],
    table: FeatureTable,
) -> Correction:
    """The predictions of a model, and their correction by measurements.

    Parameters
    ----------
    symbols, groups
        As in `Correction`.
    targets
        What each kernel is compiled for, as JSON; on a processor that the model has not learned from
        its prediction is a transferred one.
    """
    predicted = costs_of(symbols, model.predict(table, targets), CostSource.PREDICTED)
    predicted |= {
        symbol: _transferred(predicted[symbol], _added_deviation(model, target))
        for symbol, target in zip(symbols, targets, strict=True)
        if is_foreign(model.processors, target)
    }
    leaves = cache(partial(model.predictor.leaves, table))
    return Correction(tuple(symbols), tuple(groups), leaves, predicted)


def costs_of(symbols: Sequence[str], answer: Prediction, source: CostSource) -> dict[str, OpCost]:
    """Predicted times as costs."""
    rows = zip(symbols, answer.time_us, answer.lo_us, answer.hi_us, strict=True)
    return {
        symbol: OpCost(float(time), interval_us=(float(lo), float(hi)), source=source)
        for symbol, time, lo, hi in rows
    }


def _added_deviation(model: ModelFile, target: str) -> float:
    """What a processor without labels adds to the error: as a calibration found it, or as is usual."""
    if model.calibration is not None and model.is_calibrated(target):
        return model.calibration.spread / COVERED_DEVIATIONS
    return math.hypot(COMMON_DEVIATION[CostSource.TRANSFERRED], _OTHER_PROCESSOR_DEVIATION)


def _transferred(cost: OpCost, added: float) -> OpCost:
    """A cost with what another processor adds to the error, as a standard deviation."""
    own = math.log(cost.hi_us / cost.lo_us) / 2 / COVERED_DEVIATIONS
    typical_us = math.sqrt(cost.lo_us * cost.hi_us)
    factor = math.exp(COVERED_DEVIATIONS * math.hypot(own, added))
    return replace(
        cost,
        interval_us=(typical_us / factor, typical_us * factor),
        source=CostSource.TRANSFERRED,
    )
