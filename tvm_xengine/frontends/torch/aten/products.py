"""Matrix products, attention, and forms of two vectors."""

from __future__ import annotations

from functools import partial
from math import inf, prod, sqrt

import numpy as np
import torch
from tvm import relax

from tvm_xengine.frontends.torch.aten.arithmetic import binary
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, dtype_name, scalar
from tvm_xengine.frontends.torch.aten.creation import as_type
from tvm_xengine.frontends.torch.aten.norms import dropout
from tvm_xengine.relax_ir.types import SHORT_FLOATS, static_shape


def matmul(builder: Builder, left: Expr, right: Expr) -> Expr:
    """Matrix product in the type of its factors; sums of no products are zero."""
    if prod(static_shape(left.ty)) == 0 or prod(static_shape(right.ty)) == 0:
        a, b = (np.zeros(static_shape(one.ty), str(left.ty.dtype)) for one in (left, right))
        return relax.const(a @ b, str(left.ty.dtype))
    return builder.emit(relax.op.matmul(left, right))


def linear(builder: Builder, x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    """x w^T + b."""
    transposed = builder.emit(relax.op.permute_dims(weight))
    y = matmul(builder, x, transposed)
    return y if bias is None else builder.emit(relax.op.add(y, bias))


def _times(builder: Builder, factor: float, x: Expr) -> Expr:
    """x times a number, which is none of a short type."""
    if factor == 1:
        return x
    dtype = str(x.ty.dtype)
    wide = as_type(builder, x, "float32") if dtype in SHORT_FLOATS else x
    return as_type(builder, binary(relax.op.multiply, builder, wide, factor), dtype)


def product_and_sum(
    contract: Converter,
    builder: Builder,
    shift: Expr,
    left: Expr,
    right: Expr,
    beta: float,
    alpha: float,
) -> Expr:
    """beta * shift + alpha * a product; what is not added at all may be NaN."""
    y = _times(builder, alpha, contract(builder, left, right))
    if beta == 0:
        return y
    return builder.emit(relax.op.add(_times(builder, beta, shift), y))


def outer(builder: Builder, left: Expr, right: Expr) -> Expr:
    """Every element times every other."""
    return builder.emit(
        relax.op.multiply(relax.op.expand_dims(left, -1), relax.op.expand_dims(right, 0))
    )


def matrix_vector(builder: Builder, left: Expr, right: Expr) -> Expr:
    """A matrix times a vector."""
    column = matmul(builder, left, builder.emit(relax.op.expand_dims(right, 1)))
    return builder.emit(relax.op.squeeze(column, [1]))


def dot(builder: Builder, left: Expr, right: Expr) -> Expr:
    """The sum of products of elements."""
    return builder.emit(relax.op.sum(relax.op.multiply(left, right)))


def summed_products(builder: Builder, left: Expr, right: Expr) -> Expr:
    """The sum over a stack of matrix products."""
    return builder.emit(relax.op.sum(matmul(builder, left, right), [0]))


def attention(
    builder: Builder,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None,
    rate: float,
    is_causal: bool,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """softmax(q k^T * scale + mask) v over the last two axes."""
    if enable_gqa:
        copies = static_shape(query.ty)[-3] // static_shape(key.ty)[-3]
        key, value = (
            builder.emit(relax.op.repeat(x, copies, len(static_shape(x.ty)) - 3))
            for x in (key, value)
        )
    rows, width = static_shape(query.ty)[-2:]
    columns, rank = static_shape(key.ty)[-2], len(static_shape(key.ty))
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if columns == 0:  # there is nothing to attend to
        shape = (*static_shape(query.ty)[:-1], static_shape(value.ty)[-1])
        return builder.emit(relax.op.zeros(shape, str(value.ty.dtype)))
    scores = builder.emit(relax.op.matmul(query, builder.emit(relax.op.permute_dims(key, swap))))
    factor = 1 / sqrt(width) if scale is None else scale
    scores = _times(builder, factor, scores)
    if is_causal:
        visible = relax.const(np.tri(rows, columns) > 0, "bool")
        scores = builder.emit(relax.op.where(visible, scores, scalar(-inf, query)))
    if mask is not None and str(mask.ty.dtype) == "bool":
        scores = builder.emit(relax.op.where(mask, scores, scalar(-inf, query)))
    elif mask is not None:
        scores = builder.emit(relax.op.add(scores, mask))
    shares = (
        safe_softmax(builder, scores, -1, None)
        if mask is not None
        else builder.emit(relax.op.nn.softmax(scores, axis=-1))
    )
    return builder.emit(relax.op.matmul(dropout(builder, shares, rate, True), value))


def safe_softmax(builder: Builder, x: Expr, dim: int, dtype: torch.dtype | None) -> Expr:
    """Softmax with zeros where a whole row is -inf."""
    if dtype is not None:
        x = as_type(builder, x, dtype_name(dtype))
    if not static_shape(x.ty):
        return softmax(relax.op.nn.softmax, builder, x, dim)
    most = relax.op.max(relax.op.grad.no_grad(x), [dim], keepdims=True)
    hidden = builder.emit(relax.op.equal(most, scalar(-inf, x)))
    plain = builder.emit(relax.op.where(hidden, scalar(0, x), x))
    shares = relax.op.nn.softmax(plain, axis=dim)
    return builder.emit(relax.op.where(hidden, scalar(0, x), builder.emit(shares)))


def softmax(
    operator: Converter,
    builder: Builder,
    x: Expr,
    dim: int,
    dtype: torch.dtype | bool | None = None,
) -> Expr:
    """Shares along an axis, or their logarithms; a scalar is all there is."""
    if isinstance(dtype, torch.dtype):
        x = as_type(builder, x, dtype_name(dtype))
    if not static_shape(x.ty):
        row = builder.emit(relax.op.reshape(x, (1,)))
        return builder.emit(relax.op.reshape(operator(row, axis=0), ()))
    return builder.emit(operator(x, axis=dim))


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
    **{
        f"{name}.{form}": partial(softmax, operator)
        for base, operator in (
            ("softmax", relax.op.nn.softmax),
            ("log_softmax", relax.op.nn.log_softmax),
        )
        for name, form in ((base, "int"), (f"_{base}", "default"))
    },
    "_safe_softmax.default": safe_softmax,
    "addbmm.default": partial(product_and_sum, summed_products),
    "addmm.default": partial(product_and_sum, matmul),
    "addmv.default": partial(product_and_sum, matrix_vector),
    "addr.default": partial(product_and_sum, outer),
    "baddbmm.default": partial(product_and_sum, matmul),
    "bmm.default": matmul,
    "dot.default": dot,
    "linear.default": linear,
    "matmul.default": matmul,
    "mm.default": matmul,
    "mv.default": matrix_vector,
    "outer.default": outer,
    "scaled_dot_product_attention.default": attention,
    "vdot.default": dot,
    "bilinear.default": bilinear,
}
