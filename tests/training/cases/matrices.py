"""Operators on stacks of matrices; factorisations are held fixed, as front ends use them."""

from collections.abc import Callable

import numpy as np
import torch
from tvm import relax

from tests.training.cases.case import Array, Case, Draw, DrawCase
from tvm_xengine.relax_ir.matrix_ops import VALUE_AND_CHANGE, matrix_op, value_and_change

op = relax.op


def _definite(draw: Draw, batch: int, size: int) -> Array:
    a = draw.normal(batch, size, size)
    return np.asarray(a @ a.transpose(0, 2, 1) + np.eye(size))


def _scaled(
    name: str,
    reference: Callable[[torch.Tensor], torch.Tensor],
    *options: int,
    field: int | None = None,
) -> DrawCase:
    """Entries of a factor times a number with a gradient; signs that are free do not show."""

    def operator(a: relax.Expr, w: relax.Expr) -> relax.Expr:
        made = matrix_op(name, a, *options)
        made = made if field is None else relax.TupleGetItem(made, field)
        return op.multiply(op.square(made), w)

    def draw_case(draw: Draw) -> Case:
        batch, size = draw.integers(2, 1, 3)
        a = _definite(draw, batch, size)
        return Case(
            operator,
            lambda a, w: reference(a) ** 2 * w,
            {"a": a, "w": draw.normal(1)},
            fixed=("a",),
        )

    return draw_case


def _reflected(draw: Draw) -> Case:
    """A tall matrix's orthogonal factor, from reflections."""
    batch, columns = draw.integers(2, 1, 3)
    rows = columns + draw.integer(0, 2)

    def operator(a: relax.Expr, w: relax.Expr) -> relax.Expr:
        packed = matrix_op("reflectors", a)
        parts = (relax.TupleGetItem(packed, k) for k in range(2))
        return op.multiply(matrix_op("product_of_reflections", *parts, columns), w)

    return Case(
        operator,
        lambda a, w: torch.linalg.qr(a)[0] * w,
        {"a": draw.normal(batch, rows, columns), "w": draw.normal(1)},
        fixed=("a",),
    )


def _solve(draw: Draw) -> Case:
    batch, size, columns = draw.integers(3, 1, 3)
    transposed = draw.integer(0, 1)

    def operator(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        factors = matrix_op("lu_factor", a, 1)
        parts = (relax.TupleGetItem(factors, k) for k in range(2))
        return matrix_op("lu_solve", *parts, b, transposed)

    return Case(
        operator,
        lambda a, b: torch.linalg.solve(a.mT if transposed else a, b),
        {
            "a": draw.normal(batch, size, size) + 2 * np.eye(size),
            "b": draw.normal(batch, size, columns),
        },
        fixed=("a",),
    )


def _triangular(draw: Draw) -> Case:
    batch, size, columns = draw.integers(3, 1, 3)
    upper, transposed, unit = draw.integers(3, 0, 1)

    def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, is_upper = (a.mT, not upper) if transposed else (a, bool(upper))
        return torch.linalg.solve_triangular(a, b, upper=is_upper, unitriangular=bool(unit))

    return Case(
        lambda a, b: matrix_op("solve_triangular", a, b, upper, transposed, unit),
        reference,
        {
            "a": draw.normal(batch, size, size) + 2 * np.eye(size),
            "b": draw.normal(batch, size, columns),
        },
        fixed=("a",),
    )


def _exponential(draw: Draw) -> Case:
    batch, size = draw.integers(2, 1, 3)
    scale = draw.one_of([0.0, 0.1, 3.0])
    return Case(
        lambda a: matrix_op("matrix_exp", a),
        torch.matrix_exp,
        {"a": scale * draw.normal(batch, size, size)},
    )


def _tied(draw: Draw) -> Case:
    """A sine, whose derivative is said beside it."""

    def operator(x: relax.Expr) -> relax.Expr:
        held = op.grad.no_grad(x)
        return value_and_change(op.sin(held), op.multiply(x, op.cos(held)))

    return Case(operator, torch.sin, {"x": draw.normal(*draw.shape())})


def _lu_of(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.lu_factor(a)[0]


def _singular_values(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.svdvals(a)


CASES: dict[str, list[DrawCase]] = {
    "tvm_xengine.cholesky": [_scaled("cholesky", torch.linalg.cholesky)],
    "tvm_xengine.eigen": [
        _scaled("eigen", lambda a, k=k: torch.linalg.eigh(a)[k], 0, field=k) for k in range(2)
    ],
    "tvm_xengine.lu_factor": [_scaled("lu_factor", _lu_of, 1, field=0)],
    "tvm_xengine.lu_solve": [_solve],
    "tvm_xengine.matrix_exp": [_exponential],
    "tvm_xengine.product_of_reflections": [_reflected],
    "tvm_xengine.reflectors": [
        _scaled("reflectors", lambda a, k=k: torch.geqrf(a)[k], field=k) for k in range(2)
    ],
    "tvm_xengine.singular": [_scaled("singular", _singular_values, 3, field=1)],
    "tvm_xengine.solve_triangular": [_triangular],
    VALUE_AND_CHANGE: [_tied],
}
