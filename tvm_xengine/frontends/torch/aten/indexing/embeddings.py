"""Rows of a table looked up by number, one by one or in bags."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.types import static_shape


def embedding(
    builder: Builder,
    weight: Expr,
    indices: Expr,
    padding_index: int,
    scale_by_frequency: bool,
    _sparse: bool,
) -> Expr:
    """The row of each index; no gradient reaches that of the padding (below 0: there is none)."""
    if scale_by_frequency:
        refuse_scaling()
    shape, width = static_shape(indices.ty), static_shape(weight.ty)[1]
    places = builder.emit(relax.op.astype(indices, "int32"))
    flat = places if len(shape) == 1 else builder.emit(relax.op.reshape(places, (-1,)))
    rows = builder.emit(relax.op.take(weight, flat, axis=0))
    if padding_index >= 0:
        is_padding = relax.op.equal(flat, relax.const(padding_index, "int32"))
        column = builder.emit(relax.op.expand_dims(builder.emit(is_padding), -1))
        fixed = builder.emit(relax.op.grad.no_grad(rows))
        rows = builder.emit(relax.op.where(column, fixed, rows))
    return rows if len(shape) == 1 else builder.emit(relax.op.reshape(rows, (*shape, width)))


def refuse_scaling() -> None:
    """Refuse gradients that are divided by how often their row was read."""
    raise UnsupportedModelError("scale_grad_by_freq is not supported")


_MEAN, _MAX = 1, 2
"""Values of `mode` of ``aten::embedding_bag``; 0 is the sum."""


def embedding_bag(
    builder: Builder,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    scale_by_frequency: bool,
    mode: int,
    _sparse: bool,
    per_sample_weights: Expr | None,
    include_last_offset: bool,
    padding_index: int,
) -> list[Expr]:
    """The bags; the other results of the operator are for PyTorch's own backward pass.

    Bags that are all equally long, which known offsets may say, are an axis of their own; else
    it is computed for every element and bag whether the one is in the other.
    """
    if scale_by_frequency:
        refuse_scaling()
    count, width = static_shape(indices.ty)[0], static_shape(weight.ty)[1]
    if count == 0:
        bags = static_shape(offsets.ty)[0] - include_last_offset
        return [builder.emit(relax.op.zeros((bags, width), str(weight.ty.dtype)))]
    rows = builder.emit(relax.op.take(weight, indices, axis=0))
    if per_sample_weights is not None:
        column = builder.emit(relax.op.reshape(per_sample_weights, (count, 1)))
        rows = builder.emit(relax.op.multiply(rows, column))
    length = _common_length(offsets, count, include_last_offset) if padding_index < 0 else None
    if length is not None:
        bags = builder.emit(relax.op.reshape(rows, (count // length, length, width)))
        reduction = {_MEAN: relax.op.mean, _MAX: relax.op.max}.get(mode, relax.op.sum)
        return [builder.emit(reduction(bags, [1]))]
    members = _members(builder, indices, offsets, include_last_offset, padding_index)
    if mode == _MAX:
        return [_maxima(builder, rows, members)]
    shares = builder.emit(relax.op.astype(members, str(weight.ty.dtype)))
    total = builder.emit(relax.op.matmul(shares, rows))
    if mode != _MEAN:
        return [total]
    size = builder.emit(relax.op.sum(shares, [1], keepdims=True))
    size = builder.emit(relax.op.maximum(size, scalar(1.0, shares)))
    return [builder.emit(relax.op.divide(total, size))]


def _common_length(offsets: Expr, count: int, include_last_offset: bool) -> int | None:
    """How long each bag is, None where that differs or is not known."""
    if not isinstance(offsets, tvm.ir.GenericConst):
        return None
    starts = offsets.value.numpy()
    ends = starts if include_last_offset else [*starts, count]
    lengths = set(np.diff(ends).tolist())
    whole = len(ends) > 1 and ends[0] == 0 and ends[-1] == count
    return int(lengths.pop()) if whole and len(lengths) == 1 and count else None


def _members(
    builder: Builder, indices: Expr, offsets: Expr, include_last_offset: bool, padding_index: int
) -> Expr:
    """Bool (bags, elements): which element is in which bag."""
    count, dtype = static_shape(indices.ty)[0], str(offsets.ty.dtype)
    starts, ends = offsets, builder.emit(relax.op.strided_slice(offsets, [0], [1], [2**31]))
    if include_last_offset:
        known = static_shape(offsets.ty)[0] - 1
        starts = builder.emit(relax.op.strided_slice(offsets, [0], [0], [known]))
    else:
        last = relax.const(np.array([count], dtype), dtype)
        ends = builder.emit(relax.op.concat([ends, last], axis=0))
    bags = static_shape(starts.ty)[0]
    place = relax.const(np.arange(count, dtype=dtype)[None, :], dtype)
    begun = relax.op.greater_equal(place, builder.emit(relax.op.reshape(starts, (bags, 1))))
    ended = relax.op.less(place, builder.emit(relax.op.reshape(ends, (bags, 1))))
    members = builder.emit(relax.op.logical_and(builder.emit(begun), builder.emit(ended)))
    if padding_index < 0:
        return members
    padding = relax.const(padding_index, str(indices.ty.dtype))
    counts = builder.emit(relax.op.not_equal(indices, padding))
    return builder.emit(relax.op.logical_and(members, counts))


def _maxima(builder: Builder, rows: Expr, members: Expr) -> Expr:
    """Maxima over the elements of each bag; an empty one has zeros."""
    bags, count = static_shape(members.ty)
    least = scalar(float(np.finfo(str(rows.ty.dtype)).min), rows)
    mask = builder.emit(relax.op.reshape(members, (bags, count, 1)))
    chosen = builder.emit(relax.op.where(mask, builder.emit(relax.op.expand_dims(rows, 0)), least))
    largest = builder.emit(relax.op.max(chosen, [1]))
    is_empty = builder.emit(relax.op.less_equal(largest, least))
    return builder.emit(relax.op.where(is_empty, scalar(0.0, rows), largest))


CONVERTERS: dict[str, Converter] = {
    "embedding.default": embedding,
    "_embedding_bag.default": embedding_bag,
    "_embedding_bag_forward_only.default": embedding_bag,
}
