"""Eigenvalues, singular values, and functions of matrices.

Signs of eigenvectors and singular vectors are not determined; those here need not be PyTorch's.
"""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.frontends.torch.aten.matrices.stacks import Stacks
from tvm_xengine.relax_ir.types import static_shape


def eigen(builder: Builder, a: Expr, triangle: str = "L", compute_v: bool = True) -> list[Expr]:
    """(eigenvalues in ascending order, eigenvectors as columns) of a symmetric matrix.

    With P = V^T dA V the values change by its diagonal, the vectors by V (P / (w_j - w_i)).
    """
    m, shape = Stacks(builder), static_shape(a.ty)
    nothing = builder.emit(relax.op.zeros((0,), str(a.ty.dtype)))
    if prod(shape) == 0:
        values = builder.emit(relax.op.zeros(shape[:-1], str(a.ty.dtype)))
        return [values, a if compute_v else nothing]
    matrix = m.of(a)
    values, vectors = m.call("eigen", m.fixed(matrix), int(triangle.upper() == "U"))
    symmetric = m.times(m.plus(matrix, m.turned(matrix)), 0.5)
    inner = m.product(m.turned(vectors), symmetric, vectors)
    tied = m.shaped(m.tied(values, m.diagonal(inner)), shape[:-1])
    if not compute_v:
        return [tied, nothing]
    change = m.product(vectors, m.times(inner, _inverse_distances(m, values)))
    return [tied, m.shaped(m.tied(vectors, change), shape)]


def _inverse_distances(m: Stacks, values: Expr) -> Expr:
    """1 / (w_j - w_i) beside the diagonal, on which it is 0."""
    builder = m.builder
    row, column = (builder.emit(relax.op.expand_dims(values, axis)) for axis in (1, 2))
    apart = m.minus(row, column)
    size = static_shape(values.ty)[-1]
    one = m.identity(size, values)
    inverse = builder.emit(relax.op.divide(scalar(1, values), m.plus(apart, one)))
    return m.minus(inverse, one)


def svd(
    builder: Builder,
    a: Expr,
    full_matrices: bool = False,
    compute_uv: bool = True,
    _driver: str | None = None,
) -> list[Expr]:
    """(U, singular values in descending order, V^T)."""
    m, shape = Stacks(builder), static_shape(a.ty)
    *batch, rows, columns = shape
    size = min(rows, columns)
    nothing = builder.emit(relax.op.zeros((0,), str(a.ty.dtype)))
    left_width, right_width = (rows, columns) if full_matrices else (size, size)
    if prod(shape) == 0:
        left, right = _bases_of_nothing(builder, a, left_width, right_width)
        values = builder.emit(relax.op.zeros((*batch, size), str(a.ty.dtype)))
        return [left, values, right] if compute_uv else [nothing, values, nothing]
    matrix = m.of(a)
    left, values, right = _factors(m, m.fixed(matrix), max(left_width, right_width))
    inner_left, inner_right = (m.block(x, (0, _rows(x)), (0, size)) for x in (left, right))
    inner = m.product(m.turned(inner_left), matrix, inner_right)
    tied = m.shaped(m.tied(values, m.diagonal(inner)), (*batch, size))
    if not compute_uv:
        return [nothing, tied, nothing]
    d_left, d_right = _changes_of_vectors(m, matrix, inner_left, values, inner_right, inner)
    left = _first_tied(m, left, inner_left, d_left)
    right = m.turned(_first_tied(m, right, inner_right, d_right))
    return [
        m.shaped(left, (*batch, rows, left_width)),
        tied,
        m.shaped(right, (*batch, right_width, columns)),
    ]


def _rows(x: Expr) -> int:
    return static_shape(x.ty)[1]


def _bases_of_nothing(
    builder: Builder, a: Expr, left_width: int, right_width: int
) -> tuple[Expr, Expr]:
    *batch, rows, columns = static_shape(a.ty)
    dtype = str(a.ty.dtype)
    made = []
    for height, width in ((rows, left_width), (right_width, columns)):
        shape = (*batch, height, width)
        unit = np.broadcast_to(np.eye(height, width, dtype=dtype), shape)
        empty = builder.emit(relax.op.zeros(shape, dtype))
        made.append(relax.const(unit, dtype) if unit.size else empty)
    return made[0], made[1]


def _factors(m: Stacks, matrix: Expr, width: int) -> tuple[Expr, Expr, Expr]:
    """(U, singular values, V), the wider of U and V with so many columns."""
    rows, columns = static_shape(matrix.ty)[1:]
    if rows >= columns:
        left, values, right = m.call("singular", matrix, width)
    else:
        right, values, left = m.call("singular", m.turned(matrix), width)
    return left, values, right


