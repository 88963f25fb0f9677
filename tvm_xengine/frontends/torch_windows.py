"""Operators of PyTorch that go over windows: adaptive maxima, unfold and fold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.model import static_shape
from tvm_xengine.frontends.torch_converters import Converter, conv, conv_transpose

_MAX_POOL = {2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}


def adaptive_max_pool(
    builder: relax.BlockBuilder, x: relax.Expr, output_size: Sequence[int]
) -> list[relax.Expr]:
    """The maxima, without their places, of m windows over n elements.

    Window k goes from floor(k * n / m) to ceil((k + 1) * n / m). Where all are equally long and
    far apart, it is one pooling; else every axis is taken apart by itself.
    """
    rank = len(output_size)
    space = static_shape(x.ty)[-rank:]
    windows = [_adaptive_windows(n, int(m)) for n, m in zip(space, output_size, strict=True)]
    sizes, steps = zip(*(_even(one) for one in windows), strict=True)
    lead = static_shape(x.ty)[:-rank]
    x = builder.emit(
        relax.op.reshape(x, (1, prod(lead), *space) if len(lead) == 1 else (*lead, *space))
    )
    if all(sizes):
        x = builder.emit(_MAX_POOL[rank](x, list(sizes), list(steps)))
    else:
        for axis, along in enumerate(windows):
            parts = [_maximum(builder, x, rank, axis, begin, end) for begin, end in along]
            x = builder.emit(relax.op.concat(parts, axis=2 + axis))
    y = builder.emit(relax.op.reshape(x, (*lead, *(int(m) for m in output_size))))
    return [y]


def _adaptive_windows(extent: int, count: int) -> list[tuple[int, int]]:
    return [(k * extent // count, -(-(k + 1) * extent // count)) for k in range(count)]


def _even(windows: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Size and distance of windows that are all alike; zeros where they are not."""
    sizes = {end - begin for begin, end in windows}
    steps = {b[0] - a[0] for a, b in pairwise(windows)} or {1}
    return (sizes.pop(), steps.pop()) if len(sizes) == len(steps) == 1 else (0, 0)


def _maximum(
    builder: relax.BlockBuilder, x: relax.Expr, rank: int, axis: int, begin: int, end: int
) -> relax.Expr:
    part = builder.emit(relax.op.strided_slice(x, [2 + axis], [begin], [end]))
    size = [1] * rank
    size[axis] = end - begin
    return builder.emit(_MAX_POOL[rank](part, size))


def im2col(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> relax.Expr:
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
    builder: relax.BlockBuilder,
    x: relax.Expr,
    output_size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> relax.Expr:
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


def _one_place_each(channels: int, kernel: Sequence[int], like: relax.Expr) -> relax.Expr:
    count = prod(kernel)
    dtype = str(like.ty.dtype)
    one = np.eye(count, dtype=dtype).reshape(count, 1, *kernel)
    return relax.const(np.tile(one, (channels, 1, 1, 1)), dtype)


def unfold(
    builder: relax.BlockBuilder, x: relax.Expr, dimension: int, size: int, step: int
) -> relax.Expr:
    """Windows along an axis; the places of a window become the last axis."""
    shape = static_shape(x.ty)
    axis = dimension % len(shape)
    begins = np.arange(0, shape[axis] - size + 1, step)
    taken = relax.const(begins[:, None] + np.arange(size), "int64")
    rows = builder.emit(relax.op.take(x, taken, axis=axis))
    rank = len(shape) + 1
    order = [k for k in range(rank) if k != axis + 1] + [axis + 1]
    return builder.emit(relax.op.permute_dims(rows, order))


WINDOW_CONVERTERS: dict[str, Converter] = {
    "adaptive_max_pool2d.default": adaptive_max_pool,
    "adaptive_max_pool3d.default": adaptive_max_pool,
    "col2im.default": col2im,
    "im2col.default": im2col,
    "unfold.default": unfold,
}
