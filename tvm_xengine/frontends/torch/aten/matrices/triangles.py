"""Triangular factors: Cholesky's and Gauss's, and systems that they solve."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.matrices.stacks import Stacks, batch_of
from tvm_xengine.frontends.torch.aten.matrices.systems import first_place
from tvm_xengine.relax_ir.types import static_shape


def cholesky(builder: Builder, a: Expr, upper: bool = False) -> Expr:
    """L of A = L L^T, or its transpose; it changes by L F(L^-1 dA L^-T), F half of the diagonal and below.

    What lies above the diagonal of A is read backwards only: A is taken for symmetric.
    """
    m, shape = Stacks(builder), static_shape(a.ty)
    if prod(shape) == 0:
        return a
    matrix = m.of(a)
    read = m.turned(matrix) if upper else matrix
    value = m.call("cholesky", m.fixed(read))[0]
    symmetric = m.times(m.plus(matrix, m.turned(matrix)), 0.5)
    left = m.call("solve_triangular", value, symmetric, 0, 0, 0)[0]
    both = m.turned(m.call("solve_triangular", value, m.turned(left), 0, 0, 0)[0])
    half = np.tri(shape[-1]) - np.eye(shape[-1]) / 2
    change = m.product(value, m.times(both, relax.const(half, str(a.ty.dtype))))
    factor = m.tied(value, change)
    return m.shaped(m.turned(factor) if upper else factor, shape)


def cholesky_with_info(
    builder: Builder, a: Expr, upper: bool = False, _check_errors: bool = False
) -> list[Expr]:
    """(the factor, 0 or the order of the first leading minor that is not positive)."""
    batch = static_shape(a.ty)[:-2]
    factor = cholesky(builder, a, upper)
    if prod(static_shape(a.ty)) == 0:
        return [factor, builder.emit(relax.op.zeros(batch, "int32"))]
    m = Stacks(builder)
    missing = relax.op.isnan(m.diagonal(m.of(factor)))
    return [factor, m.shaped(first_place(builder, missing), batch)]


def solve_triangular(
    builder: Builder, a: Expr, b: Expr, upper: bool, left: bool = True, unitriangular: bool = False
) -> Expr:
    """X of T X = B, or of X T = B, T a triangle of A; it changes by T^-1 (dB - dT X)."""
    m, batch = Stacks(builder), batch_of(a, b)
    matrix, right = m.of(a, batch), m.of(b, batch)
    shape = (*batch, *static_shape(right.ty)[1:])
    if prod(shape) == 0:
        return m.shaped(right, shape)
    if not left:
        matrix, right, upper = m.turned(matrix), m.turned(right), not upper
    solved = _triangular(m, matrix, right, upper=upper, unit=unitriangular)
    return m.shaped(solved if left else m.turned(solved), shape)


def _triangular(m: Stacks, matrix: Expr, right: Expr, *, upper: bool, unit: bool) -> Expr:
    held, options = m.fixed(matrix), (int(upper), 0, int(unit))
    value = m.call("solve_triangular", held, m.fixed(right), *options)[0]
    triangle = (m.upper if upper else m.lower)(matrix, (1 if upper else -1) * int(unit))
    rest = m.minus(right, m.product(triangle, m.fixed(value)))
    return m.tied(value, m.call("solve_triangular", held, rest, *options)[0])


def triangular_solve(
    builder: Builder,
    b: Expr,
    a: Expr,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> list[Expr]:
    """(X of T X = B, or of T^T X = B, the matrix)."""
    m, batch = Stacks(builder), batch_of(a, b)
    matrix = m.of(a, batch)
    copy = m.shaped(matrix, (*batch, *static_shape(a.ty)[-2:]))
    turned = m.shaped(m.turned(matrix), static_shape(copy.ty)) if transpose else copy
    return [solve_triangular(builder, turned, b, upper != transpose, True, unitriangular), copy]


def cholesky_solve(builder: Builder, b: Expr, factor: Expr, upper: bool = False) -> Expr:
    """X of A X = B, A = L L^T; it changes by A^-1 (dB - (dL L^T + L dL^T) X), dL any matrix."""
    m, batch = Stacks(builder), batch_of(b, factor)
    right, left = m.of(b, batch), m.of(factor, batch)
    shape = (*batch, *static_shape(right.ty)[1:])
    if prod(shape) == 0:
        return m.shaped(right, shape)
    left = m.turned(left) if upper else left
    held = m.fixed(left)

    def solved(x: Expr) -> Expr:
        inner = m.call("solve_triangular", held, x, 0, 0, 0)[0]
        return m.call("solve_triangular", held, inner, 0, 1, 0)[0]

    value = solved(m.fixed(right))
    half = m.product(left, m.turned(held))
    rest = m.minus(right, m.product(m.plus(half, m.turned(half)), m.fixed(value)))
    return m.shaped(m.tied(value, solved(rest)), shape)


def cholesky_inverse(builder: Builder, factor: Expr, upper: bool = False) -> Expr:
    """The inverse of L L^T."""
    size = static_shape(factor.ty)[-1]
    one = relax.const(np.eye(size, dtype=str(factor.ty.dtype)), str(factor.ty.dtype))
    return factor if size == 0 else cholesky_solve(builder, one, factor, upper)


def lu_factor(builder: Builder, a: Expr, pivot: bool = True) -> list[Expr]:
    """(L and U in one matrix, the exchanges of rows)."""
    m, shape = Stacks(builder), static_shape(a.ty)
    *batch, rows, columns = shape
    steps = min(rows, columns)
    if prod(shape) == 0:
        return [a, builder.emit(relax.op.zeros((*batch, steps), "int32"))]
    matrix = m.of(a)
    factors, pivots = m.call("lu_factor", m.fixed(matrix), int(pivot))
    change = _change_of_factors(m, factors, m.product(_exchanges(m, pivots, rows, a), matrix))
    return [m.shaped(m.tied(factors, change), shape), m.shaped(pivots, (*batch, steps))]


def _change_of_factors(m: Stacks, factors: Expr, matrix: Expr) -> Expr:
    """dL and dU in one matrix, from the matrix with its rows exchanged.

    Of the square part, dL = L low(L^-1 dA U^-1) and dU = up(L^-1 dA U^-1) U; what lies right of it
    changes by L^-1 (dA - dL U), what lies below it by (dA - L dU) U^-1.
    """
    rows, columns = static_shape(factors.ty)[1:]
    size = min(rows, columns)
    square = m.block(factors, (0, size), (0, size))
    one = m.identity(size, factors)
    low, up = m.plus(m.lower(square, -1), one), m.upper(square)

    def under_l(x: Expr) -> Expr:
        return m.call("solve_triangular", square, x, 0, 0, 1)[0]

    def over_u(x: Expr) -> Expr:
        return m.turned(m.call("solve_triangular", square, m.turned(x), 1, 1, 0)[0])

    inner = over_u(under_l(m.block(matrix, (0, size), (0, size))))
    d_low, d_up = m.product(low, m.lower(inner, -1)), m.product(m.upper(inner), up)
    change = m.plus(d_low, d_up)
    if columns > size:
        right, beside = (m.block(x, (0, size), (size, columns)) for x in (matrix, factors))
        d_right = under_l(m.minus(right, m.product(d_low, beside)))
        change = m.builder.emit(relax.op.concat([change, d_right], 2))
    if rows > size:
        below, under = (m.block(x, (size, rows), (0, size)) for x in (matrix, factors))
        d_below = over_u(m.minus(below, m.product(under, d_up)))
        change = m.builder.emit(relax.op.concat([change, d_below], 1))
    return change


def _exchanges(m: Stacks, pivots: Expr, rows: int, like: Expr) -> Expr:
    """The permutations that the exchanges make of the unit matrix: P^T of A = P L U."""
    count, steps = static_shape(pivots.ty)
    dtype = str(like.ty.dtype)
    # Elimination of nothing leaves the exchanges alone.
    nothing = m.builder.emit(relax.op.zeros((count, rows, rows), dtype))
    if steps < rows:
        numbers = np.broadcast_to(np.arange(steps + 1, rows + 1), (count, rows - steps))
        pivots = m.builder.emit(relax.op.concat([pivots, relax.const(numbers, "int32")], 1))
    one = m.identity(rows, like, count)
    unit = m.plus(nothing, one)
    return m.call("lu_solve", unit, pivots, one, 0)[0]


def lu_factor_with_info(
    builder: Builder, a: Expr, pivot: bool = True, _check_errors: bool = False
) -> list[Expr]:
    """(the factors, the exchanges, 0 or the place of the first pivot that is zero)."""
    factors, pivots = lu_factor(builder, a, pivot)
    m, batch = Stacks(builder), static_shape(a.ty)[:-2]
    if prod(static_shape(a.ty)) == 0:
        return [factors, pivots, builder.emit(relax.op.zeros(batch, "int32"))]
    size = min(static_shape(a.ty)[-2:])
    diagonal = m.diagonal(m.block(m.of(factors), (0, size), (0, size)))
    zero = relax.op.equal(diagonal, relax.const(0, str(a.ty.dtype)))
    return [factors, pivots, m.shaped(first_place(builder, zero), batch)]


def lu_unpack(
    builder: Builder,
    factors: Expr,
    pivots: Expr,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[Expr]:
    """(P, L, U); what is not asked for has no elements."""
    m, shape = Stacks(builder), static_shape(factors.ty)
    *batch, rows, columns = shape
    size, dtype = min(rows, columns), str(factors.ty.dtype)
    empty = builder.emit(relax.op.zeros((0,), dtype))
    if prod(shape) == 0:
        raise UnsupportedModelError("factors without elements; leave such a matrix out")
    low = up = permutation = empty
    stack = m.of(factors)
    if unpack_data:
        left = m.block(stack, (0, rows), (0, size))
        one = relax.const(np.eye(rows, size, dtype=dtype), dtype)
        low = m.shaped(m.plus(m.lower(left, -1), one), (*batch, rows, size))
        up = m.shaped(m.upper(m.block(stack, (0, size), (0, columns))), (*batch, size, columns))
    if unpack_pivots:
        flat = m.shaped(pivots, (prod(batch), size))
        turned = m.turned(_exchanges(m, flat, rows, factors))
        permutation = m.shaped(turned, (*batch, rows, rows))
    return [permutation, low, up]


def lu(builder: Builder, a: Expr, pivot: bool = True) -> list[Expr]:
    """(P, L, U); P has no elements without exchanges."""
    factors, pivots = lu_factor(builder, a, pivot)
    return lu_unpack(builder, factors, pivots, True, pivot)


def lu_solve(
    builder: Builder,
    factors: Expr,
    pivots: Expr,
    b: Expr,
    left: bool = True,
    adjoint: bool = False,
) -> Expr:
    """X of A X = B (X A = B) from the factors of A, or of A^T where `adjoint`."""
    m, batch = Stacks(builder), batch_of(factors, b)
    right = m.of(b, batch)
    shape = (*batch, *static_shape(right.ty)[1:])
    if prod(shape) == 0:
        return m.shaped(right, shape)
    if not left:
        right, adjoint = m.turned(right), not adjoint
    stack = m.of(factors, batch)
    size = static_shape(stack.ty)[-1]
    wide = builder.emit(relax.op.broadcast_to(pivots, (*batch, size)))
    exchange = _exchanges(m, m.shaped(wide, (prod(batch), size)), size, factors)
    if adjoint:
        turned = m.turned(stack)
        inner = _triangular(m, turned, right, upper=False, unit=False)
        outer = _triangular(m, turned, inner, upper=True, unit=True)
        solved = m.product(m.turned(exchange), outer)
    else:
        inner = _triangular(m, stack, m.product(exchange, right), upper=False, unit=True)
        solved = _triangular(m, stack, inner, upper=True, unit=False)
    return m.shaped(solved if left else m.turned(solved), shape)


def old_lu_solve(builder: Builder, b: Expr, factors: Expr, pivots: Expr) -> Expr:
    """The same with its arguments in another order."""
    return lu_solve(builder, factors, pivots, b)


CONVERTERS: dict[str, Converter] = {
    "_lu_with_info.default": lu_factor_with_info,
    **dict.fromkeys(("cholesky.default", "linalg_cholesky.default"), cholesky),
    "cholesky_inverse.default": cholesky_inverse,
    "cholesky_solve.default": cholesky_solve,
    "linalg_cholesky_ex.default": cholesky_with_info,
    "linalg_lu.default": lu,
    "linalg_lu_factor.default": lu_factor,
    "linalg_lu_factor_ex.default": lu_factor_with_info,
    "linalg_lu_solve.default": lu_solve,
    "linalg_solve_triangular.default": solve_triangular,
    "lu_solve.default": old_lu_solve,
    "lu_unpack.default": lu_unpack,
    "triangular_solve.default": triangular_solve,
}