def _changes_of_vectors(
    m: Stacks, matrix: Expr, left: Expr, values: Expr, right: Expr, inner: Expr
) -> tuple[Expr, Expr]:
    """dU and dV: with P = U^T dA V, U turns by (P S + S P^T) / (s_j^2 - s_i^2), V by the same of P^T.

    What lies outside the spaces of U and V adds (1 - U U^T) dA V / S, and the same of dA^T.
    """
    row, column = (m.builder.emit(relax.op.expand_dims(values, axis)) for axis in (1, 2))
    apart = _inverse_distances(m, m.times(values, values))

    def change(own: Expr, other: Expr, source: Expr, scaled: Expr) -> Expr:
        turn = m.product(own, m.times(m.plus(scaled, m.turned(scaled)), apart))
        if _rows(own) == static_shape(own.ty)[2]:
            return turn
        seen = m.product(source, other)
        outside = m.minus(seen, m.product(own, m.turned(own), seen))
        return m.plus(turn, m.builder.emit(relax.op.divide(outside, row)))

    return (
        change(left, right, matrix, m.times(inner, row)),
        change(right, left, m.turned(matrix), m.times(inner, column)),
    )


def _first_tied(m: Stacks, whole: Expr, part: Expr, change: Expr) -> Expr:
    """The whole basis, of which the first vectors have a derivative."""
    size, width = static_shape(part.ty)[2], static_shape(whole.ty)[2]
    tied = m.tied(part, change)
    if width == size:
        return tied
    rest = m.block(whole, (0, _rows(whole)), (size, width))
    return m.builder.emit(relax.op.concat([tied, rest], 2))


def pseudo_inverse(
    builder: Builder,
    a: Expr,
    atol: Expr | None = None,
    rtol: Expr | None = None,
    hermitian: bool = False,
) -> Expr:
    """V S^-1 U^T without singular values at or below max(atol, rtol * the greatest one).

    It changes by - Y dA Y + Y Y^T dA^T (1 - A Y) + (1 - Y A) dA^T Y^T Y (Golub and Pereyra, 1973).
    """
    m, shape = Stacks(builder), static_shape(a.ty)
    *batch, rows, columns = shape
    if prod(shape) == 0:
        return builder.emit(relax.op.zeros((*batch, columns, rows), str(a.ty.dtype)))
    matrix = m.of(a)
    held = m.fixed(matrix)
    if hermitian:
        values, left = m.call("eigen", held, 0)
        right, size = left, builder.emit(relax.op.abs(values))
    else:
        left, values, right = _factors(m, held, min(rows, columns))
        size = values
    kept = _above(m, size, atol, rtol, a)
    inverse = builder.emit(relax.op.divide(scalar(1, a), values))
    scale = builder.emit(relax.op.where(kept, inverse, scalar(0, a)))
    scaled = m.times(right, builder.emit(relax.op.expand_dims(scale, 1)))
    value = m.product(scaled, m.turned(left))
    turned, value_turned = m.turned(matrix), m.turned(value)
    beyond = m.minus(turned, m.product(turned, held, value))
    before = m.minus(turned, m.product(value, held, turned))
    change = m.minus(
        m.plus(m.product(value, value_turned, beyond), m.product(before, value_turned, value)),
        m.product(value, matrix, value),
    )
    return m.shaped(m.tied(value, change), (*batch, columns, rows))


def _above(m: Stacks, size: Expr, atol: Expr | None, rtol: Expr | None, a: Expr) -> Expr:
    """Which singular values count; a given absolute bound replaces the usual relative one."""
    builder, shape = m.builder, static_shape(a.ty)
    least = float(np.finfo(str(a.ty.dtype)).eps) * max(shape[-2:])
    usual = scalar(least, a)

    def column(bound: Expr) -> Expr:
        wide = builder.emit(relax.op.broadcast_to(bound, shape[:-2]))
        return m.shaped(wide, (prod(shape[:-2]), 1))

    absolute = m.fixed(column(scalar(0, a) if atol is None else atol))
    if rtol is not None:
        relative = m.fixed(column(rtol))
    elif atol is not None:
        given = builder.emit(relax.op.greater(absolute, scalar(0, a)))
        relative = builder.emit(relax.op.where(given, scalar(0, a), usual))
    else:
        relative = column(usual)
    most = builder.emit(relax.op.max(size, [1], keepdims=True))
    bound = builder.emit(relax.op.maximum(absolute, m.times(most, relative)))
    return builder.emit(relax.op.greater(size, bound))


def matrix_exp(builder: Builder, a: Expr) -> Expr:
    """The exponential of matrices."""
    if prod(static_shape(a.ty)) == 0:
        return a
    m = Stacks(builder)
    return m.shaped(m.call("matrix_exp", m.of(a))[0], static_shape(a.ty))


CONVERTERS: dict[str, Converter] = {
    "_linalg_eigh.default": eigen,
    "_linalg_svd.default": svd,
    "linalg_matrix_exp.default": matrix_exp,
    "linalg_pinv.atol_rtol_tensor": pseudo_inverse,
    "matrix_exp.default": matrix_exp,
}
