"""The ranges of integer inputs that index tables, and of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.index_values import Read, index_values
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.value_range import ValueRange

if TYPE_CHECKING:
    from tvm_xengine.training.losses import Loss


def index_ranges(source: ForwardOps, inputs: Sequence[relax.Var]) -> dict[str, ValueRange]:
    """For each input that tensors are indexed with, the values that lie inside all of them.

    Where its parts index different tensors, the values that may stand in some part.
    """
    reads, numbers = index_values(source, inputs, {})
    ranges = {}
    for var in inputs:
        own = [read for read in reads if read.indices.origin is var]
        if own and (allowed := _allowed(var, own, numbers)) is not None:
            ranges[var.name] = allowed
    return ranges


def value_ranges(
    source: ForwardOps, inputs: Sequence[relax.Var], loss: Loss, labels: str | None
) -> dict[str, ValueRange]:
    """Which values the inputs and labels of a step may have."""
    ranges = index_ranges(source, inputs)
    allowed = loss.labels_range(source.outputs[0].ty)
    return ranges if labels is None or allowed is None else {**ranges, labels: allowed}


def _allowed(var: relax.Var, reads: Sequence[Read], numbers: Iterable[int]) -> ValueRange | None:
    """The values that fit, which lie side by side but for `numbers` (of an ignored label); None: all."""

    groups = _read_together(var, reads)

    def fits(value: int) -> bool:
        return any(all(read.fits(value) for read in group) for group in groups)

    limits = np.iinfo(str(var.ty.dtype))
    able = [n for n in numbers if limits.min <= n <= limits.max]
    start = next((n for n in (0, *able, *(-n for n in able)) if fits(n)), None)
    if start is None:
        return None
    low, high = (_last(fits, start, end) for end in (int(limits.min), int(limits.max)))
    if (low, high) == (limits.min, limits.max):
        return None
    besides = {n for n in able if not low <= n <= high and fits(n)}
    return ValueRange(low, high, tuple(sorted(besides)))


def _read_together(var: relax.Var, reads: Sequence[Read]) -> list[list[Read]]:
    """The reads of each part of an input; an element that is no index has none."""
    # One bit for each read, of which there may be more than a machine's integers have.
    sets = np.zeros(max(prod(static_shape(var.ty)), 1), object)
    for position, read in enumerate(reads):
        sets[np.unique(read.indices.places)] |= 1 << position
    return [
        [read for position, read in enumerate(reads) if found >> position & 1]
        for found in np.unique(sets).tolist()
    ]


def _last(fits: Callable[[int], bool], start: int, end: int) -> int:
    """The last of the values from `start` towards `end` that fit."""
    sign = 1 if end > start else -1
    step, inside, outside = 1, start, None
    while outside is None and inside != end:
        tried = inside + sign * min(step, abs(end - inside))
        inside, outside, step = (tried, None, 2 * step) if fits(tried) else (inside, tried, step)
    while outside is not None and abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside
