"""Householder's reflections, with the signs of LAPACK."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.linalg.columns import copy_matrix, set_identity


def reflectors(matrix: te.Tensor) -> tvm.tirx.PrimFunc:
    """(R above the diagonal and the reflections' vectors below, their factors), as geqrf returns."""
    batch, rows, columns = (int(extent) for extent in matrix.shape)
    steps, dtype = min(rows, columns), matrix.dtype

    @script.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, rows, columns), dtype),
        packed: T.Buffer((batch, rows, columns), dtype),
        factor: T.Buffer((batch, steps), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("reflect"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:rows, 0:columns])
                T.writes(packed[v, 0:rows, 0:columns], factor[v, 0:steps])
                most = T.sblock_alloc_buffer((1,), dtype)
                total = T.sblock_alloc_buffer((1,), dtype)
                head = T.sblock_alloc_buffer((1,), dtype)
                copy_matrix(matrix, packed, v, rows, columns)
                for s in range(steps):
                    most[0] = T.cast(0, dtype)
                    for i in range(rows - 1 - s):
                        most[0] = T.max(most[0], T.abs(packed[v, s + 1 + i, s]))
                    factor[v, s] = T.cast(0, dtype)
                    if most[0] > T.cast(0, dtype):
                        _make_reflection(packed, factor, v, s, most, total, head)
                        for j in range(columns - 1 - s):
                            _reflect(packed, s + 1 + j, packed, factor, v, s, total)

    return func


def product_of_reflections(
    packed: te.Tensor, factor: te.Tensor, *, width: int
) -> tvm.tirx.PrimFunc:
    """The first columns of the product of all reflections, an orthogonal matrix."""
    batch, rows, columns = (int(extent) for extent in packed.shape)
    steps, dtype = int(factor.shape[-1]), packed.dtype

    @script.prim_func(private=True, s_tir=True)
    def func(
        packed: T.Buffer((batch, rows, columns), dtype),
        factor: T.Buffer((batch, steps), dtype),
        product: T.Buffer((batch, rows, width), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("multiply"):
                v = T.axis.spatial(batch, b)
                T.reads(packed[v, 0:rows, 0:columns], factor[v, 0:steps])
                T.writes(product[v, 0:rows, 0:width])
                total = T.sblock_alloc_buffer((1,), dtype)
                set_identity(product, v, rows, width)
                for s in range(steps):
                    for j in range(width):
                        _reflect(product, j, packed, factor, v, steps - 1 - s, total)

    return func


@T.macro
def _make_reflection(packed, factor, v, s, most, total, head):
    """Write the reflection that makes column `s` zero below the diagonal, where `most` is the largest."""
    most[0] = T.max(most[0], T.abs(packed[v, s, s]))
    total[0] = T.cast(0, total.dtype)
    for i in range(packed.shape[1] - s):
        total[0] = total[0] + (packed[v, s + i, s] / most[0]) * (packed[v, s + i, s] / most[0])
    head[0] = T.sqrt(total[0]) * most[0]
    if packed[v, s, s] >= T.cast(0, total.dtype):
        head[0] = T.cast(0, total.dtype) - head[0]
    factor[v, s] = (head[0] - packed[v, s, s]) / head[0]
    for i in range(packed.shape[1] - 1 - s):
        packed[v, s + 1 + i, s] = packed[v, s + 1 + i, s] / (packed[v, s, s] - head[0])
    packed[v, s, s] = head[0]


@T.macro
def _reflect(matrix, j, packed, factor, v, s, total):
    """Apply reflection `s` to column `j` of a matrix."""
    total[0] = matrix[v, s, j]
    for i in range(packed.shape[1] - 1 - s):
        total[0] = total[0] + packed[v, s + 1 + i, s] * matrix[v, s + 1 + i, j]
    total[0] = total[0] * factor[v, s]
    matrix[v, s, j] = matrix[v, s, j] - total[0]
    for i in range(packed.shape[1] - 1 - s):
        matrix[v, s + 1 + i, j] = matrix[v, s + 1 + i, j] - total[0] * packed[v, s + 1 + i, s]
