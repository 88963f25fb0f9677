"""Elements and slices read or written by their place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.relax_ir.types import static_shape


def select(builder: relax.BlockBuilder, x: relax.Expr, dim: int, index: int) -> relax.Expr:
    """The slice at a position, without the axis."""
    shape = static_shape(x.ty)
    axis = dim % len(shape)
    position = index % shape[axis]
    part = relax.op.strided_slice(x, [axis], [position], [position + 1])
    return builder.emit(relax.op.reshape(part, shape[:axis] + shape[axis + 1 :]))


def scatter(
    reduction: str,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: int,
    index: relax.Expr,
    source: relax.Expr,
) -> relax.Expr:
    """x with the leading part of `source`, shaped like `index`, written or added at its places."""
    shape = static_shape(index.ty)
    if shape != static_shape(source.ty):
        axes = list(range(len(shape)))
        source = builder.emit(relax.op.strided_slice(source, axes, [0] * len(axes), list(shape)))
    axis = dim % len(shape)
    return builder.emit(relax.op.scatter_elements(x, index, source, axis, reduction))


def take(builder: relax.BlockBuilder, x: relax.Expr, index: relax.Expr) -> relax.Expr:
    """Elements by their place in the flat tensor."""
    flat = builder.emit(relax.op.reshape(x, (prod(static_shape(x.ty)),)))
    return builder.emit(relax.op.take(flat, index, axis=0))


def index(
    builder: relax.BlockBuilder, x: relax.Expr, indices: Sequence[relax.Expr | None]
) -> relax.Expr:
    """The elements at indices that broadcast to each other; None stands for all of an axis."""
    shape = static_shape(x.ty)
    chosen = [one for one in indices if one is not None]
    if any(str(one.ty.dtype) == "bool" for one in chosen):
        raise UnsupportedModelError(
            "elements chosen by a mask; use torch.where, whose shapes are known"
        )
    given, others, at, common = _axes_of(len(shape), indices)
    outer, inner = others[:at], others[at:]
    moved = builder.emit(relax.op.permute_dims(x, [*outer, *given, *inner]))
    extents = [shape[axis] for axis in given]
    flat = (*(shape[a] for a in outer), prod(extents), *(shape[a] for a in inner))
    moved = builder.emit(relax.op.reshape(moved, flat))
    row = relax.const(0, "int64")
    for one, extent in zip(chosen, extents, strict=True):
        place = _counted_from_zero(builder, one, extent, static_shape(one.ty))
        row = builder.emit(relax.op.multiply(row, relax.const(extent, "int64")))
        row = builder.emit(relax.op.add(row, place))
    if static_shape(row.ty) != common:
        row = builder.emit(relax.op.broadcast_to(row, common))
    return builder.emit(relax.op.take(moved, row, axis=at))


def index_put(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    indices: Sequence[relax.Expr | None],
    values: relax.Expr,
    accumulate: bool = False,
) -> relax.Expr:
    """x with values written (or added) at indices; None stands for all of an axis."""
    shape = static_shape(x.ty)
    masks = [index for index in indices if index is not None and str(index.ty.dtype) == "bool"]
    if masks:
        return _put_where(builder, x, indices, values, accumulate=accumulate)
    every = [*indices, *[None] * (len(shape) - len(indices))]
    _, others, at, common = _axes_of(len(shape), indices)
    front = tuple(shape[axis] for axis in others)
    whole = (*front[:at], *common, *front[at:])
    wide = builder.emit(relax.op.broadcast_to(values, whole))
    middle = list(range(at, at + len(common)))
    rest = [axis for axis in range(len(whole)) if axis not in middle]
    wide = builder.emit(relax.op.permute_dims(wide, middle + rest)) if at else wide
    places = []
    for axis, index in enumerate(every):
        if index is None:
            tail = [shape[axis] if one == axis else 1 for one in others]
            numbers = np.arange(shape[axis]).reshape([1] * len(common) + tail)
            places.append(relax.const(numbers, "int64"))
        else:
            spread = builder.emit(relax.op.broadcast_to(index, common))
            unit = (*common, *(1 for _ in others))
            places.append(_counted_from_zero(builder, spread, shape[axis], unit))
    return builder.emit(relax.op.index_put(x, tuple(places), wide, accumulate))


def _axes_of(
    rank: int, indices: Sequence[relax.Expr | None]
) -> tuple[list[int], list[int], int, tuple[int, ...]]:
    """The axes with indices, those without, where among these what is indexed comes to stand, and
    the shape that the indices broadcast to.

    Indices of neighbouring axes stay where these are, others come first.
    """
    given = [axis for axis, one in enumerate(indices) if one is not None]
    others = [axis for axis in range(rank) if axis not in given]
    at = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    common = np.broadcast_shapes(*(static_shape(one.ty) for one in indices if one is not None))
    return given, others, at, common


def _counted_from_zero(
    builder: relax.BlockBuilder, index: relax.Expr, extent: int, shape: Sequence[int]
) -> relax.Expr:
    """The index as int64 in another shape; below 0 it counts from the end."""
    index = builder.emit(relax.op.astype(index, "int64"))
    from_end = relax.op.less(index, relax.const(0, "int64"))
    wrapped = relax.op.add(index, relax.const(extent, "int64"))
    index = builder.emit(relax.op.where(from_end, wrapped, index))
    return builder.emit(relax.op.reshape(index, tuple(shape)))


def _put_where(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    indices: Sequence[relax.Expr | None],
    values: relax.Expr,
    *,
    accumulate: bool,
) -> relax.Expr:
    """One number at all places of one mask; how many values it takes else is not known beforehand."""
    (mask, *more) = indices
    if more or mask is None or prod(static_shape(values.ty)) != 1:
        raise UnsupportedModelError(
            "values written by a mask; use torch.where, whose shapes are known"
        )
    shape, known = static_shape(x.ty), static_shape(mask.ty)
    mask = builder.emit(relax.op.reshape(mask, (*known, *(1 for _ in shape[len(known) :]))))
    value = builder.emit(relax.op.reshape(values, ()))
    new = builder.emit(relax.op.add(x, value)) if accumulate else value
    return builder.emit(relax.op.where(mask, new, x))


CONVERTERS: dict[str, Converter] = {
    "index.Tensor": index,
    "index_put.default": index_put,
    "scatter.src": partial(scatter, "update"),
    "scatter_add.default": partial(scatter, "add"),
    "select.int": select,
    "take.default": take,
}
