"""The exponential of matrices."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.linalg.columns import set_identity

_TERMS = 18
"""Of the power series of a matrix of norm 1/2 or less; the next one is below 1e-22."""

_SQUARINGS = 64
"""Of the scaled exponential at most; a norm of 2^63 has overflown long before."""


def matrix_exp(matrix: te.Tensor) -> tvm.tirx.PrimFunc:
    """exp(A) by scaling, Taylor's series and squaring."""
    batch, size, _ = (int(extent) for extent in matrix.shape)
    dtype = matrix.dtype

    @script.prim_func(private=True, s_tir=True)
    def func(
        matrix: T.Buffer((batch, size, size), dtype),
        power: T.Buffer((batch, size, size), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for b in T.serial(batch):
            with T.sblock("exponential"):
                v = T.axis.spatial(batch, b)
                T.reads(matrix[v, 0:size, 0:size])
                T.writes(power[v, 0:size, 0:size])
                product = T.sblock_alloc_buffer((size, size), dtype)
                norm = T.sblock_alloc_buffer((2,), dtype)
                scale = T.sblock_alloc_buffer((1,), dtype)
                squarings = T.sblock_alloc_buffer((1,), "int32")
                _choose_scale(matrix, v, size, norm, scale, squarings)
                set_identity(power, v, size, size)
                for n in range(_TERMS):
                    _multiply(matrix, power, v, size, product)
                    for i in range(size):
                        for j in range(size):
                            power[v, i, j] = product[i, j] * scale[0] / T.cast(
                                _TERMS - n, dtype
                            ) + T.Select(i == j, T.cast(1, dtype), T.cast(0, dtype))
                for n in range(_SQUARINGS):
                    if n < squarings[0]:
                        _multiply(power, power, v, size, product)
                        for i in range(size):
                            for j in range(size):
                                power[v, i, j] = product[i, j]

    return func


@T.macro
def _choose_scale(matrix, v, size, norm, scale, squarings):
    """Halve until the 1-norm of the scaled matrix is 1/2 or less, and count how often."""
    norm[0] = T.cast(0, matrix.dtype)
    for j in range(size):
        norm[1] = T.cast(0, matrix.dtype)
        for i in range(size):
            norm[1] = norm[1] + T.abs(matrix[v, i, j])
        norm[0] = T.max(norm[0], norm[1])
    scale[0] = T.cast(1, matrix.dtype)
    squarings[0] = 0
    for _ in range(_SQUARINGS):
        if norm[0] * scale[0] * T.cast(2, matrix.dtype) > T.cast(1, matrix.dtype):
            scale[0] = scale[0] / T.cast(2, matrix.dtype)
            squarings[0] = squarings[0] + 1


@T.macro
def _multiply(left, right, v, size, product):
    for i in range(size):
        for j in range(size):
            product[i, j] = T.cast(0, product.dtype)
            for k in range(size):
                product[i, j] = product[i, j] + left[v, i, k] * right[v, k, j]
