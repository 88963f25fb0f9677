"""Averages and maxima over windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, per_axis, scalar
from tvm_xengine.relax_ir.types import static_shape

MAX_POOL = {
    1: relax.op.nn.max_pool1d,
    2: relax.op.nn.max_pool2d,
    3: relax.op.nn.max_pool3d,
}
"""Maxima over windows, by the number of their axes."""


def avg_pool(
    rank: int,
    builder: Builder,
    x: Expr,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None = None,
) -> Expr:
    """Averages over windows, or their sums over `divisor`."""
    shape = static_shape(x.ty)
    sizes, widths = per_axis(size, rank), per_axis(padding, rank)
    steps = per_axis(stride, rank) if len(stride) else sizes
    if len(shape) == rank + 1:
        x = builder.emit(relax.op.expand_dims(x, 0))
    if divisor is not None:
        # Whole windows of zeros and elements, so that each average is its sum over the same number.
        space = shape[-rank:]
        behind = _padding_behind(space, sizes, steps, widths, ceil_mode=ceil_mode)
        around = [0, 0, 0, 0]
        for before, after in zip(widths, behind, strict=True):
            around += [before, after]
        x, widths, ceil_mode = builder.emit(relax.op.nn.pad(x, around)), [0] * rank, False
    pools = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
    pool = pools[rank]
    y = pool(x, sizes, steps, widths, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    if divisor is not None:
        y = relax.op.multiply(builder.emit(y), scalar(prod(sizes) / divisor, x))
    if len(shape) == rank + 1:
        y = relax.op.squeeze(builder.emit(y), [0])
    return builder.emit(y)


def _padding_behind(
    space: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    widths: Sequence[int],
    *,
    ceil_mode: bool,
) -> list[int]:
    """How many elements behind the last ones the windows read."""
    behind = []
    for extent, size, step, width in zip(space, sizes, steps, widths, strict=True):
        rest = extent + 2 * width - size
        last = -(-rest // step) if ceil_mode else rest // step
        if last * step >= extent + width:
            last -= 1  # no window starts behind the last element
        behind.append(max(0, last * step + size - extent - width))
    return behind


def adaptive_avg_pool(rank: int, builder: Builder, x: Expr, output_size: Sequence[int]) -> Expr:
    """The averages of m windows over n elements, window k from floor(k n / m) to ceil((k + 1) n / m)."""
    shape = static_shape(x.ty)
    sizes = [int(m) for m in output_size]
    pools = {
        1: relax.op.nn.adaptive_avg_pool1d,
        2: relax.op.nn.adaptive_avg_pool2d,
        3: relax.op.nn.adaptive_avg_pool3d,
    }
    if len(shape) == rank + 1:
        x = builder.emit(relax.op.expand_dims(x, 0))
    y = builder.emit(pools[rank](x, sizes))
    return builder.emit(relax.op.squeeze(y, [0])) if len(shape) == rank + 1 else y


def adaptive_max_pool(
    rank: int, builder: Builder, x: Expr, output_size: Sequence[int]
) -> list[Expr]:
    """(the maxima of such windows, their flat places in the image).

    The elements of every window are laid out along an axis, short windows with -inf behind them.
    """
    shape = static_shape(x.ty)
    lead, space = shape[:-rank], shape[-rank:]
    windows = [adaptive_windows(n, int(m)) for n, m in zip(space, output_size, strict=True)]
    reach = [max(end - begin for begin, end in along) for along in windows]
    places, inside = _window_places(space, windows, reach)
    flat = builder.emit(relax.op.reshape(x, (*lead, prod(space))))
    count = prod(int(m) for m in output_size)
    read = builder.emit(
        relax.op.take(flat, relax.const(places.reshape(-1), "int64"), axis=len(lead))
    )
    laid = builder.emit(relax.op.reshape(read, (*lead, count, prod(reach))))
    if not inside.all():
        hidden = relax.const(inside.reshape(count, prod(reach)), "bool")
        laid = builder.emit(relax.op.where(hidden, laid, scalar(float("-inf"), x)))
    which = builder.emit(relax.op.argmax(laid, len(lead) + 1, keepdims=True))
    best = builder.emit(relax.op.gather_elements(laid, which, axis=len(lead) + 1))
    number = np.arange(count).reshape(count, 1) * prod(reach)
    place = relax.op.add(which, relax.const(number, "int64"))
    at = relax.op.take(relax.const(places.reshape(-1), "int64"), builder.emit(place), axis=0)
    wanted = (*lead, *(int(m) for m in output_size))
    return [builder.emit(relax.op.reshape(one, wanted)) for one in (best, builder.emit(at))]


def _window_places(
    space: Sequence[int], windows: Sequence[Sequence[tuple[int, int]]], reach: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Flat places of the elements of each window, and which of them belong to it."""
    rank = len(space)
    places = np.zeros((1,) * (2 * rank), "int64")
    inside = np.ones((1,) * (2 * rank), bool)
    for axis, along in enumerate(windows):
        begins = np.array([begin for begin, _ in along]).reshape(-1, 1)
        ends = np.array([end for _, end in along]).reshape(-1, 1)
        at = begins + np.arange(reach[axis])
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        inside = inside & (at < ends).reshape(shape)
        clipped = np.minimum(at, space[axis] - 1).reshape(shape)
        places = places + clipped * prod(space[axis + 1 :])
    return places, inside


