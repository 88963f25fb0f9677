"""Linear systems with a triangular matrix."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T
from tvm.tirx import Expr

from tvm_xengine.kernels.te import script


def solve_triangular(
    matrix: te.Tensor, right: te.Tensor, *, upper: bool, transposed: bool, unit: bool
) -> tvm.tirx.PrimFunc:
    """X of T X = B, or T^T X = B, T the upper or lower triangle of a matrix, or with ones as diagonal."""
    batch, size, _ = (int(extent) for extent in matrix.shape)
    columns, dtype = int(right.shape[-1]), matrix.dtype
    backwards = upper != transposed

    def at(i: Expr) -> Expr:
        return size - 1 - i if backwards else i

    def element(matrix: Expr, v: Expr, i: Expr, k: Expr) -> Expr:
        return matrix[v, at(k), at(i)] if transposed else matrix[v, at(i), at(k)]

    @script.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, size, size), dtype),
        right: T.Buffer((batch, size, columns), dtype),
        solution: T.Buffer((batch, size, columns), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("solve"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:size, 0:size], right[v, 0:size, 0:columns])
                T.writes(solution[v, 0:size, 0:columns])
                for j in range(columns):
                    for i in range(size):
                        solution[v, at(i), j] = right[v, at(i), j]
                        for k in range(i):
                            solution[v, at(i), j] = (
                                solution[v, at(i), j]
                                - element(matrix, v, i, k) * solution[v, at(k), j]
                            )
                        if not unit:
                            solution[v, at(i), j] = solution[v, at(i), j] / element(matrix, v, i, i)

    return func
