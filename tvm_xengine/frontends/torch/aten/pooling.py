"""Averages and maxima over windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod

from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.literals import per_axis, scalar
from tvm_xengine.relax_ir.types import static_shape

MAX_POOL = {2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
"""Maxima over windows, by the number of their axes."""


def avg_pool(
    rank: int,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> relax.Expr:
    """Averages over windows of two or three axes, or their sums over `divisor`."""
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
    pool = relax.op.nn.avg_pool2d if rank == 2 else relax.op.nn.avg_pool3d
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
        x = builder.emit(MAX_POOL[rank](x, list(sizes), list(steps)))
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
    return builder.emit(MAX_POOL[rank](part, size))


CONVERTERS: dict[str, Converter] = {
    "adaptive_max_pool2d.default": adaptive_max_pool,
    "adaptive_max_pool3d.default": adaptive_max_pool,
    **{f"avg_pool{rank}d.default": partial(avg_pool, rank) for rank in (2, 3)},
}
