"""Ranges of tensors on samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from tvm import relax

from tvm_xengine.checks.names import some
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.quantization.affine import Affine, affine_of_range
from tvm_xengine.quantization.observe import Observe
from tvm_xengine.relax_ir.types import Array

_BINS = 4096
"""A percentile is exact to one bin of the range, which is a sixteenth of a step of int8."""


def calibrated(
    observe: Observe,
    batches: Sequence[Mapping[str, Array]],
    inputs: Iterable[relax.Var],
    percentile: float,
) -> dict[relax.Var, Affine]:
    """Scales from the least and greatest values, or from percentiles between them.

    Tensors that take values that are not finite, such as the scores of a mask, have none.

    Parameters
    ----------
    inputs
        Variables of the batch that are calibrated, too.
    percentile
        Share of the elements, in percent, that lie in the range; 100 takes all. The rest is cut off at
        both ends alike.

    Raises
    ------
    InvalidDataError
        If there is no sample, or a value of an input is not finite.
    """
    if not batches:
        raise InvalidDataError("expected samples to calibrate the frozen layers with, found none")
    inputs = tuple(inputs)

    def observed(batch: Mapping[str, Array]) -> dict[relax.Var, Array]:
        return {**{var: np.asarray(batch[var.name]) for var in inputs}, **observe(batch)}

    ranges: dict[relax.Var, tuple[float, float]] = {}
    for batch in batches:
        for var, value in observed(batch).items():
            low, high = float(value.min()), float(value.max())
            least, greatest = ranges.get(var, (low, high))
            ranges[var] = float(np.minimum(least, low)), float(np.maximum(greatest, high))
    if wrong := [var.name for var in inputs if not np.isfinite(ranges[var]).all()]:
        raise InvalidDataError(f"calibration: {some(wrong)} takes values that are not finite")
    ranges = {var: limits for var, limits in ranges.items() if np.isfinite(limits).all()}
    if percentile < 100.0:
        counts = {var: np.zeros(_BINS) for var in ranges}
        for batch in batches:
            for var, value in observed(batch).items():
                if var in ranges:
                    counts[var] += np.histogram(value, _BINS, ranges[var])[0]
        ranges = {var: _within(counts[var], ranges[var], percentile) for var in ranges}
    return {var: affine_of_range(*limits) for var, limits in ranges.items()}


def _within(
    counts: np.ndarray[tuple[int], np.dtype[np.float64]],
    limits: tuple[float, float],
    percentile: float,
) -> tuple[float, float]:
    """The range without half of the rest at each end."""
    edges = np.linspace(*limits, _BINS + 1)
    below = np.cumsum(counts) / counts.sum()
    rest = (1 - percentile / 100) / 2
    first = int(np.searchsorted(below, rest, side="right"))
    last = int(np.searchsorted(below, 1 - rest, side="left"))
    return float(edges[first]), float(edges[min(last + 1, _BINS)])
