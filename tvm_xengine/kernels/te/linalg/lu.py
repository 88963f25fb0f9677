"""Gauss's elimination: factors, and solutions from them."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.linalg.columns import copy_matrix


def lu_factor(matrix: te.Tensor, *, pivot: bool) -> tvm.tirx.PrimFunc:
    """(L below the diagonal and U above, rows exchanged), as LAPACK's getrf returns them.

    In step i row i is exchanged with row `pivots[i]`, counted from one.
    """
    batch, rows, columns = (int(extent) for extent in matrix.shape)
    steps, dtype = min(rows, columns), matrix.dtype

    @script.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, rows, columns), dtype),
        factors: T.Buffer((batch, rows, columns), dtype),
        pivots: T.Buffer((batch, steps), "int32"),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("factor"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:rows, 0:columns])
                T.writes(factors[v, 0:rows, 0:columns], pivots[v, 0:steps])
                moved = T.sblock_alloc_buffer((1,), dtype)
                copy_matrix(matrix, factors, v, rows, columns)
                for s in range(steps):
                    pivots[v, s] = s + 1
                    if pivot:
                        for i in range(rows - 1 - s):
                            if T.abs(factors[v, s + 1 + i, s]) > T.abs(
                                factors[v, pivots[v, s] - 1, s]
                            ):
                                pivots[v, s] = s + 2 + i
                    if pivots[v, s] != s + 1:
                        for j in range(columns):
                            _exchange_rows(factors, v, s, pivots[v, s] - 1, j, moved)
                    if factors[v, s, s] != T.cast(0, dtype):
                        for i in range(rows - 1 - s):
                            factors[v, s + 1 + i, s] = factors[v, s + 1 + i, s] / factors[v, s, s]
                    for i in range(rows - 1 - s):
                        for j in range(columns - 1 - s):
                            factors[v, s + 1 + i, s + 1 + j] = (
                                factors[v, s + 1 + i, s + 1 + j]
                                - factors[v, s + 1 + i, s] * factors[v, s, s + 1 + j]
                            )

    return func


def lu_solve(
    factors: te.Tensor, pivots: te.Tensor, right: te.Tensor, *, transposed: bool
) -> tvm.tirx.PrimFunc:
    """X of A X = B, or A^T X = B, from the factors of A.

    Pivots that name no row are taken for the nearest: when kernels are timed, they are zero.
    """
    batch, size, _ = (int(extent) for extent in factors.shape)
    columns, dtype = int(right.shape[-1]), factors.dtype
    solve_column = _solve_transposed if transposed else _solve

    @script.prim_func(private=True, s_tir=True)
    def func(
        factors: T.Buffer((batch, size, size), dtype),
        pivots: T.Buffer((batch, size), "int32"),
        right: T.Buffer((batch, size, columns), dtype),
        solution: T.Buffer((batch, size, columns), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("solve"):
                v = T.axis.spatial(batch, b)
                T.reads(factors[v, 0:size, 0:size], pivots[v, 0:size], right[v, 0:size, 0:columns])
                T.writes(solution[v, 0:size, 0:columns])
                moved = T.sblock_alloc_buffer((1,), dtype)
                for j in range(columns):
                    for i in range(size):
                        solution[v, i, j] = right[v, i, j]
                    solve_column(factors, pivots, solution, v, size, j, moved)

    return func


@T.macro
def _subtract(solution, v, i, k, j, factor):
    solution[v, i, j] = solution[v, i, j] - factor * solution[v, k, j]


@T.macro
def _exchange_rows(matrix, v, i, k, j, moved):
    """Exchange rows `i` and `k` in column `j`."""
    moved[0] = matrix[v, i, j]
    matrix[v, i, j] = matrix[v, k, j]
    matrix[v, k, j] = moved[0]


@T.macro
def _exchange_with_pivot(matrix, pivots, v, size, i, j, moved):
    """Exchange row `i` and the one that its pivot names, in column `j`."""
    _exchange_rows(matrix, v, i, T.max(T.min(pivots[v, i], size), 1) - 1, j, moved)


@T.macro
def _solve(factors, pivots, solution, v, size, j, moved):
    for i in range(size):
        _exchange_with_pivot(solution, pivots, v, size, i, j, moved)
    for i in range(size):
        for k in range(i):
            _subtract(solution, v, i, k, j, factors[v, i, k])
    for i in range(size):
        for k in range(i):
            _subtract(
                solution, v, size - 1 - i, size - 1 - k, j, factors[v, size - 1 - i, size - 1 - k]
            )
        solution[v, size - 1 - i, j] = (
            solution[v, size - 1 - i, j] / factors[v, size - 1 - i, size - 1 - i]
        )


@T.macro
def _solve_transposed(factors, pivots, solution, v, size, j, moved):
    for i in range(size):
        for k in range(i):
            _subtract(solution, v, i, k, j, factors[v, k, i])
        solution[v, i, j] = solution[v, i, j] / factors[v, i, i]
    for i in range(size):
        for k in range(i):
            _subtract(
                solution, v, size - 1 - i, size - 1 - k, j, factors[v, size - 1 - k, size - 1 - i]
            )
    for i in range(size):
        _exchange_with_pivot(solution, pivots, v, size, size - 1 - i, j, moved)
