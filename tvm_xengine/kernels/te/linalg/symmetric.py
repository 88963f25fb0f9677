"""Eigenvalues and eigenvectors of symmetric matrices."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T
from tvm.tirx import Expr

_SWEEPS = 24
"""Sweeps over all pairs of rows; Jacobi's rotations converge quadratically, in practice in 6 to 10."""


def eigen(matrix: te.Tensor, *, upper: bool) -> tvm.tirx.PrimFunc:
    """(eigenvalues in ascending order, eigenvectors as columns), by Jacobi's rotations.

    One triangle of the matrix is read. Golub and Van Loan, Matrix Computations, section 8.5.
    """
    batch, size, _ = (int(extent) for extent in matrix.shape)
    dtype = matrix.dtype
    small = float(np.finfo(str(dtype)).eps) / 100

    def read(matrix: Expr, v: Expr, i: Expr, j: Expr) -> Expr:
        low, high = tvm.tirx.min(i, j), tvm.tirx.max(i, j)
        return matrix[v, low, high] if upper else matrix[v, high, low]

    @T.prim_func(private=True, s_tir=True)
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
                        vectors[v, i, j] = T.Select(i == j, T.cast(1, dtype), T.cast(0, dtype))
                for _ in range(_SWEEPS):
                    for p in range(size):
                        for r in range(size - 1 - p):
                            if T.abs(work[p, p + 1 + r]) > tvm.tirx.const(small, dtype) * T.min(
                                T.abs(work[p, p]), T.abs(work[p + 1 + r, p + 1 + r])
                            ):
                                tangent[0] = (work[p + 1 + r, p + 1 + r] - work[p, p]) / (
                                    work[p, p + 1 + r] * T.cast(2, dtype)
                                )
                                cosine[0] = T.Select(
                                    tangent[0] < T.cast(0, dtype),
                                    T.cast(-1, dtype),
                                    T.cast(1, dtype),
                                )
                                tangent[0] = cosine[0] / (
                                    T.abs(tangent[0])
                                    + T.sqrt(tangent[0] * tangent[0] + T.cast(1, dtype))
                                )
                                cosine[0] = T.cast(1, dtype) / T.sqrt(
                                    tangent[0] * tangent[0] + T.cast(1, dtype)
                                )
                                moved[0] = tangent[0] * work[p, p + 1 + r]
                                work[p, p] = work[p, p] - moved[0]
                                work[p + 1 + r, p + 1 + r] = work[p + 1 + r, p + 1 + r] + moved[0]
                                work[p, p + 1 + r] = T.cast(0, dtype)
                                work[p + 1 + r, p] = T.cast(0, dtype)
                                for k in range(size):
                                    if k != p and k != p + 1 + r:
                                        moved[0] = work[k, p]
                                        moved[1] = work[k, p + 1 + r]
                                        work[k, p] = cosine[0] * (moved[0] - tangent[0] * moved[1])
                                        work[k, p + 1 + r] = cosine[0] * (
                                            tangent[0] * moved[0] + moved[1]
                                        )
                                        work[p, k] = work[k, p]
                                        work[p + 1 + r, k] = work[k, p + 1 + r]
                                    moved[0] = vectors[v, k, p]
                                    moved[1] = vectors[v, k, p + 1 + r]
                                    vectors[v, k, p] = cosine[0] * (
                                        moved[0] - tangent[0] * moved[1]
                                    )
                                    vectors[v, k, p + 1 + r] = cosine[0] * (
                                        tangent[0] * moved[0] + moved[1]
                                    )
                for i in range(size):
                    values[v, i] = work[i, i]
                for i in range(size):
                    least[0] = i
                    for j in range(size - i):
                        if values[v, i + j] < values[v, least[0]]:
                            least[0] = i + j
                    moved[0] = values[v, i]
                    values[v, i] = values[v, least[0]]
                    values[v, least[0]] = moved[0]
                    for k in range(size):
                        moved[0] = vectors[v, k, i]
                        vectors[v, k, i] = vectors[v, k, least[0]]
                        vectors[v, k, least[0]] = moved[0]

    return func
