"""Singular values and vectors."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T

_SWEEPS = 30
"""Sweeps over all pairs of columns; the rotations converge quadratically, in practice in 6 to 10."""


def singular(matrix: te.Tensor, *, width: int) -> tvm.tirx.PrimFunc:
    """(left vectors as columns, values in descending order, right vectors as columns), rows >= columns.

    Hestenes's one-sided rotations of columns (Golub and Van Loan, Matrix Computations, section 8.6).
    Left vectors of value zero, and those beyond the columns up to `width`, complete the basis.
    """
    batch, rows, columns = (int(extent) for extent in matrix.shape)
    dtype = matrix.dtype
    small = float(np.finfo(str(dtype)).eps)

    @T.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, rows, columns), dtype),
        left: T.Buffer((batch, rows, width), dtype),
        values: T.Buffer((batch, columns), dtype),
        right: T.Buffer((batch, columns, columns), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("rotate"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:rows, 0:columns])
                T.writes(
                    left[v, 0:rows, 0:width], values[v, 0:columns], right[v, 0:columns, 0:columns]
                )
                a = T.sblock_alloc_buffer((1,), dtype)
                c = T.sblock_alloc_buffer((1,), dtype)
                g = T.sblock_alloc_buffer((1,), dtype)
                rotated = T.sblock_alloc_buffer((2,), "int32")
                for i in range(rows):
                    for j in range(columns):
                        left[v, i, j] = matrix[v, i, j]
                for i in range(columns):
                    for j in range(columns):
                        right[v, i, j] = T.Select(i == j, T.cast(1, dtype), T.cast(0, dtype))
                rotated[0] = 1
                for _ in range(_SWEEPS):
                    if rotated[0] != 0:
                        rotated[0] = 0
                        for p in range(columns):
                            for r in range(columns - 1 - p):
                                a[0] = T.cast(0, dtype)
                                c[0] = T.cast(0, dtype)
                                g[0] = T.cast(0, dtype)
                                for k in range(rows):
                                    a[0] = a[0] + left[v, k, p] * left[v, k, p]
                                    c[0] = c[0] + left[v, k, p + 1 + r] * left[v, k, p + 1 + r]
                                    g[0] = g[0] + left[v, k, p] * left[v, k, p + 1 + r]
                                if T.abs(g[0]) > tvm.tirx.const(small, dtype) * T.sqrt(
                                    a[0]
                                ) * T.sqrt(c[0]):
                                    rotated[0] = 1
                                    g[0] = (c[0] - a[0]) / (g[0] * T.cast(2, dtype))
                                    a[0] = T.Select(
                                        g[0] < T.cast(0, dtype), T.cast(-1, dtype), T.cast(1, dtype)
                                    )
                                    g[0] = a[0] / (
                                        T.abs(g[0]) + T.sqrt(g[0] * g[0] + T.cast(1, dtype))
                                    )
                                    c[0] = T.cast(1, dtype) / T.sqrt(g[0] * g[0] + T.cast(1, dtype))
                                    for k in range(rows):
                                        a[0] = left[v, k, p]
                                        left[v, k, p] = c[0] * (a[0] - g[0] * left[v, k, p + 1 + r])
                                        left[v, k, p + 1 + r] = c[0] * (
                                            g[0] * a[0] + left[v, k, p + 1 + r]
                                        )
                                    for k in range(columns):
                                        a[0] = right[v, k, p]
                                        right[v, k, p] = c[0] * (
                                            a[0] - g[0] * right[v, k, p + 1 + r]
                                        )
                                        right[v, k, p + 1 + r] = c[0] * (
                                            g[0] * a[0] + right[v, k, p + 1 + r]
                                        )
                for j in range(columns):
                    values[v, j] = T.cast(0, dtype)
                    for k in range(rows):
                        values[v, j] = values[v, j] + left[v, k, j] * left[v, k, j]
                    values[v, j] = T.sqrt(values[v, j])
                for i in range(columns):
                    rotated[0] = i
                    for j in range(columns - i):
                        if values[v, i + j] > values[v, rotated[0]]:
                            rotated[0] = i + j
                    a[0] = values[v, i]
                    values[v, i] = values[v, rotated[0]]
                    values[v, rotated[0]] = a[0]
                    for k in range(rows):
                        a[0] = left[v, k, i]
                        left[v, k, i] = left[v, k, rotated[0]]
                        left[v, k, rotated[0]] = a[0]
                    for k in range(columns):
                        a[0] = right[v, k, i]
                        right[v, k, i] = right[v, k, rotated[0]]
                        right[v, k, rotated[0]] = a[0]
                rotated[1] = 0
                for j in range(columns):
                    if values[v, j] > tvm.tirx.const(small, dtype) * values[v, 0]:
                        rotated[1] = j + 1
                        for k in range(rows):
                            left[v, k, j] = left[v, k, j] / values[v, j]
                for j in range(width):
                    if j >= rotated[1]:
                        # The unit vector that is furthest from all columns so far.
                        rotated[0] = 0
                        a[0] = T.cast(-1, dtype)
                        for i in range(rows):
                            c[0] = T.cast(1, dtype)
                            for k in range(j):
                                c[0] = c[0] - left[v, i, k] * left[v, i, k]
                            if c[0] > a[0]:
                                a[0] = c[0]
                                rotated[0] = i
                        for i in range(rows):
                            left[v, i, j] = T.Select(
                                rotated[0] == i, T.cast(1, dtype), T.cast(0, dtype)
                            )
                        for _ in range(2):  # once leaves rounding errors
                            for k in range(j):
                                c[0] = T.cast(0, dtype)
                                for i in range(rows):
                                    c[0] = c[0] + left[v, i, k] * left[v, i, j]
                                for i in range(rows):
                                    left[v, i, j] = left[v, i, j] - c[0] * left[v, i, k]
                        c[0] = T.cast(0, dtype)
                        for i in range(rows):
                            c[0] = c[0] + left[v, i, j] * left[v, i, j]
                        c[0] = T.sqrt(c[0])
                        for i in range(rows):
                            left[v, i, j] = left[v, i, j] / c[0]

    return func
