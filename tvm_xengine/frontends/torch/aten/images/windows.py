"""Windows as columns and back, maxima with their places, and unpooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, per_axis
from tvm_xengine.frontends.torch.aten.images.convolutions import conv, conv_transpose
from tvm_xengine.frontends.torch.aten.images.pooling import MAX_POOL
from tvm_xengine.relax_ir.types import static_shape


def im2col(
    builder: Builder,
    x: Expr,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    """Windows as columns: a convolution whose filters each read one place of the window."""
    *lead, channels, height, width = static_shape(x.ty)
    images = builder.emit(relax.op.reshape(x, (prod(lead), channels, height, width)))
    places = conv(
        builder,
        images,
        _one_place_each(channels, kernel, x),
        None,
        stride,
        padding,
        dilation,
        channels,
    )
    _, columns, *space = static_shape(places.ty)
    return builder.emit(relax.op.reshape(places, (*lead, columns, prod(space))))


def col2im(
    builder: Builder,
    x: Expr,
    output_size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    """The sum of columns at their windows' places, the transpose of `im2col`."""
    *lead, columns, _ = static_shape(x.ty)
    channels = columns // prod(kernel)
    axes = list(zip(output_size, kernel, dilation, padding, stride, strict=True))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in axes]
    more = [(n + 2 * p - d * (k - 1) - 1) % s for n, k, d, p, s in axes]
    places = builder.emit(relax.op.reshape(x, (prod(lead), columns, *counts)))
    weight = _one_place_each(channels, kernel, x)
    made = conv_transpose(builder, places, weight, None, stride, padding, more, channels, dilation)
    return builder.emit(relax.op.reshape(made, (*lead, channels, *output_size)))


def _one_place_each(channels: int, kernel: Sequence[int], like: Expr) -> Expr:
    count = prod(kernel)
    dtype = str(like.ty.dtype)
    one = np.eye(count, dtype=dtype).reshape(count, 1, *kernel)
    return relax.const(np.tile(one, (channels, 1, 1, 1)), dtype)


def unfold(builder: Builder, x: Expr, dimension: int, size: int, step: int) -> Expr:
    """Windows along an axis; the places of a window become the last axis."""
    shape = static_shape(x.ty)
    if not shape:
        row = builder.emit(relax.op.reshape(x, (1,)))
        return builder.emit(relax.op.squeeze(unfold(builder, row, 0, size, step), [0]))
    axis = dimension % len(shape)
    begins = np.arange(0, shape[axis] - size + 1, step)
    taken = relax.const(begins[:, None] + np.arange(size), "int64")
    rows = builder.emit(relax.op.take(x, taken, axis=axis))
    rank = len(shape) + 1
    order = [k for k in range(rank) if k != axis + 1] + [axis + 1]
    return builder.emit(relax.op.permute_dims(rows, order))


def max_pool(
    rank: int, builder: Builder, x: Expr, size: Sequence[int], *window: Sequence[int] | bool
) -> Expr:
    """The maxima alone."""
    return of_rank(rank, builder, x, size, *window)[0]


def of_rank(
    rank: int, builder: Builder, x: Expr, size: Sequence[int], *window: Sequence[int] | bool
) -> list[Expr]:
    """Maxima and places in windows of a number of axes; one length holds for all of them."""
    return max_pool_with_places(builder, x, per_axis(size, rank), *window)  # type: ignore[arg-type]


def max_pool_with_places(
    builder: Builder,
    x: Expr,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[Expr]:
    """(maxima, their flat places in the image); who does not read the places does not pay for them."""
    rank = len(size)
    shape = static_shape(x.ty)
    sizes, widths, spread = (per_axis(one, rank) for one in (size, padding, dilation))
    steps = per_axis(stride, rank) if len(stride) else sizes
    if len(shape) == rank + 1:
        x = builder.emit(relax.op.expand_dims(x, 0))
    pooled = MAX_POOL[rank](x, sizes, steps, widths, spread, ceil_mode=ceil_mode)
    y = builder.emit(pooled)
    places = _places(builder, x, y, sizes, steps, widths, spread)
    if len(shape) == rank + 1:
        y, places = (builder.emit(relax.op.squeeze(one, [0])) for one in (y, places))
    return [y, places]


def _places(
    builder: Builder,
    x: Expr,
    y: Expr,
    sizes: Sequence[int],
    steps: Sequence[int],
    widths: Sequence[int],
    spread: Sequence[int],
) -> Expr:
    """The first place of each maximum: which of the window's elements it is, then where that lies."""
    rank = len(sizes)
    space, counts = static_shape(x.ty)[2:], static_shape(y.ty)[2:]
    around = [0, 0, 0, 0]
    for axis in range(rank):
        reach = (counts[axis] - 1) * steps[axis] + (sizes[axis] - 1) * spread[axis] + 1
        around += [widths[axis], max(0, reach - widths[axis] - space[axis])]
    least = float("-inf")
    padded = builder.emit(relax.op.nn.pad(x, around, "constant", least)) if any(around) else x
    axes = list(range(2, 2 + rank))
    offsets = [
        [k * d for k, d in zip(one, spread, strict=True)] for one in product(*map(range, sizes))
    ]
    seen = []
    for offset in offsets:
        ends = [o + (n - 1) * s + 1 for o, n, s in zip(offset, counts, steps, strict=True)]
        seen.append(builder.emit(relax.op.strided_slice(padded, axes, offset, ends, list(steps))))
    which = builder.emit(relax.op.argmax(builder.emit(relax.op.stack(seen, axis=0)), 0))
    pitch = [prod(space[axis + 1 :]) for axis in range(rank)]
    inside = np.array([np.dot(offset, pitch) for offset in offsets], "int64")
    corner = np.zeros(counts, "int64")
    for axis in range(rank):
        begin = (np.arange(counts[axis]) * steps[axis] - widths[axis]) * pitch[axis]
        corner += begin.reshape([-1 if a == axis else 1 for a in range(rank)])
    within = builder.emit(relax.op.take(relax.const(inside, "int64"), which, axis=0))
    return builder.emit(relax.op.add(within, relax.const(corner[None, None], "int64")))


def max_unpool(
    builder: Builder, x: Expr, places: Expr, output_size: Sequence[int], *_windows: Sequence[int]
) -> Expr:
    """Zeros with x at its places of the image."""
    space = [int(extent) for extent in output_size]
    shape = static_shape(x.ty)
    lead = shape[: len(shape) - len(space)]
    count = prod(shape[len(lead) :])
    dtype = str(x.ty.dtype)
    zeros = builder.emit(relax.op.zeros((prod(lead), prod(space)), dtype))
    flat, where = (builder.emit(relax.op.reshape(one, (prod(lead), count))) for one in (x, places))
    made = builder.emit(relax.op.scatter_elements(zeros, where, flat, 1, "update"))
    return builder.emit(relax.op.reshape(made, (*lead, *space)))


CONVERTERS: dict[str, Converter] = {
    "col2im.default": col2im,
    "im2col.default": im2col,
    "unfold.default": unfold,
    **{f"max_pool{rank}d.default": partial(max_pool, rank) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices.default": partial(of_rank, rank) for rank in (1, 2, 3)},
    "max_unpool2d.default": max_unpool,
    "max_unpool3d.default": max_unpool,
}
