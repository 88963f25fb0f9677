"""Linear systems, inverses and determinants, by Gauss's elimination."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.frontends.torch.aten.matrices.stacks import Stacks, batch_of
from tvm_xengine.relax_ir.types import static_shape

_FACTORS = 1
"""With exchange of rows."""


def solve(builder: Builder, a: Expr, b: Expr, left: bool = True) -> Expr:
    """X of A X = B, or of X A = B; B may be a vector."""
    shape = static_shape(a.ty)
    is_vector = len(static_shape(b.ty)) == 1 or static_shape(b.ty) == shape[:-1]
    if is_vector:
        b = builder.emit(relax.op.expand_dims(b, -1))
    batch, m = batch_of(a, b), Stacks(builder)
    matrix, right = m.of(a, batch), m.of(b, batch)
    if not left:
        matrix, right = m.turned(matrix), m.turned(right)
    if prod(static_shape(right.ty)) == 0:
        solution = right
    else:
        factors, pivots = m.call("lu_factor", m.fixed(matrix), _FACTORS)
        value = m.call("lu_solve", factors, pivots, m.fixed(right), 0)[0]
        rest = m.minus(right, m.product(matrix, m.fixed(value)))
        solution = m.tied(value, m.call("lu_solve", factors, pivots, rest, 0)[0])
    if not left:
        solution = m.turned(solution)
    rows, columns = static_shape(solution.ty)[1:]
    return m.shaped(solution, (*batch, rows) if is_vector else (*batch, rows, columns))


def solve_with_info(
    builder: Builder, a: Expr, b: Expr, left: bool = True, _check_errors: bool = False
) -> list[Expr]:
    """(the solution, 0 or the place of the first pivot that is zero)."""
    return [solve(builder, a, b, left), _info(builder, a)]


def solve_with_factors(
    builder: Builder, a: Expr, b: Expr, left: bool = True, _check_errors: bool = False
) -> list[Expr]:
    """(the solution, the factors, the pivots, as above)."""
    factors, pivots = _lu(builder, a)
    return [solve(builder, a, b, left), factors, pivots, _info(builder, a)]


def inverse(builder: Builder, a: Expr) -> Expr:
    """The inverse Y of A, which changes by - Y dA Y."""
    m = Stacks(builder)
    matrix = m.of(a)
    if prod(static_shape(a.ty)) == 0:
        return a
    count, size, _ = static_shape(matrix.ty)
    factors, pivots = m.call("lu_factor", m.fixed(matrix), _FACTORS)
    value = m.call("lu_solve", factors, pivots, m.identity(size, a, count), 0)[0]
    change = m.times(m.product(value, matrix, value), -1.0)
    return m.shaped(m.tied(value, change), static_shape(a.ty))


def inverse_with_info(builder: Builder, a: Expr, _check_errors: bool = False) -> list[Expr]:
    """(the inverse, 0 or the place of the first pivot that is zero)."""
    return [inverse(builder, a), _info(builder, a)]


def tensor_inverse(builder: Builder, a: Expr, ind: int = 2) -> Expr:
    """The inverse of the matrix that the first axes make with the others."""
    shape, m = static_shape(a.ty), Stacks(builder)
    first, others = shape[:ind], shape[ind:]
    matrix = m.shaped(a, (prod(first), prod(others)))
    return m.shaped(inverse(builder, matrix), (*others, *first))


def determinant(builder: Builder, a: Expr) -> Expr:
    """The product of the pivots; it changes by det A tr(A^-1 dA).

    A pivot of zero is a small number in the derivative, as in PyTorch.
    """
    m = Stacks(builder)
    *batch, size, _ = static_shape(a.ty)
    if size == 0:
        return relax.const(np.ones(batch), str(a.ty.dtype))
    matrix = m.of(a)
    factors, pivots = m.call("lu_factor", m.fixed(matrix), _FACTORS)
    pivot = m.diagonal(factors)
    value = m.times(builder.emit(relax.op.prod(pivot, [1])), _sign(m, pivots, a))
    is_zero = builder.emit(relax.op.equal(pivot, scalar(0, a)))
    least = float(np.finfo(str(a.ty.dtype)).eps)
    missing = builder.emit(relax.op.where(is_zero, scalar(least, a), scalar(0, a)))
    regular = m.plus(factors, m.on_diagonal(missing))
    trace = m.diagonal(m.call("lu_solve", regular, pivots, matrix, 0)[0])
    change = m.times(builder.emit(relax.op.sum(trace, [1])), value)
    return m.shaped(m.tied(value, change), batch)


def logarithm_of_determinant(builder: Builder, a: Expr) -> list[Expr]:
    """(the sign of the determinant, the logarithm of its absolute value)."""
    m = Stacks(builder)
    *batch, size, _ = static_shape(a.ty)
    if size == 0:
        ones = relax.const(np.ones(batch), str(a.ty.dtype))
        return [ones, relax.const(np.zeros(batch), str(a.ty.dtype))]
    matrix = m.of(a)
    factors, pivots = m.call("lu_factor", m.fixed(matrix), _FACTORS)
    pivot = m.diagonal(factors)
    sign = m.times(builder.emit(relax.op.prod(relax.op.sign(pivot), [1])), _sign(m, pivots, a))
    value = builder.emit(relax.op.sum(relax.op.log(relax.op.abs(pivot)), [1]))
    trace = m.diagonal(m.call("lu_solve", factors, pivots, matrix, 0)[0])
    tied = m.tied(value, builder.emit(relax.op.sum(trace, [1])))
    return [m.shaped(sign, batch), m.shaped(tied, batch)]


def log_determinant(builder: Builder, a: Expr) -> Expr:
    """log det A, NaN where the determinant is negative."""
    sign, value = logarithm_of_determinant(builder, a)
    negative = builder.emit(relax.op.equal(sign, scalar(-1, a)))
    return builder.emit(relax.op.where(negative, scalar(float("nan"), a), value))


def _sign(m: Stacks, pivots: Expr, like: Expr) -> Expr:
    """-1 for every exchange of rows."""
    size = static_shape(pivots.ty)[-1]
    stays = relax.op.equal(pivots, relax.const(np.arange(1, size + 1), "int32"))
    signs = relax.op.where(m.builder.emit(stays), scalar(1, like), scalar(-1, like))
    return m.builder.emit(relax.op.prod(m.builder.emit(signs), [1]))


def _lu(builder: Builder, a: Expr) -> tuple[Expr, Expr]:
    """Factors and pivots that nothing differentiates: buffers for PyTorch's backward pass."""
    m, shape = Stacks(builder), static_shape(a.ty)
    if prod(shape) == 0:
        return a, builder.emit(relax.op.zeros(shape[:-1], "int32"))
    factors, pivots = m.call("lu_factor", m.fixed(m.of(a)), _FACTORS)
    return m.shaped(factors, shape), m.shaped(pivots, shape[:-1])


