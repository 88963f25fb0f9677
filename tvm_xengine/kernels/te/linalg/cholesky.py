"""Cholesky's factorisation."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T

from tvm_xengine.kernels.te import script


def cholesky(matrix: te.Tensor) -> tvm.tirx.PrimFunc:
    """The lower triangle L of A = L L^T, from the lower triangle of A.

    NaN from the first row on whose pivot is negative, where A is not positive definite.
    """
    batch, size, _ = (int(extent) for extent in matrix.shape)
    dtype = matrix.dtype

    @script.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, size, size), dtype),
        factor: T.Buffer((batch, size, size), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("factor"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:size, 0:size])
                T.writes(factor[v, 0:size, 0:size])
                for i in range(size):
                    for j in range(size):
                        factor[v, i, j] = T.cast(0, dtype)
                    for j in range(i + 1):
                        factor[v, i, j] = matrix[v, i, j]
                        for k in range(j):
                            factor[v, i, j] = factor[v, i, j] - factor[v, i, k] * factor[v, j, k]
                        if j < i:
                            factor[v, i, j] = factor[v, i, j] / factor[v, j, j]
                        else:
                            factor[v, i, j] = T.sqrt(factor[v, i, j])

    return func
