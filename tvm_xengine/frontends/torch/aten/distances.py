"""Distances between rows, and forms of two vectors."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.literals import scalar
from tvm_xengine.relax_ir.types import static_shape


def cdist(builder: Builder, left: Expr, right: Expr, p: float, _mode: int | None) -> Expr:
    """The p-norm of every row of `left` less every row of `right`; its gradient is 0 at distance 0."""
    rank = len(static_shape(left.ty))
    wide = builder.emit(relax.op.expand_dims(left, rank - 1))
    other = builder.emit(relax.op.expand_dims(right, len(static_shape(right.ty)) - 2))
    apart = builder.emit(relax.op.abs(builder.emit(relax.op.subtract(wide, other))))
    if p == 1:
        return builder.emit(relax.op.sum(apart, [-1]))
    if p == inf:
        return builder.emit(relax.op.max(apart, [-1]))
    if p == 2:
        squares = builder.emit(relax.op.multiply(apart, apart))
        return _where_positive(builder, builder.emit(relax.op.sum(squares, [-1])), relax.op.sqrt)
    if p < 1:
        raise UnsupportedModelError(f"distances of the norm p = {p}; p must be at least 1")
    powers = builder.emit(relax.op.power(apart, scalar(p, apart)))
    total = builder.emit(relax.op.sum(powers, [-1]))
    return _where_positive(builder, total, lambda s: relax.op.power(s, scalar(1 / p, s)))


def _where_positive(builder: Builder, x: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """The function where x > 0, and 0 elsewhere, where its slope would not be finite."""
    zero, one = scalar(0.0, x), scalar(1.0, x)
    is_positive = builder.emit(relax.op.greater(x, zero))
    safe = builder.emit(relax.op.where(is_positive, x, one))
    return builder.emit(relax.op.where(is_positive, builder.emit(function(safe)), zero))


def bilinear(builder: Builder, left: Expr, right: Expr, weight: Expr, bias: Expr | None) -> Expr:
    """left^T W_k right for each output k, plus its bias."""
    *lead, inner = static_shape(left.ty)
    outputs, _, other = static_shape(weight.ty)
    rows = prod(lead)
    flat = builder.emit(relax.op.reshape(left, (rows, inner)))
    matrix = builder.emit(relax.op.permute_dims(weight, (1, 0, 2)))
    matrix = builder.emit(relax.op.reshape(matrix, (inner, outputs * other)))
    half = builder.emit(relax.op.matmul(flat, matrix))
    half = builder.emit(relax.op.reshape(half, (rows, outputs, other)))
    column = builder.emit(relax.op.reshape(right, (rows, other, 1)))
    y = builder.emit(relax.op.matmul(half, column))
    y = builder.emit(relax.op.reshape(y, (*lead, outputs)))
    return y if bias is None else builder.emit(relax.op.add(y, bias))


CONVERTERS: dict[str, Converter] = {
    "_cdist_forward.default": cdist,
    "bilinear.default": bilinear,
}
