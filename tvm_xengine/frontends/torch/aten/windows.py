"""im2col and col2im."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.convolutions import conv, conv_transpose
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


CONVERTERS: dict[str, Converter] = {
    "col2im.default": col2im,
    "im2col.default": im2col,
    "unfold.default": unfold,
}
