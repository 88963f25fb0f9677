"""Pooling of any rank: forward with saved positions, and gathered backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.axis_maps import AxisMap, map_axes
from tvm_xengine.kernels.te.indexing.positions import unravel
from tvm_xengine.kernels.te.pointwise.function import isnan


def max_pool_forward(
    data: te.Tensor,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    output_shape: tuple[int, ...],
) -> list[te.Tensor]:
    """The maximum of each window, and its number in the window (int32, row-major).

    Of equal values the first one counts. NaN is greater than all, and the last one counts, as in
    PyTorch.
    """
    _, _, *space = [int(extent) for extent in data.shape]
    window = te.reduce_axis((0, prod(pool_size)), name="window")
    is_float = "float" in str(data.dtype)
    lowest = (
        tvm.tirx.const(float("-inf"), data.dtype) if is_float else tvm.tirx.min_value(data.dtype)
    )

    def value(n: Var, c: Var, *q: Var) -> Expr:
        k = unravel(window, pool_size)
        at = [q[a] * strides[a] + k[a] * dilation[a] - padding[a] for a in range(len(q))]
        inside = _inside(at, space)
        return tvm.tirx.if_then_else(inside, data(n, c, *at), lowest)

    def better(left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, Expr]:
        first = tvm.tirx.any(
            left[1] > right[1],
            tvm.tirx.all(left[1] == right[1], left[0] <= right[0]),
            tvm.tirx.all(isnan(left[1]), tvm.tirx.Not(isnan(right[1]))),
            tvm.tirx.all(isnan(left[1]), isnan(right[1]), left[0] >= right[0]),
        )
        return (
            tvm.tirx.Select(first, left[0], right[0]),
            tvm.tirx.Select(first, left[1], right[1]),
        )

    def nothing(position_dtype: str, _value_dtype: str) -> tuple[Expr, Expr]:
        last = tvm.tirx.const(prod(pool_size), position_dtype)
        return last, lowest

    arg_max = te.comm_reducer(better, nothing, name="arg_max")
    position, maximum = te.compute(
        output_shape,
        lambda n, c, *q: arg_max((window.var.astype("int32"), value(n, c, *q)), axis=window),
        name="maximum",
    )
    return [maximum, position]


def max_pool_backward(
    output_gradient: te.Tensor,
    position: te.Tensor,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    data_shape: tuple[int, ...],
) -> te.Tensor:
    """Each input pixel gathers the gradients of the windows whose maximum it was."""
    _, _, *out_space = [int(extent) for extent in output_gradient.shape]
    k = [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(pool_size)]
    zero = tvm.tirx.const(0, output_gradient.dtype)

    def chosen(inside: Expr, is_maximum: Expr, *at: Expr) -> Expr:
        # Apart, so that only the first is a branch (`BranchAroundReads`): the second one depends on values.
        value = tvm.tirx.if_then_else(is_maximum, output_gradient(*at), zero)
        return tvm.tirx.if_then_else(inside, value, zero)

    def data_gradient(n: Var, c: Var, *i: Var) -> Expr:
        scaled = [i[a] + padding[a] - k[a] * dilation[a] for a in range(len(i))]
        at = [tvm.tirx.floordiv(scaled[a], strides[a]) for a in range(len(i))]
        window = _ravel(k, pool_size)
        reads = [
            tvm.tirx.floormod(scaled[a], strides[a]) == 0 for a in range(len(i)) if strides[a] > 1
        ]
        inside = tvm.tirx.all(*reads, _inside(at, out_space))
        return te.sum(chosen(inside, position(n, c, *at) == window, n, c, *at), axis=k)

    def of_its_window(n: Var, c: Var, *i: Var) -> Expr:
        padded = [i[a] + padding[a] for a in range(len(i))]
        at = [tvm.tirx.floordiv(one, step) for one, step in zip(padded, strides, strict=True)]
        within = [tvm.tirx.floormod(one, step) for one, step in zip(padded, strides, strict=True)]
        is_maximum = position(n, c, *at) == _ravel(within, pool_size)
        return chosen(_inside(at, out_space), is_maximum, n, c, *at)

    gather = of_its_window if _side_by_side(pool_size, strides, dilation) else data_gradient
    return te.compute(data_shape, gather, name="data_gradient")


def avg_pool_backward(
    output_gradient: te.Tensor,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    data_shape: tuple[int, ...],
    count_include_pad: bool,
) -> te.Tensor:
    """Each input pixel gathers its share of the windows that cover it."""
    _, _, *space = data_shape
    _, _, *out_space = [int(extent) for extent in output_gradient.shape]
    windows = _Windows(pool_size, strides, padding, dilation, tuple(space), count_include_pad)
    rank = len(space)
    k = [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(pool_size)]
    zero = tvm.tirx.const(0, output_gradient.dtype)

    def share(n: Var, c: Var, at: Sequence[Expr]) -> Expr:
        return output_gradient(n, c, *at) / windows.covered(at).astype(output_gradient.dtype)

    def data_gradient(n: Var, c: Var, *i: Var) -> Expr:
        scaled = [i[a] + padding[a] - k[a] * dilation[a] for a in range(rank)]
        at = [tvm.tirx.floordiv(scaled[a], strides[a]) for a in range(rank)]
        reads = [
            tvm.tirx.floormod(scaled[a], strides[a]) == 0 for a in range(rank) if strides[a] > 1
        ]
        inside = tvm.tirx.all(*reads, _inside(at, out_space))
        return te.sum(tvm.tirx.if_then_else(inside, share(n, c, at), zero), axis=k)

    def of_its_window(n: Var, c: Var, *i: Var) -> Expr:
        at = [tvm.tirx.floordiv(i[a] + padding[a], strides[a]) for a in range(rank)]
        return tvm.tirx.if_then_else(_inside(at, out_space), share(n, c, at), zero)

    gather = of_its_window if _side_by_side(pool_size, strides, dilation) else data_gradient
    return te.compute(data_shape, gather, name="data_gradient")


@dataclass(frozen=True)
class _Windows:
    """The windows of a pooling over an image."""

    pool_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    space: tuple[int, ...]
    count_include_pad: bool

    def covered(self, at: Sequence[Expr]) -> Expr:
        """How many elements the window at an output pixel is divided by."""
        total, *others = [self._covered_along(axis, at[axis]) for axis in range(len(self.space))]
        for extent in others:
            total = total * extent
        return total

    def _covered_along(self, axis: int, position: Expr) -> Expr:
        size, space, dilation = self.pool_size[axis], self.space[axis], self.dilation[axis]
        first = position * self.strides[axis] - self.padding[axis]
        if self.count_include_pad:
            end = space + self.padding[axis + len(self.space)]
            return te.min(first + size, end) - first
        if dilation == 1:
            return te.min(first + size, space) - te.max(first, 0)
        below = te.max(0, tvm.tirx.floordiv(dilation - 1 - first, dilation))
        above = te.min(size, tvm.tirx.floordiv(space - first - 1, dilation) + 1)
        return above - below


def adaptive_avg_pool(data: te.Tensor, *, output_size: tuple[int, ...]) -> te.Tensor:
    """The mean of each of the windows [q I / O, ceil((q + 1) I / O)) of the space axes."""
    space = map(int, data.shape[2:])
    maps = [_means(size, out_size) for size, out_size in zip(space, output_size, strict=True)]
    return map_axes(data, maps, str(data.dtype))


def adaptive_avg_pool_backward(
    output_gradient: te.Tensor, *, data_shape: tuple[int, ...]
) -> te.Tensor:
    """Each input pixel gathers its share of the windows over it."""
    out_space = map(int, output_gradient.shape[2:])
    sizes = zip(data_shape[2:], out_space, strict=True)
    maps = [_means(size, out_size).transposed() for size, out_size in sizes]
    return map_axes(output_gradient, maps, str(output_gradient.dtype))


def _means(size: int, out_size: int) -> AxisMap:
    """The means of the windows of an adaptive pooling along one axis."""
    q = np.arange(out_size)

    def share(q: Expr, p: Expr, dtype: str) -> Expr:
        first = tvm.tirx.floordiv(q * size, out_size)
        end = tvm.tirx.floordiv((q + 1) * size + out_size - 1, out_size)
        covered = tvm.tirx.all(p >= first, p < end)
        return tvm.tirx.Select(covered, (end - first).astype(dtype), tvm.tirx.const(0, dtype))

    first, end = q * size // out_size, -(-(q + 1) * size // out_size)
    return AxisMap(size, first, end - 1, share, only_selects=out_size % size == 0, divides=True)


def _side_by_side(
    pool_size: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...]
) -> bool:
    """Whether every pixel lies in one window at most."""
    return pool_size == strides and all(step == 1 for step in dilation)


def _inside(at: Sequence[Expr], space: Sequence[int]) -> Expr:
    return tvm.tirx.all(
        *(bound for p, extent in zip(at, space, strict=True) for bound in (p >= 0, p < extent))
    )


def _ravel(position: Sequence[Expr], shape: Sequence[int]) -> Expr:
    flat = position[0]
    for index, extent in zip(position[1:], shape[1:], strict=True):
        flat = flat * extent + index
    return flat