def _info(builder: Builder, a: Expr) -> Expr:
    """0, or the place of the first pivot that is zero, counted from one."""
    batch = static_shape(a.ty)[:-2]
    if prod(static_shape(a.ty)) == 0:
        return builder.emit(relax.op.zeros(batch, "int32"))
    m = Stacks(builder)
    pivot = m.diagonal(m.call("lu_factor", m.fixed(m.of(a)), _FACTORS)[0])
    return m.shaped(first_place(builder, relax.op.equal(pivot, scalar(0, a))), batch)


def first_place(builder: Builder, found: Expr) -> Expr:
    """The first place in a row that is true, counted from one; 0 where none is."""
    marks = builder.emit(relax.op.astype(builder.emit(found), "int32"))
    first = relax.op.astype(relax.op.argmax(marks, 1), "int32")
    counted = builder.emit(relax.op.add(first, relax.const(1, "int32")))
    return builder.emit(relax.op.multiply(counted, relax.op.max(marks, [1])))


def _with_factors(function: Callable[[Builder, Expr], object]) -> Converter:
    def converted(builder: Builder, a: Expr) -> list[Expr]:
        made = function(builder, a)
        return [*(made if isinstance(made, list) else [made]), *_lu(builder, a)]

    return converted


CONVERTERS: dict[str, Converter] = {
    "_linalg_det.default": _with_factors(determinant),
    "_linalg_slogdet.default": _with_factors(logarithm_of_determinant),
    "_linalg_solve_ex.default": solve_with_factors,
    **dict.fromkeys(("det.default", "linalg_det.default"), determinant),
    **dict.fromkeys(("inverse.default", "linalg_inv.default"), inverse),
    **dict.fromkeys(("slogdet.default", "linalg_slogdet.default"), logarithm_of_determinant),
    "linalg_inv_ex.default": inverse_with_info,
    "linalg_solve.default": solve,
    "linalg_tensorinv.default": tensor_inverse,
    "linalg_solve_ex.default": solve_with_info,
    "logdet.default": log_determinant,
}
