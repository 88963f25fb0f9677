"""Reductions over parts of an axis, whose lengths stand in another tensor."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.types import static_shape

_NEUTRAL = {"max": -float("inf"), "mean": 0.0, "min": float("inf"), "prod": 1.0, "sum": 0.0}
_REDUCED = {
    "max": relax.op.max,
    "mean": relax.op.sum,
    "min": relax.op.min,
    "prod": relax.op.prod,
    "sum": relax.op.sum,
}


def segment_reduce(
    builder: Builder,
    x: Expr,
    reduction: str,
    lengths: Expr | None,
    indices: Expr | None,
    offsets: Expr | None,
    axis: int,
    _unsafe: bool,
    initial: float | None,
) -> Expr:
    """Each segment reduced, for every element and segment whether the one is in the other.

    Time and memory grow with the product of both numbers.
    """
    if indices is not None:
        raise UnsupportedModelError("segments by indices; give their lengths or offsets")
    shape, neutral = static_shape(x.ty), _NEUTRAL[reduction]
    starts, ends = _bounds(builder, lengths, offsets, axis)
    lead, (*_, count) = shape[:axis], static_shape(starts.ty)
    rest = (1,) * len(shape[axis + 1 :])
    number = np.arange(shape[axis], dtype=str(starts.ty.dtype))
    place = relax.const(number, str(starts.ty.dtype))
    begun = relax.op.greater_equal(place, relax.op.expand_dims(starts, -1))
    inside = relax.op.logical_and(begun, relax.op.less(place, relax.op.expand_dims(ends, -1)))
    mask = builder.emit(relax.op.reshape(inside, (*lead, count, shape[axis], *rest)))
    wide = builder.emit(relax.op.expand_dims(x, axis))
    laid = builder.emit(relax.op.where(mask, wide, scalar(neutral, x)))
    reduced = builder.emit(_REDUCED[reduction](laid, [axis + 1]))
    if initial is not None and initial != neutral:
        reduced = _with_initial(builder, reduction, reduced, initial)
    if reduction != "mean":
        return reduced
    size = relax.op.astype(relax.op.subtract(ends, starts), str(x.ty.dtype))
    size = builder.emit(relax.op.reshape(size, (*lead, count, *rest)))
    mean = relax.op.divide(reduced, relax.op.maximum(size, scalar(1.0, x)))
    if initial is not None:
        return builder.emit(mean)
    is_empty = relax.op.equal(size, scalar(0.0, x))
    return builder.emit(relax.op.where(is_empty, scalar(float("nan"), x), mean))


def _bounds(
    builder: Builder, lengths: Expr | None, offsets: Expr | None, axis: int
) -> tuple[Expr, Expr]:
    """Begins and ends of the segments, along the last axis."""
    if offsets is not None:
        count = static_shape(offsets.ty)[-1] - 1
        starts = relax.op.strided_slice(offsets, [axis], [0], [count])
        ends = relax.op.strided_slice(offsets, [axis], [1], [count + 1])
        return builder.emit(starts), builder.emit(ends)
    ends = builder.emit(relax.op.cumsum(lengths, axis=axis))
    return builder.emit(relax.op.subtract(ends, lengths)), ends


def _with_initial(builder: Builder, reduction: str, x: Expr, initial: float) -> Expr:
    start = scalar(initial, x)
    if reduction == "prod":
        return builder.emit(relax.op.multiply(x, start))
    if reduction in ("mean", "sum"):
        return builder.emit(relax.op.add(x, start))
    beyond = relax.op.less(x, start) if reduction == "max" else relax.op.greater(x, start)
    return builder.emit(relax.op.where(beyond, start, x))


def nonzero_static(builder: Builder, x: Expr, size: int, fill: int) -> Expr:
    """The places of the first elements that are not zero, `fill` in the rows behind them."""
    shape = static_shape(x.ty)
    count = prod(shape)
    flat = builder.emit(relax.op.reshape(x, (count,)))
    is_set = builder.emit(
        flat if str(x.ty.dtype) == "bool" else relax.op.not_equal(flat, scalar(0, flat))
    )
    number = relax.op.cumsum(relax.op.astype(is_set, "int64"), axis=0)
    row = builder.emit(relax.op.subtract(number, relax.const(1, "int64")))
    wanted = relax.op.logical_and(is_set, relax.op.less(row, relax.const(size, "int64")))
    row = builder.emit(relax.op.where(wanted, row, relax.const(size, "int64")))
    empty = relax.const(np.full(size + 1, -1), "int64")
    places = relax.const(np.arange(count), "int64")
    read = builder.emit(relax.op.scatter_elements(empty, row, places, 0, "update"))
    read = builder.emit(relax.op.strided_slice(read, [0], [0], [size]))
    columns = []
    for axis, extent in enumerate(shape):
        pitch, width = (relax.const(n, "int64") for n in (prod(shape[axis + 1 :]), extent))
        place = relax.op.floor_mod(relax.op.floor_divide(read, pitch), width)
        is_missing = relax.op.less(read, relax.const(0, "int64"))
        columns.append(builder.emit(relax.op.where(is_missing, relax.const(fill, "int64"), place)))
    return builder.emit(relax.op.stack(columns, axis=1))


CONVERTERS: dict[str, Converter] = {
    "nonzero_static.default": nonzero_static,
    "segment_reduce.default": segment_reduce,
}
