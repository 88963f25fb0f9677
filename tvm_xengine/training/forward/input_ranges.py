"""The ranges of integer inputs that index tables, and of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.indices.values import index_values
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.value_range import ValueRange, by_part

if TYPE_CHECKING:
    from tvm_xengine.training.losses import Loss

Numbers = NDArray[Any]
Fits = Callable[[Numbers], NDArray[np.bool_]]
"""Which elements of an input fit, where it has these values."""


def index_ranges(
    source: ForwardOps, inputs: Sequence[relax.Var], values: Mapping[str, Numbers]
) -> dict[str, ValueRange]:
    """For each input that tensors are indexed with, the values that lie inside all of them.

    Elements that index different tensors have different ranges.

    Parameters
    ----------
    values
        Of constants among the parameters, by name; those that the function writes are none.
    """
    written = {param.name for param, _ in source.writes}
    fixed = {name: value for name, value in values.items() if name not in written}
    found = index_values(source, inputs, fixed)
    ranges = {}
    for var in inputs:
        if found.of(var) and str(var.ty.dtype) != "bool":

            def fits(values: Numbers, var: relax.Var = var) -> NDArray[np.bool_]:
                return found.is_inside(var, values)

            allowed = _allowed(var, fits, found.numbers)
            if allowed is not None:
                ranges[var.name] = allowed
    return ranges


def value_ranges(
    source: ForwardOps,
    inputs: Sequence[relax.Var],
    loss: Loss,
    labels: str | None,
    values: Mapping[str, Numbers],
) -> dict[str, ValueRange]:
    """Which values the inputs and labels of a step may have; `values` are of constants."""
    ranges = index_ranges(source, inputs, values)
    allowed = loss.labels_range(source.outputs[0].ty)
    return ranges if labels is None or allowed is None else {**ranges, labels: allowed}


def _allowed(var: relax.Var, fits: Fits, numbers: Iterable[int]) -> ValueRange | None:
    """The values that fit, which lie side by side but for `numbers` (of an ignored label); None: all."""
    shape, dtype = static_shape(var.ty), np.dtype(str(var.ty.dtype))
    limits = np.iinfo(dtype)
    # Where a number is added to an input, its negative is taken to the first place.
    tried = {0, *numbers, *(-n for n in numbers)}
    able = sorted((n for n in tried if limits.min <= n <= limits.max), key=lambda n: (abs(n), n))
    fitting = {n: fits(np.full(shape, n, dtype)) for n in able}
    start, has_start = np.zeros(shape, dtype), np.zeros(shape, bool)
    for number, fit in fitting.items():
        start[fit & ~has_start] = number
        has_start |= fit
    bounds = []
    for sign, end in ((-1, int(limits.min)), (1, int(limits.max))):
        far = np.where(has_start, _distances(start, sign, end), 0).astype(np.uint64)
        reached = _reached(fits, start, sign, far)
        # Where nothing fits, nothing is known, and all is allowed.
        bounds.append(np.where(has_start, _moved(start, sign, reached), np.array(end, dtype)))
    low, high = bounds
    besides = {n: fit & ((n < low) | (n > high)) for n, fit in fitting.items()}
    keys = np.stack([low, high, *(one.astype(dtype) for one in besides.values())]).reshape(
        2 + len(besides), -1
    )
    rows, which = np.unique(keys, axis=1, return_inverse=True)
    ranges = [
        ValueRange(row[0], row[1], tuple(n for n, has in zip(besides, row[2:], strict=True) if has))
        for row in rows.T.tolist()
    ]
    allowed = by_part(ranges, which.reshape(shape))
    whole = ValueRange(int(limits.min), int(limits.max))
    return None if allowed == whole else allowed


def _distances(start: Numbers, sign: int, end: int) -> NDArray[np.uint64]:
    """How far `end` lies from numbers, which may be more than their type holds."""
    wide, other = start.astype(np.uint64), np.uint64(end % 2**64)  # modulo 2**64, as all of this
    return other - wide if sign > 0 else wide - other


def _moved(start: Numbers, sign: int, by: NDArray[np.uint64]) -> Numbers:
    wide = start.astype(np.uint64)
    return (wide + by if sign > 0 else wide - by).astype(start.dtype)


def _reached(fits: Fits, start: Numbers, sign: int, far: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last distances from a start that fit, none of them more than `far`: doubled, then halved."""
    one = np.uint64(1)
    inside, outside = np.zeros_like(far), far + one
    goes_on, step = far > 0, one
    is_open = np.zeros(far.shape, bool)
    while goes_on.any():
        tried = np.minimum(step, far)
        fit = fits(_moved(start, sign, np.where(goes_on, tried, inside)))
        inside = np.where(goes_on & fit, tried, inside)
        failed = goes_on & ~fit
        outside = np.where(failed, tried, outside)
        is_open |= failed
        goes_on = goes_on & fit & (tried < far)
        step = step + step if step < np.uint64(2**63) else np.uint64(2**64 - 1)
    while (is_open & (outside - inside > one)).any():
        middle = inside + (outside - inside) // np.uint64(2)
        tried = np.where(is_open, middle, inside)
        fit = fits(_moved(start, sign, tried))
        inside = np.where(is_open & fit, tried, inside)
        outside = np.where(is_open & ~fit, tried, outside)
    return inside
