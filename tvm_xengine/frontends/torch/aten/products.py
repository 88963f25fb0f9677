"""Matrix products and attention."""

from __future__ import annotations

from math import sqrt

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.literals import scalar
from tvm_xengine.frontends.torch.aten.norms import dropout
from tvm_xengine.relax_ir.types import static_shape


def matmul(builder: relax.BlockBuilder, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Matrix product in the type of its factors."""
    return builder.emit(relax.op.matmul(left, right))


def linear(
    builder: relax.BlockBuilder, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    """x w^T + b."""
    transposed = builder.emit(relax.op.permute_dims(weight))
    y = builder.emit(relax.op.matmul(x, transposed))
    return y if bias is None else builder.emit(relax.op.add(y, bias))


def addmm(
    builder: relax.BlockBuilder,
    shift: relax.Expr,
    left: relax.Expr,
    right: relax.Expr,
    beta: float,
    alpha: float,
) -> relax.Expr:
    """beta * shift + alpha * left @ right, of matrices or stacks of them."""
    y = builder.emit(relax.op.matmul(left, right))
    if alpha != 1:
        y = builder.emit(relax.op.multiply(y, scalar(alpha, y)))
    if beta != 1:
        shift = builder.emit(relax.op.multiply(shift, scalar(beta, y)))
    return builder.emit(relax.op.add(y, shift))


def attention(
    builder: relax.BlockBuilder,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    mask: relax.Expr | None,
    rate: float,
    is_causal: bool,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> relax.Expr:
    """softmax(q k^T * scale + mask) v over the last two axes."""
    if enable_gqa:
        copies = static_shape(query.ty)[-3] // static_shape(key.ty)[-3]
        key, value = (
            builder.emit(relax.op.repeat(x, copies, len(static_shape(x.ty)) - 3))
            for x in (key, value)
        )
    *outer, rows, width = static_shape(query.ty)
    columns = static_shape(key.ty)[-2]
    rank = len(outer) + 2
    swap = [*range(rank - 2), rank - 1, rank - 2]
    scores = relax.op.matmul(query, builder.emit(relax.op.permute_dims(key, swap)))
    factor = 1 / sqrt(width) if scale is None else scale
    scores = builder.emit(relax.op.multiply(scores, scalar(factor, query)))
    if is_causal:
        visible = np.tri(rows, columns) > 0
        hidden = np.where(visible, 0.0, -1e30).astype(str(query.ty.dtype))
        mask_of_zeros = relax.const(hidden, str(query.ty.dtype))
        scores = builder.emit(relax.op.add(scores, mask_of_zeros))
    if mask is not None and str(mask.ty.dtype) == "bool":
        scores = builder.emit(relax.op.where(mask, scores, scalar(-1e30, query)))
    elif mask is not None:
        scores = builder.emit(relax.op.add(scores, mask))
    shares = builder.emit(relax.op.nn.softmax(scores, axis=-1))
    return builder.emit(relax.op.matmul(dropout(builder, shares, rate, True), value))


CONVERTERS: dict[str, Converter] = {
    "addmm.default": addmm,
    "baddbmm.default": addmm,
    "bmm.default": matmul,
    "linear.default": linear,
    "matmul.default": matmul,
    "mm.default": matmul,
    "scaled_dot_product_attention.default": attention,
}
