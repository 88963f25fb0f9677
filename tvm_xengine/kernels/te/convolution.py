"""Gradients of convolutions of any rank, stride, padding, dilation and number of groups.

Data layout is (batch, channel, space...), weight layout (out, in / groups, space...).
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.accumulate import summed


def conv_weight_gradient(
    data: te.Tensor,
    output_gradient: te.Tensor,
    *,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> te.Tensor:
    """Gradient of the weight, shape ``(out, in / groups, *kernel_shape)``.

    dw[o, c, k] = sum_{n, q} dy[n, o, q] * x[n, c + group(o) * in / groups, q * s + k * d - p]
    """
    batch, channels, *space = _shape(data)
    _, out_channels, *out_space = _shape(output_gradient)
    in_group, out_group = channels // groups, out_channels // groups
    n = te.reduce_axis((0, batch), name="n")
    q = [te.reduce_axis((0, extent), name=f"q{k}") for k, extent in enumerate(out_space)]

    def weight_gradient(o: Var, c: Var, *k: Var) -> Expr:
        at = [
            q_a * strides[a] + k_a * dilation[a] - padding[a]
            for a, (q_a, k_a) in enumerate(zip(q, k, strict=True))
        ]
        value = data(n, o // out_group * in_group + c, *at)
        inside = _inside(at, space, _never_outside(space, kernel_shape, strides, padding, dilation))
        if inside is not None:
            value = tvm.tirx.if_then_else(inside, value, tvm.tirx.const(0, data.dtype))
        return output_gradient(n, o, *q) * value

    shape = (out_channels, in_group, *kernel_shape)
    return summed(shape, weight_gradient, [n, *q], data.dtype, "weight_gradient")


def conv_data_gradient(
    output_gradient: te.Tensor,
    weight: te.Tensor,
    *,
    data_shape: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> te.Tensor:
    """Gradient of the data, gathered: each input pixel sums the outputs that read it.

    dx[n, c, i] = sum_{o, k: q = (i + p - k * d) / s is an output pixel} dy[n, o, q] * w[o, c, k]
    """
    _, channels, *space = data_shape
    _, out_channels, *out_space = _shape(output_gradient)
    kernel_shape = _shape(weight)[2:]
    in_group, out_group = channels // groups, out_channels // groups
    o = te.reduce_axis((0, out_group), name="o")
    k = [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(kernel_shape)]

    def data_gradient(n: Var, c: Var, *i: Var) -> Expr:
        scaled = [i[a] + padding[a] - k[a] * dilation[a] for a in range(len(k))]
        at = [
            scaled_a if strides[a] == 1 else tvm.tirx.floordiv(scaled_a, strides[a])
            for a, scaled_a in enumerate(scaled)
        ]
        reads = [
            tvm.tirx.floormod(scaled_a, strides[a]) == 0
            for a, scaled_a in enumerate(scaled)
            if strides[a] > 1
        ]
        fits = [
            kernel_shape[a] == 1 and padding[a] == 0 and (space[a] - 1) // strides[a] < extent
            for a, extent in enumerate(out_space)
        ]
        inside = _inside(at, out_space, fits)
        conditions = [*reads, *([] if inside is None else [inside])]
        group = c // in_group
        value = output_gradient(n, group * out_group + o, *at)
        if conditions:
            zero = tvm.tirx.const(0, output_gradient.dtype)
            value = tvm.tirx.if_then_else(tvm.tirx.all(*conditions), value, zero)
        return value * weight(group * out_group + o, tvm.tirx.floormod(c, in_group), *k)

    return summed(data_shape, data_gradient, [o, *k], output_gradient.dtype, "data_gradient")


def _never_outside(
    space: Sequence[int],
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[bool]:
    """For each axis: whether no output pixel reads the padding."""
    rank = len(space)
    out = [
        (space[a] + padding[a] + padding[a + rank] - dilation[a] * (kernel_shape[a] - 1) - 1)
        // strides[a]
        for a in range(rank)
    ]
    return [
        padding[a] == 0
        and out[a] * strides[a] + (kernel_shape[a] - 1) * dilation[a] - padding[a] < space[a]
        for a in range(rank)
    ]


def _inside(at: Sequence[Expr], space: Sequence[int], always: Sequence[bool]) -> Expr | None:
    """The condition that a position lies in the image; None where it always does."""
    conditions = [
        condition
        for position, extent, known in zip(at, space, always, strict=True)
        if not known
        for condition in (position >= 0, position < extent)
    ]
    return tvm.tirx.all(*conditions) if conditions else None


def _shape(tensor: te.Tensor) -> list[int]:
    return [int(extent) for extent in tensor.shape]
