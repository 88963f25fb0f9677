"""Orthogonal factors by Householder's reflections."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.matrices.stacks import Stacks, batch_of
from tvm_xengine.relax_ir.types import static_shape


def qr(builder: Builder, a: Expr, mode: str = "reduced") -> list[Expr]:
    """(Q, R) of A = Q R with the signs of LAPACK; Q has no elements where only R is asked for.

    A Q of more columns than A has no derivative, as in PyTorch.
    """
    m, shape = Stacks(builder), static_shape(a.ty)
    *batch, rows, columns = shape
    width = rows if mode == "complete" else min(rows, columns)
    if prod(shape) == 0:
        q, r = _of_nothing(builder, a, width)
    else:
        matrix = m.of(a)
        is_differentiable = width == min(rows, columns)
        source = m.fixed(matrix) if is_differentiable else matrix
        packed, factor = m.call("reflectors", source)
        q = m.call("product_of_reflections", packed, factor, width)[0]
        r = m.upper(m.block(packed, (0, width), (0, columns)))
        if is_differentiable:
            d_q, d_r = _changes(m, matrix, q, r)
            q, r = m.tied(q, d_q), m.tied(r, d_r)
    q, r = m.shaped(q, (*batch, rows, width)), m.shaped(r, (*batch, width, columns))
    return [builder.emit(relax.op.zeros((0,), str(a.ty.dtype))) if mode == "r" else q, r]


def _of_nothing(builder: Builder, a: Expr, width: int) -> tuple[Expr, Expr]:
    *batch, rows, columns = static_shape(a.ty)
    dtype = str(a.ty.dtype)
    q = np.broadcast_to(np.eye(rows, width, dtype=dtype), (*batch, rows, width))
    known = relax.const(q, dtype) if q.size else builder.emit(relax.op.zeros(q.shape, dtype))
    return known, builder.emit(relax.op.zeros((*batch, width, columns), dtype))


def _changes(m: Stacks, matrix: Expr, q: Expr, r: Expr) -> tuple[Expr, Expr]:
    """dQ and dR: of Q^T dA R^-1 the part below the diagonal, made skew, turns Q.

    Of a wide matrix the square part determines Q, and the rest changes with it.
    """
    columns = static_shape(matrix.ty)[-1]
    size = static_shape(q.ty)[-1]
    square = m.block(r, (0, size), (0, size))
    head = m.block(matrix, (0, static_shape(matrix.ty)[1]), (0, size))
    scaled = m.turned(m.call("solve_triangular", square, m.turned(head), 1, 1, 0)[0])
    inner = m.product(m.turned(q), scaled)
    below = m.lower(inner, -1)
    skew = m.minus(below, m.turned(below))
    rest = m.minus(inner, skew)
    d_q, d_r = m.minus(scaled, m.product(q, rest)), m.product(rest, square)
    if columns > size:
        tail = m.block(matrix, (0, static_shape(matrix.ty)[1]), (size, columns))
        d_tail = m.plus(
            m.product(m.turned(d_q), q, m.block(r, (0, size), (size, columns))),
            m.product(m.turned(q), tail),
        )
        d_r = m.builder.emit(relax.op.concat([d_r, d_tail], 2))
    return d_q, d_r


def old_qr(builder: Builder, a: Expr, some: bool = True) -> list[Expr]:
    """The same under its old name."""
    return qr(builder, a, "reduced" if some else "complete")


def geqrf(builder: Builder, a: Expr) -> list[Expr]:
    """(R above the diagonal and the reflections below, their factors), without a derivative."""
    m, shape = Stacks(builder), static_shape(a.ty)
    *batch, rows, columns = shape
    if prod(shape) == 0:
        zeros = builder.emit(relax.op.zeros((*batch, min(rows, columns)), str(a.ty.dtype)))
        return [a, zeros]
    packed, factor = m.call("reflectors", m.of(a))
    return [m.shaped(packed, shape), m.shaped(factor, (*batch, min(rows, columns)))]


def householder_product(builder: Builder, vectors: Expr, factors: Expr) -> Expr:
    """The first columns of the product of reflections."""
    m, shape = Stacks(builder), static_shape(vectors.ty)
    if prod(shape) == 0:
        return vectors
    stack = m.of(vectors)
    count, rows, columns = static_shape(stack.ty)
    dtype = str(vectors.ty.dtype)
    unit = np.broadcast_to(np.eye(rows, columns, dtype=dtype), (count, rows, columns))
    return m.shaped(_reflected(m, stack, factors, relax.const(unit, dtype)), shape)


def ormqr(
    builder: Builder,
    vectors: Expr,
    factors: Expr,
    other: Expr,
    left: bool = True,
    transpose: bool = False,
) -> Expr:
    """The product of reflections times a matrix, either of them transposed or exchanged."""
    m = Stacks(builder)
    batch, shape = batch_of(vectors, other), static_shape(other.ty)
    if prod(shape) == 0:
        return other
    target = m.of(other, batch)
    if not left:
        target, transpose = m.turned(target), not transpose
    made = _reflected(m, m.of(vectors, batch), factors, target, in_order=transpose)
    return m.shaped(made if left else m.turned(made), shape)


def _reflected(
    m: Stacks, vectors: Expr, factors: Expr, target: Expr, *, in_order: bool = False
) -> Expr:
    """The target after the reflections I - t v v^T, the last one first."""
    count, rows, _ = static_shape(vectors.ty)
    steps, dtype = static_shape(factors.ty)[-1], str(vectors.ty.dtype)
    if steps == 0:
        return target
    row = m.shaped(factors, (count, 1, steps))
    for step in range(steps) if in_order else reversed(range(steps)):
        column = m.block(vectors, (0, rows), (step, step + 1))
        places = np.arange(rows).reshape(1, rows, 1)
        below = m.builder.emit(
            relax.op.where(relax.const(places > step, "bool"), column, relax.const(0, dtype))
        )
        vector = m.plus(below, relax.const((places == step).astype(dtype), dtype))
        factor = m.block(row, (0, 1), (step, step + 1))
        along = m.times(m.product(m.turned(vector), target), factor)
        target = m.minus(target, m.product(vector, along))
    return target


CONVERTERS: dict[str, Converter] = {
    "geqrf.default": geqrf,
    **dict.fromkeys(("linalg_householder_product.default", "orgqr.default"), householder_product),
    "linalg_qr.default": qr,
    "ormqr.default": ormqr,
    "qr.default": old_qr,
}
