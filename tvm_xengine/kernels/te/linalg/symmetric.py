"""Eigenvalues and eigenvectors of symmetric matrices."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T
from tvm.tirx import Expr

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.linalg.columns import (
    exchange,
    exchange_columns,
    rotate_columns,
    rotation,
    set_identity,
)

_SWEEPS = 24
"""Sweeps over all pairs of rows; Jacobi's rotations converge quadratically, in practice in 6 to 10."""


def eigen(matrix: te.Tensor, *, upper: bool) -> tvm.tirx.PrimFunc:
    """(eigenvalues in ascending order, eigenvectors as columns), by Jacobi's rotations.

    One triangle of the matrix is read. Golub and Van Loan, Matrix Computations, section 8.5.
    """
    batch, size, _ = (int(extent) for extent in matrix.shape)
    dtype = matrix.dtype

    def read(matrix: Expr, v: Expr, i: Expr, j: Expr) -> Expr:
        low, high = tvm.tirx.min(i, j), tvm.tirx.max(i, j)
        return matrix[v, low, high] if upper else matrix[v, high, low]

    @script.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, size, size), dtype),
        values: T.Buffer((batch, size), dtype),
        vectors: T.Buffer((batch, size, size), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("rotate"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:size, 0:size])
                T.writes(values[v, 0:size], vectors[v, 0:size, 0:size])
                work = T.sblock_alloc_buffer((size, size), dtype)
                moved = T.sblock_alloc_buffer((2,), dtype)
                tangent = T.sblock_alloc_buffer((1,), dtype)
                cosine = T.sblock_alloc_buffer((1,), dtype)
                least = T.sblock_alloc_buffer((1,), "int32")
                for i in range(size):
                    for j in range(size):
                        work[i, j] = read(matrix, v, i, j)
                set_identity(vectors, v, size, size)
                for _ in range(_SWEEPS):
                    for p in range(size):
                        for r in range(size - 1 - p):
                            if _is_off_diagonal(work, p, p + 1 + r):
                                tangent[0] = (work[p + 1 + r, p + 1 + r] - work[p, p]) / (
                                    work[p, p + 1 + r] * T.cast(2, dtype)
                                )
                                rotation(tangent, cosine)
                                _rotate_both_sides(work, size, p, p + 1 + r, tangent, cosine, moved)
                                rotate_columns(
                                    vectors, v, size, (p, p + 1 + r), tangent, cosine, moved
                                )
                for i in range(size):
                    values[v, i] = work[i, i]
                _sort_ascending(values, vectors, v, size, moved, least)

    return func


@T.macro
def _sort_ascending(values, vectors, v, size, moved, least):
    for i in range(size):
        least[0] = i
        for j in range(size - i):
            if values[v, i + j] < values[v, least[0]]:
                least[0] = i + j
        exchange(values, v, i, least[0], moved)
        exchange_columns(vectors, v, size, i, least[0], moved)


def _is_off_diagonal(work: Expr, p: Expr, q: Expr) -> Expr:
    """Whether element (p, q) is more than a rounding error of the two on the diagonal."""
    small = tvm.tirx.const(float(np.finfo(str(work.dtype)).eps) / 100, work.dtype)
    return T.abs(work[p, q]) > small * T.min(T.abs(work[p, p]), T.abs(work[q, q]))


@T.macro
def _rotate_both_sides(work, size, p, q, tangent, cosine, moved):
    """Make element (p, q) zero by a rotation of columns and rows `p` and `q`."""
    moved[0] = tangent[0] * work[p, q]
    work[p, p] = work[p, p] - moved[0]
    work[q, q] = work[q, q] + moved[0]
    work[p, q] = T.cast(0, work.dtype)
    work[q, p] = T.cast(0, work.dtype)
    for k in range(size):
        if k != p and k != q:
            moved[0] = work[k, p]
            moved[1] = work[k, q]
            work[k, p] = cosine[0] * (moved[0] - tangent[0] * moved[1])
            work[k, q] = cosine[0] * (tangent[0] * moved[0] + moved[1])
            work[p, k] = work[k, p]
            work[q, k] = work[k, q]
