"""Scatter: writing to positions known at run time only, which TE cannot express."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import te
from tvm.script import tirx as T
from tvm.tirx import Expr

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.indexing.positions import POSITION_DTYPE, checked
from tvm_xengine.kernels.te.pointwise.function import greater, lesser

WRITTEN: dict[str, Callable[[Expr, Expr], Expr]] = {
    "update": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": greater,
    "min": lesser,
}
"""What stands at a place afterwards, by Relax's names; the extremes are NaN where either number is."""


def take_backward(
    output_gradient: te.Tensor, indices: te.Tensor, *, extent: int
) -> tvm.tirx.PrimFunc:
    """dx[o, indices[n], i] += dy[o, n, i], added up in the order of n: (outer, extent, inner)."""
    return _added_along_axis(output_gradient, indices, extent, lambda index, _o, n, _i: index[n])


def gather_backward(
    output_gradient: te.Tensor, indices: te.Tensor, *, extent: int
) -> tvm.tirx.PrimFunc:
    """dx[o, indices[o, n, i], i] += dy[o, n, i], added up in the order of n."""
    return _added_along_axis(
        output_gradient, indices, extent, lambda index, o, n, i: index[o, n, i]
    )


def _added_along_axis(
    output_gradient: te.Tensor,
    indices: te.Tensor,
    extent: int,
    read: Callable[..., Expr],
) -> tvm.tirx.PrimFunc:
    """Sums of slices; indices that point outside are left out."""
    outer, count, inner = (int(size) for size in output_gradient.shape)
    dtype, index_dtype = output_gradient.dtype, indices.dtype
    index_shape = [int(size) for size in indices.shape]

    @script.prim_func(private=True, s_tir=True)
    def func(
        output_gradient: T.Buffer((outer, count, inner), dtype),
        indices: T.Buffer(index_shape, index_dtype),
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
                    read(indices, v_o, v_n, v_i),
                    data_gradient[v_o, 0:extent, v_i],
                )
                T.writes(data_gradient[v_o, 0:extent, v_i])
                if checked(read(indices, v_o, v_n, v_i), extent)[1]:
                    data_gradient[v_o, checked(read(indices, v_o, v_n, v_i), extent)[0], v_i] = (
                        data_gradient[v_o, checked(read(indices, v_o, v_n, v_i), extent)[0], v_i]
                        + output_gradient[v_o, v_n, v_i]
                    )

    return func


def write_at(
    data: te.Tensor, positions: te.Tensor, values: te.Tensor, *, how: str
) -> tvm.tirx.PrimFunc:
    """A flat tensor with values written (or added, ...) at positions, in their order."""
    (size,), (count,) = data.shape, positions.shape
    dtype = data.dtype
    combined = WRITTEN[how]

    @script.prim_func(private=True, s_tir=True)
    def func(
        data: T.Buffer((size,), dtype),
        positions: T.Buffer((count,), POSITION_DTYPE),
        values: T.Buffer((count,), dtype),
        written: T.Buffer((size,), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for v in T.serial(size):
            with T.sblock("copy"):
                v_v = T.axis.spatial(size, v)
                T.reads(data[v_v])
                T.writes(written[v_v])
                written[v_v] = data[v_v]
        for m in T.serial(count):
            with T.sblock("write"):
                v_m = T.axis.reduce(count, m)
                T.reads(positions[v_m], values[v_m], written[0:size])
                T.writes(written[0:size])
                if positions[v_m] >= T.cast(0, POSITION_DTYPE):
                    written[positions[v_m]] = combined(written[positions[v_m]], values[v_m])

    return func
