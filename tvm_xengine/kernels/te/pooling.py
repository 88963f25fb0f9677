"""Pooling of any rank: forward with saved positions, and gathered backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.axis_maps import AxisMap, map_axes, widened
from tvm_xengine.kernels.te.indexing.positions import unravel
from tvm_xengine.kernels.te.pointwise.function import isnan
from tvm_xengine.relax_ir.kernel_attributes import KEPT_ATTR

_SMALL_WINDOW = 4
"""Elements: of 2 x 2 one pass, number by number, takes less than three in vectors."""

_WHOLE_WINDOW = 9
"""The same of windows that do not reach over the border and start apart."""

_FEW_IMAGES = 32
"""Channels of all images: what three passes store of one, four times its size, is an eighth of all then."""

_COUNTING_DTYPES = ("float32", "float64")
"""Types that know all whole numbers up to 2^24, the largest window."""


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

    Of equal values the first one counts, and none of the border. NaN is greater than all, and the last
    one counts, as in PyTorch.
    """
    batch, channels, *space = [int(extent) for extent in data.shape]
    window = te.reduce_axis((0, prod(pool_size)), name="window")
    is_float = "float" in str(data.dtype)
    lowest = (
        tvm.tirx.const(float("-inf"), data.dtype) if is_float else tvm.tirx.min_value(data.dtype)
    )

    def pair(n: Var, c: Var, *q: Var) -> tuple[Expr, Expr]:
        k = unravel(window, pool_size)
        at = _from_image(_read_at(q, k, strides, dilation), padding)
        inside = _inside(at, space)
        place = window.var.astype("int32")
        if any(padding):
            place = tvm.tirx.Select(inside, place, tvm.tirx.const(prod(pool_size), "int32"))
        return place, tvm.tirx.if_then_else(inside, data(n, c, *at), lowest)

    is_plain = not any(padding) and strides[-1] > 1
    most = _WHOLE_WINDOW if is_plain else _SMALL_WINDOW
    is_small = prod(pool_size) <= most or batch * channels < _FEW_IMAGES
    if str(data.dtype) in _COUNTING_DTYPES and not is_small:
        return _maximum_before_position(data, pool_size, strides, padding, dilation, output_shape)

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
        lambda *q: arg_max(pair(*q), axis=window),
        name="maximum",
    )
    return [maximum, position]


def _maximum_before_position(
    data: te.Tensor,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    output_shape: tuple[int, ...],
) -> list[te.Tensor]:
    """The same in three passes that run in vectors: the maximum, where it is first, and the last NaN.

    Places are counted in the type of the data, so that all passes fold equal vectors.
    """
    dtype = data.dtype
    batch, channels, *space = [int(extent) for extent in data.shape]
    bordered = [
        (count - 1) * strides[a] + (pool_size[a] - 1) * dilation[a] + 1
        for a, count in enumerate(output_shape[2:])
    ]
    lowest = tvm.tirx.const(float("-inf"), dtype)

    def with_border(n: Var, c: Var, *p: Var) -> Expr:
        at = _from_image(p, padding)
        return tvm.tirx.if_then_else(_inside(at, space), data(n, c, *at), lowest)

    padded = te.compute(
        (batch, channels, *bordered), with_border, name="padded", attrs={KEPT_ATTR: 1}
    )
    window = [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(pool_size)]
    place = _ravel(window, pool_size).astype(dtype)
    behind, before = (tvm.tirx.const(number, dtype) for number in (prod(pool_size), -1))

    def value(n: Var, c: Var, *q: Var) -> Expr:
        return padded(n, c, *_read_at(q, window, strides, dilation))

    def folded(element: Callable[..., Expr], fold: Callable[..., Expr], name: str) -> te.Tensor:
        return te.compute(output_shape, lambda *q: fold(element(*q), axis=window), name=name)

    maximum = te.comm_reducer(lambda a, b: tvm.tirx.max(a, b), lambda _: lowest, name="maximum")
    largest = folded(value, maximum, "largest")

    def place_of_largest(*q: Var) -> Expr:
        at = _from_image(_read_at(q[2:], window, strides, dilation), padding)
        is_largest = tvm.tirx.all(value(*q) == largest(*q), _inside(at, space))
        return tvm.tirx.Select(is_largest, place, behind)

    first = folded(place_of_largest, te.min, "first")
    last_nan = folded(
        lambda *q: tvm.tirx.Select(isnan(value(*q)), place, before), te.max, "last_nan"
    )

    def chosen(nan: Expr, number: Expr, *q: Var) -> Expr:
        return tvm.tirx.Select(last_nan(*q) >= 0.0, nan, number)

    nan = tvm.tirx.const(float("nan"), dtype)
    return [
        te.compute(output_shape, lambda *q: chosen(nan, largest(*q), *q), name="maximum"),
        te.compute(
            output_shape,
            lambda *q: chosen(last_nan(*q), first(*q), *q).astype("int32"),
            name="position",
        ),
    ]


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
        wide = widened(q, (size + 1) * (out_size + 1))
        first = tvm.tirx.floordiv(wide * size, out_size)
        end = tvm.tirx.floordiv((wide + 1) * size + out_size - 1, out_size)
        covered = tvm.tirx.all(p >= first, p < end)
        return tvm.tirx.Select(covered, (end - first).astype(dtype), tvm.tirx.const(0, dtype))

    first, end = q * size // out_size, -(-(q + 1) * size // out_size)
    return AxisMap(size, first, end - 1, share, only_selects=out_size % size == 0, divides=True)


def _side_by_side(
    pool_size: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...]
) -> bool:
    """Whether every pixel lies in one window at most."""
    return pool_size == strides and all(step == 1 for step in dilation)


def _read_at(
    q: Sequence[Expr], k: Sequence[Expr], strides: Sequence[int], dilation: Sequence[int]
) -> list[Expr]:
    """Where the element k of the window at q lies, counted from the border."""
    return [q[a] * strides[a] + k[a] * dilation[a] for a in range(len(q))]


def _from_image(at: Sequence[Expr], padding: Sequence[int]) -> list[Expr]:
    """The same counted from the image."""
    return [p - padding[a] for a, p in enumerate(at)]


def _inside(at: Sequence[Expr], space: Sequence[int]) -> Expr:
    return tvm.tirx.all(
        *(bound for p, extent in zip(at, space, strict=True) for bound in (p >= 0, p < extent))
    )


def _ravel(position: Sequence[Expr], shape: Sequence[int]) -> Expr:
    flat = position[0]
    for index, extent in zip(position[1:], shape[1:], strict=True):
        flat = flat * extent + index
    return flat
