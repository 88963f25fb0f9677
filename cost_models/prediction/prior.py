"""Predictions of a model before any kernel is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.measure.caches import COLD, MEMORY
from tvm_xengine.cost_models.models.cold_calls import FROM_MEMORY
from tvm_xengine.cost_models.models.interval_widths import (
    COVERED_DEVIATIONS,
    deviations_of,
    means_of,
    moved,
    smearing_of,
    transfer_deviation,
    widened,
)
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.cost_models.models.processors import is_foreign
from tvm_xengine.cost_models.prediction.abstain import MOST_WIDTH_RATIO
from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.error_process import ErrorProcess
from tvm_xengine.cost_models.prediction.likeness import likeness_of
from tvm_xengine.scheduling.problem import CostSource, OpCost

if TYPE_CHECKING:
    from tvm_xengine.cost_models.calibration.calibration import Evidence
    from tvm_xengine.cost_models.models.model_file import ModelFile

_UNKNOWN_DEVIATION = math.log(MOST_WIDTH_RATIO) / 2 / COVERED_DEVIATIONS
"""Of a logarithm whose interval is just too wide for a plan to rest on."""

_COMMON_CALIBRATED_DEVIATION = 0.1
"""What the logarithms of all errors still have in common on a calibrated machine: on three processors errors
are the same with 0.02 to 0.1, and larger with the 0.2 of machines that are not."""


def correction_of(
    model: ModelFile,
    symbols: Sequence[str],
    groups: Sequence[str],
    targets: Sequence[str],
    table: FeatureTable,
    caches: str = COLD,
) -> Correction:
    """The predictions of a model, and their correction by measurements.

    Parameters
    ----------
    symbols, groups
        As in `Correction`.
    targets
        What each kernel is compiled for, as JSON; on a processor that the model has not learned from
        its prediction is a transferred one.
    caches
        The state in which a step leaves the caches, `caches.COLD` or `caches.MEMORY`.
    """
    sources = [
        CostSource.TRANSFERRED if is_foreign(model.processors, target) else CostSource.PREDICTED
        for target in targets
    ]
    answer = predicted_on(model, targets, table)
    if caches == MEMORY:
        answer = answer.later(FROM_MEMORY.extra_us(table))
    predicted = costs_of(symbols, answer, sources)
    likeness = cache(partial(likeness_of, model.predictor.leaves, table))
    return Correction(tuple(symbols), tuple(groups), likeness, predicted)


def predicted_on(model: ModelFile, targets: Sequence[str], table: FeatureTable) -> Prediction:
    """What a model says of kernels, each on the processor of its target (as JSON).

    Intervals are wider on a processor that the model has not learned from, and so wide that the cost is
    unknown (`abstain`) where it has no ground.
    """
    by_target = {target: _added_deviation(model, target) for target in set(targets)}
    added = np.array([by_target[target] for target in targets])
    groundless = np.where(model.has_ground(table), 0.0, _UNKNOWN_DEVIATION)
    answer = widened(model.predict(table, targets), np.hypot(added, groundless))
    here = model.calibrated_rows(targets)
    known = model.calibration
    if (
        known is None
        or (evidence := known.evidence) is None
        or not here
        or evidence.names != table.names
    ):
        return answer
    without_evidence = replace(model, calibration=replace(known, evidence=None))
    return _with_evidence(without_evidence, evidence, targets[here[0]], table, answer, here)


def _with_evidence(
    without_evidence: ModelFile,
    evidence: Evidence,
    target: str,
    table: FeatureTable,
    answer: Prediction,
    here: Sequence[int],
) -> Prediction:
    """The predictions on the calibrated processor, with what the errors on its evidence say of theirs.

    Of what all errors there have in common, the calibration's factor took most away. How far mean times are
    above typical ones is told by the evidence, too, whose errors are smaller than before.
    """
    count = len(evidence.rows)
    of_evidence = predicted_on(without_evidence, [target] * count, evidence.table)
    asked = answer.take(here)
    deviations = np.concatenate((deviations_of(of_evidence), deviations_of(asked)))
    process = ErrorProcess(
        deviations,
        np.full(len(deviations), _COMMON_CALIBRATED_DEVIATION),
        np.zeros(len(deviations), dtype=int),
        likeness_of(without_evidence.predictor.leaves, evidence.table, table.take(here)),
    )
    cold_us = np.array(evidence.cold_us)
    errors = np.log(cold_us / of_evidence.typical_us)
    found = process.posterior(
        range(count), range(count, len(deviations)), errors, evidence.networks
    )
    part = moved(asked, found.mean, found.deviation)
    ratios = np.exp(found.left_out)
    mean_us = means_of(part.typical_us, smearing_of(ratios, cold_us / ratios))
    return answer.with_rows(here, replace(part, time_us=np.clip(mean_us, part.lo_us, part.hi_us)))


def costs_of(
    symbols: Sequence[str], answer: Prediction, sources: Sequence[CostSource]
) -> dict[str, OpCost]:
    """Predicted times as costs."""
    rows = zip(symbols, answer.time_us, answer.lo_us, answer.hi_us, sources, strict=True)
    return {
        symbol: OpCost(float(time), interval_us=(float(lo), float(hi)), source=source)
        for symbol, time, lo, hi, source in rows
    }


def _added_deviation(model: ModelFile, target: str) -> float:
    """What a processor without labels adds to the error: as a calibration found it, or as is usual."""
    if not is_foreign(model.processors, target):
        return 0.0
    if model.calibration is not None and model.is_calibrated(target):
        return model.calibration.spread / COVERED_DEVIATIONS
    return transfer_deviation(model.known_machines)
