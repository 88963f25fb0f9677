"""Distances between rows, with the conventions of PyTorch's own kernels for their gradients."""

from __future__ import annotations

from functools import partial
from math import inf, nan

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.matrix_ops import value_and_change
from tvm_xengine.relax_ir.own_ops import pointwise
from tvm_xengine.relax_ir.types import static_shape

_MANY_ROWS = 25
"""Of more rows on either side PyTorch computes Euclidean distances by a product of matrices."""

_IF_MANY, _BY_A_PRODUCT = 0, 1
"""PyTorch's numbers of the modes of computation; 2 is never by a product."""


def cdist(
    builder: Builder, left: Expr, right: Expr, p: float = 2.0, mode: int | None = None
) -> Expr:
    """The p-norm of every row of `left` less every row of `right`; its gradient is 0 at distance 0.

    NaN counts as 0 in the maximum norm.
    """
    rows, others = static_shape(left.ty)[-2], static_shape(right.ty)[-2]
    is_long = max(rows, others) > _MANY_ROWS
    if static_shape(left.ty)[-1] == 0:
        lead = np.broadcast_shapes(static_shape(left.ty)[:-2], static_shape(right.ty)[:-2])
        return builder.emit(relax.op.zeros((*lead, rows, others), str(left.ty.dtype)))
    if p == 2 and (mode == _BY_A_PRODUCT or (is_long and mode in (None, _IF_MANY))):
        return _by_a_product(builder, left, right)
    return _norm(builder, _apart(builder, left, right), p, ignores_nan=True)


def pdist(builder: Builder, x: Expr, p: float = 2.0) -> Expr:
    """The p-norm of every row less every later one."""
    rows, columns = np.triu_indices(static_shape(x.ty)[0], 1)
    if not rows.size:
        return builder.emit(relax.op.zeros((0,), str(x.ty.dtype)))
    first, second = (
        builder.emit(relax.op.take(x, relax.const(places, "int64"), axis=0))
        for places in (rows, columns)
    )
    apart = builder.emit(relax.op.subtract(first, second))
    return _norm(builder, apart, p, ignores_nan=False)


def _apart(builder: Builder, left: Expr, right: Expr) -> Expr:
    """Every row of `left` less every row of `right`."""
    wide = builder.emit(relax.op.expand_dims(left, len(static_shape(left.ty)) - 1))
    other = builder.emit(relax.op.expand_dims(right, len(static_shape(right.ty)) - 2))
    return builder.emit(relax.op.subtract(wide, other))


def _norm(builder: Builder, apart: Expr, p: float, *, ignores_nan: bool) -> Expr:
    """The p-norm over the last axis."""
    if p == 0:
        return _count(builder, apart)
    if p == inf:
        return _largest(builder, apart, ignores_nan=ignores_nan)
    if p == 1:
        sign = _fixed_sign(builder, apart)
        return builder.emit(relax.op.sum(relax.op.multiply(apart, sign), [-1]))
    if p == 2:
        squares = builder.emit(relax.op.multiply(apart, apart))
        summed = builder.emit(relax.op.sum(squares, [-1]))
        return builder.emit(pointwise("safe_sqrt", summed))
    powers = builder.emit(pointwise("abs_power", apart, p))
    if p < 1:  # where rows agree the slope is 0, also in a row with a NaN
        agrees = builder.emit(relax.op.equal(apart, scalar(0, apart)))
        other = builder.emit(relax.op.where(agrees, scalar(1, apart), apart))
        powers = builder.emit(pointwise("abs_power", other, p))
        powers = builder.emit(relax.op.where(agrees, scalar(0, apart), powers))
    return builder.emit(pointwise("root", builder.emit(relax.op.sum(powers, [-1])), p))


def _count(builder: Builder, apart: Expr) -> Expr:
    """How many entries differ; NaN if one is."""
    fixed = builder.emit(relax.op.grad.no_grad(apart))
    differs = relax.op.astype(relax.op.not_equal(fixed, scalar(0, apart)), str(apart.ty.dtype))
    counted = relax.op.where(relax.op.isnan(fixed), fixed, builder.emit(differs))
    return builder.emit(relax.op.sum(builder.emit(counted), [-1]))


def _largest(builder: Builder, apart: Expr, *, ignores_nan: bool) -> Expr:
    """The greatest difference; each of equal ones has the whole gradient, a NaN or an infinity NaN."""
    fixed = builder.emit(relax.op.grad.no_grad(apart))
    size = builder.emit(relax.op.abs(fixed))
    missing = builder.emit(relax.op.isnan(fixed))
    known = builder.emit(relax.op.where(missing, scalar(0, apart), size)) if ignores_nan else size
    value = builder.emit(relax.op.max(known, [-1], keepdims=True))
    sign = builder.emit(relax.op.sign(fixed))
    slope = builder.emit(relax.op.where(relax.op.equal(size, value), sign, scalar(0, apart)))
    both_infinite = relax.op.logical_and(relax.op.isinf(size), relax.op.isinf(value))
    no_number = relax.op.logical_or(
        missing, relax.op.logical_or(both_infinite, relax.op.isnan(value))
    )
    slope = builder.emit(relax.op.where(builder.emit(no_number), scalar(nan, apart), slope))
    change = builder.emit(relax.op.sum(relax.op.multiply(slope, apart), [-1]))
    flat = builder.emit(relax.op.reshape(value, static_shape(change.ty)))
    return builder.emit(value_and_change(flat, change))


def _fixed_sign(builder: Builder, x: Expr) -> Expr:
    """-1, 0, 1 or NaN, without a gradient."""
    fixed = builder.emit(relax.op.grad.no_grad(x))
    sign = builder.emit(relax.op.sign(fixed))
    return builder.emit(relax.op.where(relax.op.isnan(fixed), fixed, sign))


def _by_a_product(builder: Builder, left: Expr, right: Expr) -> Expr:
    """sqrt(|x|^2 + |y|^2 - 2 x y), of which rounding makes what is negative zero."""
    squares = [
        builder.emit(relax.op.sum(builder.emit(relax.op.square(x)), [-1], keepdims=True))
        for x in (left, right)
    ]
    flipped = [_flipped(builder, x) for x in (right, squares[1])]
    product = builder.emit(relax.op.matmul(left, flipped[0]))
    both = builder.emit(relax.op.add(squares[0], flipped[1]))
    total = builder.emit(
        relax.op.subtract(both, builder.emit(relax.op.multiply(product, scalar(2, left))))
    )
    is_negative = builder.emit(relax.op.less(total, scalar(0, left)))
    return builder.emit(
        pointwise("safe_sqrt", builder.emit(relax.op.where(is_negative, scalar(0, left), total)))
    )


def _flipped(builder: Builder, x: Expr) -> Expr:
    """Each matrix transposed."""
    rank = len(static_shape(x.ty))
    return builder.emit(relax.op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


CONVERTERS: dict[str, Converter] = {
    "_cdist_forward.default": cdist,
    "_euclidean_dist.default": partial(cdist, p=2.0, mode=_BY_A_PRODUCT),
    "_pdist_forward.default": pdist,
    "cdist.default": cdist,
}
