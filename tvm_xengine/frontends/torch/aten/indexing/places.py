"""Elements read or written by their position in a whole tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.indexing.along_axis import like, writes
from tvm_xengine.relax_ir.own_ops import pointwise
from tvm_xengine.relax_ir.types import static_shape


def take(builder: Builder, x: Expr, index: Expr) -> Expr:
    """Elements by their place in the flat tensor."""
    count = prod(static_shape(x.ty))
    flat = builder.emit(relax.op.reshape(x, (count,)))
    place = _counted_from_zero(builder, index, count, static_shape(index.ty))
    return builder.emit(relax.op.take(flat, place, axis=0))


@writes
def put(builder: Builder, x: Expr, index: Expr, source: Expr, accumulate: bool) -> Expr:
    """x with elements written or added at places of the flat tensor."""
    extent, count = prod(static_shape(x.ty)), (prod(static_shape(index.ty)),)
    flat = builder.emit(relax.op.reshape(x, (extent,)))
    places = _counted_from_zero(builder, index, extent, count)
    values = builder.emit(relax.op.reshape(source, count))
    how = "add" if accumulate else "update"
    return like(builder, builder.emit(relax.op.scatter_elements(flat, places, values, 0, how)), x)


@writes
def masked_scatter(builder: Builder, x: Expr, mask: Expr, source: Expr) -> Expr:
    """x with the first elements of the source, one after the other, where the mask holds."""
    shape = np.broadcast_shapes(static_shape(x.ty), static_shape(mask.ty))
    whole = builder.emit(relax.op.broadcast_to(x, shape))
    here = builder.emit(relax.op.broadcast_to(mask, shape))
    flat = relax.op.reshape(relax.op.astype(here, "int64"), (prod(shape),))
    number = relax.op.subtract(relax.op.cumsum(flat, axis=0), relax.const(1, "int64"))
    number = builder.emit(relax.op.maximum(number, relax.const(0, "int64")))
    values = relax.op.reshape(source, (prod(static_shape(source.ty)),))
    read = builder.emit(relax.op.take(builder.emit(values), number, axis=0))
    return builder.emit(relax.op.where(here, relax.op.reshape(read, shape), whole))


def index(builder: Builder, x: Expr, indices: Sequence[Expr | None]) -> Expr:
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


@writes
def index_put(
    builder: Builder,
    x: Expr,
    indices: Sequence[Expr | None],
    values: Expr,
    accumulate: bool = False,
) -> Expr:
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
    rank: int, indices: Sequence[Expr | None]
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


def _counted_from_zero(builder: Builder, index: Expr, extent: int, shape: Sequence[int]) -> Expr:
    """The index as int64 in another shape; below 0 it counts from the end."""
    index = builder.emit(relax.op.astype(index, "int64"))
    index = builder.emit(pointwise("place", index, relax.const(extent, "int64")))
    return builder.emit(relax.op.reshape(index, tuple(shape)))


def _put_where(
    builder: Builder, x: Expr, indices: Sequence[Expr | None], values: Expr, *, accumulate: bool
) -> Expr:
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
    "_unsafe_index.Tensor": index,
    "_unsafe_index_put.default": index_put,
    "index.Tensor": index,
    "index_put.default": index_put,
    "masked_scatter.default": masked_scatter,
    "put.default": put,
    "take.default": take,
}