def adaptive_windows(extent: int, count: int) -> list[tuple[int, int]]:
    """Begins and ends of windows of about equal lengths."""
    return [(k * extent // count, -(-(k + 1) * extent // count)) for k in range(count)]


def fractional_max_pool(
    rank: int,
    builder: Builder,
    x: Expr,
    size: Sequence[int],
    output_size: Sequence[int],
    samples: Expr,
) -> list[Expr]:
    """(the maxima of windows that begin at random, their flat places in the image).

    `samples` (batch, channels, rank) holds one number in [0, 1) for each axis (Graham, 2014).
    """
    shape = static_shape(x.ty)
    space, lead = shape[-rank:], (prod(shape[: -rank - 1]), shape[-rank - 1])
    counts, sizes = [int(m) for m in output_size], per_axis(size, rank)
    place = relax.const(0, "int64")
    for axis in range(rank):
        # PyTorch draws for the last axis first in images, and for the first one in volumes.
        at = rank - 1 - axis if rank == 2 else axis
        drawn = relax.op.strided_slice(samples, [0, 2], [0, at], [lead[0], at + 1])
        drawn = builder.emit(drawn)
        begins = _random_begins(builder, drawn, space[axis], counts[axis], sizes[axis])
        along = [1] * (2 * rank)
        along[axis] = counts[axis]
        begins = builder.emit(relax.op.reshape(begins, (*lead, *along)))
        within = np.arange(sizes[axis]).reshape(
            [-1 if a == rank + axis else 1 for a in range(2 * rank)]
        )
        read = relax.op.add(begins, relax.const(within, "int64"))
        pitch = relax.const(prod(space[axis + 1 :]), "int64")
        place = builder.emit(relax.op.add(place, relax.op.multiply(read, pitch)))
    flat = builder.emit(relax.op.reshape(x, (*lead, prod(space))))
    index = builder.emit(relax.op.reshape(place, (*lead, prod(counts) * prod(sizes))))
    laid = builder.emit(relax.op.gather_elements(flat, index, axis=2))
    laid, index = (
        builder.emit(relax.op.reshape(one, (*lead, prod(counts), prod(sizes))))
        for one in (laid, index)
    )
    which = builder.emit(relax.op.argmax(laid, 3, keepdims=True))
    wanted = (*shape[:-rank], *counts)
    return [
        builder.emit(relax.op.reshape(relax.op.gather_elements(one, which, axis=3), wanted))
        for one in (laid, index)
    ]


def _random_begins(builder: Builder, drawn: Expr, extent: int, count: int, size: int) -> Expr:
    """Begins of windows, (batch, channels, count): the last one ends with the axis."""
    last = extent - size
    if count == 1:
        return builder.emit(relax.op.full_like(drawn, relax.const(last, "int64"), "int64"))
    dtype = str(drawn.ty.dtype)
    share = scalar(last / (count - 1), drawn)
    numbers = relax.const(np.arange(count - 1, dtype=dtype), dtype)
    there = relax.op.floor(relax.op.multiply(relax.op.add(drawn, numbers), share))
    first = relax.op.floor(relax.op.multiply(drawn, share))
    moved = builder.emit(relax.op.astype(relax.op.subtract(there, first), "int64"))
    end = relax.op.full_like(drawn, relax.const(last, "int64"), "int64")
    return builder.emit(relax.op.concat([moved, builder.emit(end)], axis=2))


CONVERTERS: dict[str, Converter] = {
    **{
        f"fractional_max_pool{rank}d.default": partial(fractional_max_pool, rank) for rank in (2, 3)
    },
    **{f"adaptive_max_pool{rank}d.default": partial(adaptive_max_pool, rank) for rank in (1, 2, 3)},
    **{
        f"{name}{rank}d.default": partial(adaptive_avg_pool, rank)
        for rank in (1, 2, 3)
        for name in ("adaptive_avg_pool", "_adaptive_avg_pool")
    },
    **{f"avg_pool{rank}d.default": partial(avg_pool, rank) for rank in (1, 2, 3)},
}
