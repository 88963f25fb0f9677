"""Singular values and vectors."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T

from tvm_xengine.kernels.te import script
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

    @script.prim_func(private=True, s_tir=True)
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
                w = T.meta_var(_Work(v, rows, columns, left, values, right, a, c, g, found))
                copy_matrix(matrix, left, v, rows, columns)
                set_identity(right, v, columns, columns)
                found[0] = 1
                for _ in range(_SWEEPS):
                    if found[0] != 0:
                        found[0] = 0
                        for p in range(columns):
                            for r in range(columns - 1 - p):
                                _make_orthogonal(w, p, p + 1 + r)
                _take_norms(w)
                _sort_descending(w)
                _normalise(w)
                for j in range(width):
                    if j >= found[1]:
                        _append_to_basis(w, j)

    return func


@dataclass(frozen=True)
class _Work:
    """The matrix `v` of a stack: its factors, and buffers for numbers in between."""

    v: tvm.tirx.Expr
    rows: int
    columns: int
    left: tvm.tirx.Buffer
    values: tvm.tirx.Buffer
    right: tvm.tirx.Buffer
    a: tvm.tirx.Buffer
    c: tvm.tirx.Buffer
    g: tvm.tirx.Buffer
    found: tvm.tirx.Buffer


def _rounding(dtype: str) -> tvm.tirx.Expr:
    return tvm.tirx.const(float(np.finfo(str(dtype)).eps), dtype)


@T.macro
def _make_orthogonal(w, p, q):
    """Rotate columns `p` and `q`; `found[0]` becomes 1 unless they were orthogonal."""
    w.a[0] = T.cast(0, w.a.dtype)
    w.c[0] = T.cast(0, w.a.dtype)
    w.g[0] = T.cast(0, w.a.dtype)
    for k in range(w.rows):
        w.a[0] = w.a[0] + w.left[w.v, k, p] * w.left[w.v, k, p]
        w.c[0] = w.c[0] + w.left[w.v, k, q] * w.left[w.v, k, q]
        w.g[0] = w.g[0] + w.left[w.v, k, p] * w.left[w.v, k, q]
    if T.abs(w.g[0]) > _rounding(w.a.dtype) * T.sqrt(w.a[0]) * T.sqrt(w.c[0]):
        w.found[0] = 1
        w.g[0] = (w.c[0] - w.a[0]) / (w.g[0] * T.cast(2, w.a.dtype))
        rotation(w.g, w.c)
        rotate_columns(w.left, w.v, w.rows, (p, q), w.g, w.c, w.a)
        rotate_columns(w.right, w.v, w.columns, (p, q), w.g, w.c, w.a)


@T.macro
def _take_norms(w):
    for j in range(w.columns):
        w.values[w.v, j] = T.cast(0, w.values.dtype)
        for k in range(w.rows):
            w.values[w.v, j] = w.values[w.v, j] + w.left[w.v, k, j] * w.left[w.v, k, j]
        w.values[w.v, j] = T.sqrt(w.values[w.v, j])


@T.macro
def _sort_descending(w):
    for i in range(w.columns):
        w.found[0] = i
        for j in range(w.columns - i):
            if w.values[w.v, i + j] > w.values[w.v, w.found[0]]:
                w.found[0] = i + j
        exchange(w.values, w.v, i, w.found[0], w.a)
        exchange_columns(w.left, w.v, w.rows, i, w.found[0], w.a)
        exchange_columns(w.right, w.v, w.columns, i, w.found[0], w.a)


@T.macro
def _normalise(w):
    """Divide columns by their norms; `found[1]` counts those that are not zero."""
    w.found[1] = 0
    for j in range(w.columns):
        if w.values[w.v, j] > _rounding(w.values.dtype) * w.values[w.v, 0]:
            w.found[1] = j + 1
            for k in range(w.rows):
                w.left[w.v, k, j] = w.left[w.v, k, j] / w.values[w.v, j]


@T.macro
def _append_to_basis(w, j):
    """Make column `j` of the unit vector that is furthest from all columns before it."""
    w.found[0] = 0
    w.a[0] = T.cast(-1, w.a.dtype)
    for i in range(w.rows):
        w.c[0] = T.cast(1, w.a.dtype)
        for k in range(j):
            w.c[0] = w.c[0] - w.left[w.v, i, k] * w.left[w.v, i, k]
        if w.c[0] > w.a[0]:
            w.a[0] = w.c[0]
            w.found[0] = i
    for i in range(w.rows):
        w.left[w.v, i, j] = T.Select(w.found[0] == i, T.cast(1, w.a.dtype), T.cast(0, w.a.dtype))
    for _ in range(2):  # once leaves rounding errors
        for k in range(j):
            dot(w.left, w.v, w.rows, k, j, w.c)
            for i in range(w.rows):
                w.left[w.v, i, j] = w.left[w.v, i, j] - w.c[0] * w.left[w.v, i, k]
    dot(w.left, w.v, w.rows, j, j, w.c)
    w.c[0] = T.sqrt(w.c[0])
    for i in range(w.rows):
        w.left[w.v, i, j] = w.left[w.v, i, j] / w.c[0]
