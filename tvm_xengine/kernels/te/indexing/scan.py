"""Running sums and products along an axis, of tensors of shape (outer, length, inner)."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T
from tvm.tirx import Expr

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.pointwise.function import isnan, zero_times
from tvm_xengine.kernels.te.pointwise.functions import log_of_sum


def running_sum(data: te.Tensor, *, exclusive: bool, reverse: bool) -> tvm.tirx.PrimFunc:
    """y[n] = sum of x up to n (without n where `exclusive`), from the end where `reverse`."""
    return _running(data, 0, exclusive, reverse)


def running_product(data: te.Tensor, *, exclusive: bool) -> tvm.tirx.PrimFunc:
    """y[n] = product of x up to n (without n where `exclusive`)."""
    return _running(data, 1, exclusive, False)


def _running(data: te.Tensor, start: int, exclusive: bool, reverse: bool) -> tvm.tirx.PrimFunc:
    outer, length, inner = (int(extent) for extent in data.shape)
    dtype = data.dtype
    lag = int(exclusive)

    def combined(left: Expr, right: Expr) -> Expr:
        return left * right if start else left + right

    def at(n: Expr) -> Expr:
        return length - 1 - n if reverse else n

    @script.prim_func(private=True, s_tir=True)
    def func(
        data: T.Buffer((outer, length, inner), dtype),
        running: T.Buffer((outer, length, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for o, n, i in T.grid(outer, length, inner):
            with T.sblock("scan"):
                v_o, v_n, v_i = T.axis.remap("SRS", [o, n, i])
                T.reads(data[v_o, 0:length, v_i], running[v_o, 0:length, v_i])
                T.writes(running[v_o, 0:length, v_i])
                running[v_o, at(v_n), v_i] = combined(
                    T.if_then_else(v_n >= 1, running[v_o, at(v_n - 1), v_i], T.cast(start, dtype)),
                    T.if_then_else(v_n >= lag, data[v_o, at(v_n - lag), v_i], T.cast(start, dtype)),
                )

    return func


def running_extreme(data: te.Tensor, *, largest: bool) -> tvm.tirx.PrimFunc:
    """Where the greatest (least) element up to n lies, the last one of equal ones; NaN is beyond all."""
    outer, length, inner = (int(extent) for extent in data.shape)
    dtype = data.dtype

    def stays(old: Expr, new: Expr) -> Expr:
        """Without a negated comparison, which TVM turns into the opposite one: NaN fails both."""
        is_beyond = tvm.tirx.any(old > new if largest else old < new, isnan(old))
        return tvm.tirx.all(is_beyond, tvm.tirx.Not(isnan(new)))

    @script.prim_func(private=True, s_tir=True)
    def func(
        data: T.Buffer((outer, length, inner), dtype),
        position: T.Buffer((outer, length, inner), "int64"),
    ):
        T.func_attr({"tirx.noalias": True})
        for o, n, i in T.grid(outer, length, inner):
            with T.sblock("scan"):
                v_o, v_n, v_i = T.axis.remap("SRS", [o, n, i])
                T.reads(data[v_o, 0:length, v_i], position[v_o, 0:length, v_i])
                T.writes(position[v_o, v_n, v_i])
                position[v_o, v_n, v_i] = T.cast(v_n, "int64")
                if v_n >= 1:  # noqa: SIM102 (T.And would read before the first element)
                    if stays(
                        data[v_o, position[v_o, v_n - 1, v_i], v_i],
                        data[v_o, v_n, v_i],
                    ):
                        position[v_o, v_n, v_i] = position[v_o, v_n - 1, v_i]

    return func


def running_product_backward(
    output_gradient: te.Tensor, data: te.Tensor, *, exclusive: bool
) -> tvm.tirx.PrimFunc:
    """dx[k] = sum over n that include k of dy[n] times the product of all other x up to n.

    As in PyTorch's ``cumprod_backward``: before the first zero the sum of dy y from k on, over x[k]; at
    the first zero the product before it times the sum of dy and products up to the second zero; behind
    it nothing.
    """
    outer, length, inner = (int(extent) for extent in data.shape)
    dtype = data.dtype
    lag = int(exclusive)

    @script.prim_func(private=True, s_tir=True)
    def func(
        output_gradient: T.Buffer((outer, length, inner), dtype),
        data: T.Buffer((outer, length, inner), dtype),
        data_gradient: T.Buffer((outer, length, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        zeros = T.sblock_alloc_buffer((outer, length, inner), "int32")
        # Of x up to n; behind the first zero, of x since then.
        product = T.sblock_alloc_buffer((outer, length, inner), dtype)
        # Of dy times that product, from n on as long as there are as many zeros.
        total = T.sblock_alloc_buffer((outer, length, inner), dtype)
        for o, n, i in T.grid(outer, length, inner):
            with T.sblock("products"):
                v_o, v_n, v_i = T.axis.remap("SRS", [o, n, i])
                T.reads(data[v_o, v_n, v_i], zeros[v_o, 0:length, v_i], product[v_o, 0:length, v_i])
                T.writes(zeros[v_o, v_n, v_i], product[v_o, v_n, v_i])
                zeros[v_o, v_n, v_i] = T.if_then_else(
                    v_n >= 1, zeros[v_o, v_n - 1, v_i], 0
                ) + T.Select(data[v_o, v_n, v_i] == T.cast(0, dtype), 1, 0)
                product[v_o, v_n, v_i] = T.Select(
                    data[v_o, v_n, v_i] == T.cast(0, dtype),
                    T.cast(1, dtype),
                    data[v_o, v_n, v_i]
                    * T.if_then_else(v_n >= 1, product[v_o, v_n - 1, v_i], T.cast(1, dtype)),
                )
        for o, n, i in T.grid(outer, length, inner):
            with T.sblock("totals"):
                v_o, v_n, v_i = T.axis.remap("SRS", [o, n, i])
                T.reads(
                    output_gradient[v_o, 0:length, v_i],
                    zeros[v_o, 0:length, v_i],
                    product[v_o, 0:length, v_i],
                    total[v_o, 0:length, v_i],
                )
                T.writes(total[v_o, length - 1 - v_n, v_i])
                total[v_o, length - 1 - v_n, v_i] = T.if_then_else(
                    v_n >= lag,
                    output_gradient[v_o, length - 1 - v_n + lag, v_i]
                    * product[v_o, length - 1 - v_n, v_i],
                    T.cast(0, dtype),
                ) + T.if_then_else(
                    v_n >= 1,
                    T.if_then_else(
                        zeros[v_o, length - v_n, v_i] == zeros[v_o, length - 1 - v_n, v_i],
                        total[v_o, length - v_n, v_i],
                        # What lies behind a second zero is multiplied by zero, not left out.
                        T.if_then_else(
                            zeros[v_o, length - 1 - v_n, v_i] == 1,
                            zero_times(product[v_o, length - 1 - v_n, v_i]),
                            T.cast(0, dtype),
                        ),
                    ),
                    T.cast(0, dtype),
                )
        for o, n, i in T.grid(outer, length, inner):
            with T.sblock("data_gradient"):
                v_o, v_n, v_i = T.axis.remap("SSS", [o, n, i])
                T.reads(
                    data[v_o, v_n, v_i],
                    zeros[v_o, v_n, v_i],
                    product[v_o, 0:length, v_i],
                    total[v_o, v_n, v_i],
                )
                T.writes(data_gradient[v_o, v_n, v_i])
                data_gradient[v_o, v_n, v_i] = T.if_then_else(
                    zeros[v_o, v_n, v_i] == 0,
                    total[v_o, v_n, v_i] / data[v_o, v_n, v_i],
                    T.if_then_else(
                        T.And(zeros[v_o, v_n, v_i] == 1, data[v_o, v_n, v_i] == T.cast(0, dtype)),
                        total[v_o, v_n, v_i]
                        * T.if_then_else(v_n >= 1, product[v_o, v_n - 1, v_i], T.cast(1, dtype)),
                        T.cast(0, dtype),
                    ),
                )

    return func


def running_log_sum(data: te.Tensor) -> tvm.tirx.PrimFunc:
    """y[n] = log of the sum of exp(x) up to n, added up in float64 as PyTorch does."""
    outer, length, inner = (int(extent) for extent in data.shape)
    dtype = data.dtype

    @T.prim_func(private=True, s_tir=True)
    def func(
        data: T.Buffer((outer, length, inner), dtype),
        running: T.Buffer((outer, length, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for o, i in T.grid(outer, inner):
            with T.sblock("line"):
                v_o, v_i = T.axis.remap("SS", [o, i])
                T.reads(data[v_o, 0:length, v_i])
                T.writes(running[v_o, 0:length, v_i])
                total = T.sblock_alloc_buffer((1,), "float64")
                total[0] = -T.infinity("float64")
                for n in T.serial(length):
                    total[0] = log_of_sum(T.cast(data[v_o, n, v_i], "float64"), total[0])
                    running[v_o, n, v_i] = T.cast(total[0], dtype)

    return func


def running_log_sum_backward(
    output_gradient: te.Tensor, data: te.Tensor, output: te.Tensor
) -> tvm.tirx.PrimFunc:
    """dx[k] = exp(x[k]) times the sum from k on of dy exp(-y).

    As in PyTorch's ``logcumsumexp_backward``: in logarithms, of which positive and negative gradients have
    a sum each, with the least number instead of the logarithm of others.
    """
    outer, length, inner = (int(extent) for extent in data.shape)
    dtype = data.dtype
    least = tvm.tirx.min_value(dtype)

    def term(gradient: Expr, output: Expr, side: Expr) -> Expr:
        size = T.Select(side == 0, gradient, -gradient)
        counted = T.Select(size > T.cast(0, dtype), T.log(size), least)
        return T.cast(counted - output, "float64")

    @T.prim_func(private=True, s_tir=True)
    def func(
        output_gradient: T.Buffer((outer, length, inner), dtype),
        data: T.Buffer((outer, length, inner), dtype),
        output: T.Buffer((outer, length, inner), dtype),
        data_gradient: T.Buffer((outer, length, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for o, i in T.grid(outer, inner):
            with T.sblock("line"):
                v_o, v_i = T.axis.remap("SS", [o, i])
                T.reads(
                    output_gradient[v_o, 0:length, v_i],
                    data[v_o, 0:length, v_i],
                    output[v_o, 0:length, v_i],
                )
                T.writes(data_gradient[v_o, 0:length, v_i])
                totals = T.sblock_alloc_buffer((2,), "float64")
                for side in T.serial(2):
                    totals[side] = -T.infinity("float64")
                for back in T.serial(length):
                    for side in T.serial(2):
                        totals[side] = log_of_sum(
                            term(
                                output_gradient[v_o, length - 1 - back, v_i],
                                output[v_o, length - 1 - back, v_i],
                                side,
                            ),
                            totals[side],
                        )
                    data_gradient[v_o, length - 1 - back, v_i] = T.exp(
                        T.cast(totals[0], dtype) + data[v_o, length - 1 - back, v_i]
                    ) - T.exp(T.cast(totals[1], dtype) + data[v_o, length - 1 - back, v_i])

    return func
