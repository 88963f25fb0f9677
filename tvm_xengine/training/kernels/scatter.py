"""Gradients that are added up at places known at run time only, which TE cannot say."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T


def take_backward(
    output_gradient: te.Tensor, indices: te.Tensor, *, extent: int
) -> tvm.tirx.PrimFunc:
    """dx[o, indices[n], i] += dy[o, n, i], added up in the order of n: (outer, extent, inner)."""
    outer, count, inner = (int(size) for size in output_gradient.shape)
    dtype, index_dtype = output_gradient.dtype, indices.dtype

    @T.prim_func(private=True, s_tir=True)
    def func(
        output_gradient: T.Buffer((outer, count, inner), dtype),
        indices: T.Buffer((count,), index_dtype),
        data_gradient: T.Buffer((outer, extent, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for o, v, i in T.grid(outer, extent, inner):
            with T.sblock("zero"):
                v_o, v_v, v_i = T.axis.remap("SSS", [o, v, i])
                T.writes(data_gradient[v_o, v_v, v_i])
                data_gradient[v_o, v_v, v_i] = T.cast(0, dtype)
        for o, n, i in T.grid(outer, count, inner):
            with T.sblock("add"):
                v_o, v_n, v_i = T.axis.remap("SRS", [o, n, i])
                T.reads(
                    output_gradient[v_o, v_n, v_i],
                    indices[v_n],
                    data_gradient[v_o, 0:extent, v_i],
                )
                T.writes(data_gradient[v_o, 0:extent, v_i])
                data_gradient[v_o, indices[v_n], v_i] = (
                    data_gradient[v_o, indices[v_n], v_i] + output_gradient[v_o, v_n, v_i]
                )

    return func


def gather_backward(
    output_gradient: te.Tensor, indices: te.Tensor, *, extent: int
) -> tvm.tirx.PrimFunc:
    """dx[o, indices[o, n, i], i] += dy[o, n, i], added up in the order of n."""
    outer, count, inner = (int(size) for size in output_gradient.shape)
    dtype, index_dtype = output_gradient.dtype, indices.dtype

    @T.prim_func(private=True, s_tir=True)
    def func(
        output_gradient: T.Buffer((outer, count, inner), dtype),
        indices: T.Buffer((outer, count, inner), index_dtype),
        data_gradient: T.Buffer((outer, extent, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for o, v, i in T.grid(outer, extent, inner):
            with T.sblock("zero"):
                v_o, v_v, v_i = T.axis.remap("SSS", [o, v, i])
                T.writes(data_gradient[v_o, v_v, v_i])
                data_gradient[v_o, v_v, v_i] = T.cast(0, dtype)
        for o, n, i in T.grid(outer, count, inner):
            with T.sblock("add"):
                v_o, v_n, v_i = T.axis.remap("SRS", [o, n, i])
                T.reads(
                    output_gradient[v_o, v_n, v_i],
                    indices[v_o, v_n, v_i],
                    data_gradient[v_o, 0:extent, v_i],
                )
                T.writes(data_gradient[v_o, 0:extent, v_i])
                data_gradient[v_o, indices[v_o, v_n, v_i], v_i] = (
                    data_gradient[v_o, indices[v_o, v_n, v_i], v_i] + output_gradient[v_o, v_n, v_i]
                )

    return func
