"""Singular values and vectors."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T

from tvm_xengine.kernels.te.linalg.columns import (
    copy_matrix,
    dot,
    exchange,
    exchange_columns,
    rotate_columns,
    rotation,
    set_identity,
)

_SWEEPS = 30
"""Sweeps over all pairs of columns; the rotations converge quadratically, in practice in 6 to 10."""


def singular(matrix: te.Tensor, *, width: int) -> tvm.tirx.PrimFunc:
    """(left vectors as columns, values in descending order, right vectors as columns), rows >= columns.

    Hestenes's one-sided rotations of columns (Golub and Van Loan, Matrix Computations, section 8.6).
    Left vectors of value zero, and those beyond the columns up to `width`, complete the basis.
    """
    batch, rows, columns = (int(extent) for extent in matrix.shape)
    dtype = matrix.dtype

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
                found = T.sblock_alloc_buffer((2,), "int32")
                copy_matrix(matrix, left, v, rows, columns)
                set_identity(right, v, columns, columns)
                found[0] = 1
                for _ in range(_SWEEPS):
                    if found[0] != 0:
                        found[0] = 0
                        for p in range(columns):
                            for r in range(columns - 1 - p):
                                _make_orthogonal(
                                    left, right, v, rows, columns, p, p + 1 + r, a, c, g, found
                                )
                _take_norms(left, values, v, rows, columns)
                _sort_descending(left, values, right, v, rows, columns, a, found)
                _normalise(left, values, v, rows, columns, found)
                for j in range(width):
                    if j >= found[1]:
                        _append_to_basis(left, v, rows, j, a, c, found)

    return func


def _rounding(dtype: str) -> tvm.tirx.Expr:
    return tvm.tirx.const(float(np.finfo(str(dtype)).eps), dtype)


@T.macro
def _make_orthogonal(left, right, v, rows, columns, p, q, a, c, g, found):
    """Rotate columns `p` and `q`; `found[0]` becomes 1 unless they were orthogonal."""
    a[0] = T.cast(0, a.dtype)
    c[0] = T.cast(0, a.dtype)
    g[0] = T.cast(0, a.dtype)
    for k in range(rows):
        a[0] = a[0] + left[v, k, p] * left[v, k, p]
        c[0] = c[0] + left[v, k, q] * left[v, k, q]
        g[0] = g[0] + left[v, k, p] * left[v, k, q]
    if T.abs(g[0]) > _rounding(a.dtype) * T.sqrt(a[0]) * T.sqrt(c[0]):
        found[0] = 1
        g[0] = (c[0] - a[0]) / (g[0] * T.cast(2, a.dtype))
        rotation(g, c)
        rotate_columns(left, v, rows, p, q, g, c, a)
        rotate_columns(right, v, columns, p, q, g, c, a)


@T.macro
def _take_norms(left, values, v, rows, columns):
    for j in range(columns):
        values[v, j] = T.cast(0, values.dtype)
        for k in range(rows):
            values[v, j] = values[v, j] + left[v, k, j] * left[v, k, j]
        values[v, j] = T.sqrt(values[v, j])


@T.macro
def _sort_descending(left, values, right, v, rows, columns, kept, found):
    for i in range(columns):
        found[0] = i
        for j in range(columns - i):
            if values[v, i + j] > values[v, found[0]]:
                found[0] = i + j
        exchange(values, v, i, found[0], kept)
        exchange_columns(left, v, rows, i, found[0], kept)
        exchange_columns(right, v, columns, i, found[0], kept)


@T.macro
def _normalise(left, values, v, rows, columns, found):
    """Divide columns by their norms; `found[1]` counts those that are not zero."""
    found[1] = 0
    for j in range(columns):
        if values[v, j] > _rounding(values.dtype) * values[v, 0]:
            found[1] = j + 1
            for k in range(rows):
                left[v, k, j] = left[v, k, j] / values[v, j]


@T.macro
def _append_to_basis(left, v, rows, j, a, c, found):
    """Make column `j` of the unit vector that is furthest from all columns before it."""
    found[0] = 0
    a[0] = T.cast(-1, a.dtype)
    for i in range(rows):
        c[0] = T.cast(1, a.dtype)
        for k in range(j):
            c[0] = c[0] - left[v, i, k] * left[v, i, k]
        if c[0] > a[0]:
            a[0] = c[0]
            found[0] = i
    for i in range(rows):
        left[v, i, j] = T.Select(found[0] == i, T.cast(1, a.dtype), T.cast(0, a.dtype))
    for _ in range(2):  # once leaves rounding errors
        for k in range(j):
            dot(left, v, rows, k, j, c)
            for i in range(rows):
                left[v, i, j] = left[v, i, j] - c[0] * left[v, i, k]
    dot(left, v, rows, j, j, c)
    c[0] = T.sqrt(c[0])
    for i in range(rows):
        left[v, i, j] = left[v, i, j] / c[0]
