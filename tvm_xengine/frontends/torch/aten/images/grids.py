"""Sampling grids, and images sampled there (spatial transformers, flows)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod

import numpy as np
import torch
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.types import static_shape

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER = 0, 1
"""Values of `interpolation_mode` and `padding_mode` of ``aten::grid_sampler``."""


def meshgrid(builder: Builder, lines: Sequence[Expr], indexing: str = "ij") -> list[Expr]:
    """Each line of coordinates along an axis of its own; with "xy" the first two change places."""
    axes = list(range(len(lines)))
    if indexing == "xy":
        axes[:2] = reversed(axes[:2])
    extents = [prod(static_shape(line.ty)) for line in lines]
    shape = tuple(extents[axis] for axis in axes)
    made = []
    for line, axis in zip(lines, axes, strict=True):
        along = tuple(extent if k == axis else 1 for k, extent in enumerate(shape))
        unit = builder.emit(relax.op.reshape(line, along))
        made.append(builder.emit(relax.op.broadcast_to(unit, shape)))
    return made


def affine_grid(builder: Builder, theta: Expr, size: Sequence[int], align_corners: bool) -> Expr:
    """theta applied to every place of an image of `size`, with coordinates from -1 to 1, x first."""
    batch, _, *space = (int(extent) for extent in size)
    rank = len(space)
    dtype = str(theta.ty.dtype)
    axes = [_from_minus_one(extent, dtype, align_corners=align_corners) for extent in space]
    places = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(space, dtype)], axis=-1)
    rows = relax.const(places.reshape(1, prod(space), rank + 1), dtype)
    moved = relax.op.matmul(rows, builder.emit(relax.op.permute_dims(theta, (0, 2, 1))))
    return builder.emit(relax.op.reshape(builder.emit(moved), (batch, *space, rank)))


def _from_minus_one(extent: int, dtype: str, *, align_corners: bool) -> np.ndarray:
    """By PyTorch, whose rounding says on which side of a pixel a place lies."""
    if extent == 1:
        return np.zeros(1, dtype)
    line = torch.linspace(-1, 1, extent, dtype=getattr(torch, dtype))
    return np.asarray(line if align_corners else line * (extent - 1) / extent)


def grid_sample(
    builder: Builder, x: Expr, grid: Expr, interpolation: int, padding: int, align_corners: bool
) -> Expr:
    """The image at the grid's places: the nearest pixel, or a (linear, cubic) mean of those around.

    Pixels are rows of a table, of which `take` reads one for every place and corner.
    """
    batch, channels, *space = static_shape(x.ty)
    rank = len(space)
    places = static_shape(grid.ty)[1:-1]
    order = [0, *range(2, rank + 2), 1]
    moved = builder.emit(relax.op.permute_dims(x, order))
    table = builder.emit(relax.op.reshape(moved, (batch * prod(space), channels)))
    coordinates = []
    for axis, extent in enumerate(space):
        at = rank - 1 - axis  # x, the coordinate along the last axis, comes first
        one = builder.emit(relax.op.strided_slice(grid, [rank + 1], [at], [at + 1]))
        one = builder.emit(relax.op.reshape(one, (batch, prod(places))))
        coordinates.append(builder.emit(_pixels(one, extent, align_corners)))
    corners = [
        _corners(builder, one, interpolation, extent, padding, align_corners=align_corners)
        for one, extent in zip(coordinates, space, strict=True)
    ]
    first = np.arange(batch, dtype="int64")[:, None] * prod(space)
    parts = []
    for chosen in product(*corners):
        row = relax.const(first, "int64")
        for axis, (pixel, _) in enumerate(chosen):
            step = relax.const(prod(space[axis + 1 :]), "int64")
            row = builder.emit(relax.op.add(row, builder.emit(relax.op.multiply(pixel, step))))
        weight = reduce(lambda a, b: builder.emit(relax.op.multiply(a, b)), [w for _, w in chosen])
        read = builder.emit(relax.op.take(table, row, axis=0))
        column = builder.emit(relax.op.reshape(weight, (batch, prod(places), 1)))
        parts.append(builder.emit(relax.op.multiply(read, column)))
    y = reduce(lambda a, b: builder.emit(relax.op.add(a, b)), parts)
    y = builder.emit(relax.op.permute_dims(y, (0, 2, 1)))
    return builder.emit(relax.op.reshape(y, (batch, channels, *places)))


def _pixels(place: Expr, extent: int, align_corners: bool) -> Expr:
    """From -1 to 1 into numbers of pixels, in PyTorch's order: places on a pixel are at a kink."""
    from_zero = relax.op.add(place, scalar(1.0, place))
    if align_corners:
        return relax.op.multiply(from_zero, scalar((extent - 1) / 2, place))
    scaled = relax.op.multiply(from_zero, scalar(extent / 2, place))
    return relax.op.subtract(scaled, scalar(0.5, place))


def _inside(builder: Builder, place: Expr, extent: int, padding: int, align_corners: bool) -> Expr:
    """What lies outside, at the border or reflected there; nothing changes with zeros outside."""
    place = builder.emit(place)
    if padding == _ZEROS:
        return place
    if padding != _BORDER:
        low, span = (0.0, extent - 1.0) if align_corners else (-0.5, float(extent))
        if span == 0:
            place = builder.emit(relax.op.multiply(place, scalar(0.0, place)))
        else:
            place = _reflected(builder, place, low, span)
    # Unlike those of clip, gradients are 0 on the bounds themselves.
    first, last = scalar(0.0, place), scalar(extent - 1.0, place)
    raised = builder.emit(relax.op.where(relax.op.less_equal(place, first), first, place))
    return builder.emit(relax.op.where(relax.op.greater_equal(raised, last), last, raised))


def _reflected(builder: Builder, place: Expr, low: float, span: float) -> Expr:
    """A zigzag between `low` and `low + span`."""
    there = builder.emit(relax.op.abs(builder.emit(relax.op.subtract(place, scalar(low, place)))))
    turns = builder.emit(relax.op.floor(relax.op.multiply(there, scalar(1 / (2 * span), there))))
    around = relax.op.subtract(there, relax.op.multiply(turns, scalar(2 * span, there)))
    back = relax.op.abs(relax.op.subtract(around, scalar(span, there)))
    return builder.emit(relax.op.subtract(scalar(low + span, there), back))


def _corners(
    builder: Builder,
    place: Expr,
    interpolation: int,
    extent: int,
    padding: int,
    *,
    align_corners: bool,
) -> list[tuple[Expr, Expr]]:
    """The pixels along one axis that a place is made of, and the weight of each.

    Of cubic means the pixels are moved inside, of others the place is.
    """
    is_cubic = interpolation == _CUBIC
    if not is_cubic:
        place = _inside(builder, place, extent, padding, align_corners)
    below = builder.emit(relax.op.floor(place))
    rest = builder.emit(relax.op.subtract(place, below))
    one = scalar(1.0, place)
    if interpolation == _LINEAR:
        above = builder.emit(relax.op.add(below, one))
        weights = [(below, builder.emit(relax.op.subtract(one, rest))), (above, rest)]
    elif is_cubic:
        weights = [
            (builder.emit(relax.op.add(below, scalar(k - 1.0, place))), _cubic(builder, rest, k))
            for k in range(4)
        ]
    else:
        weights = [_nearest(builder, below, rest)]
    made = []
    for pixel, weight in weights:
        if is_cubic:
            pixel = _inside(builder, pixel, extent, padding, align_corners)
        if padding == _ZEROS:
            last = scalar(extent - 1.0, place)
            is_inside = relax.op.logical_and(
                relax.op.greater_equal(pixel, scalar(0.0, place)), relax.op.less_equal(pixel, last)
            )
            kept = relax.op.astype(is_inside, str(place.ty.dtype))
            weight = builder.emit(relax.op.multiply(weight, kept))
        known = builder.emit(relax.op.clip(pixel, 0.0, extent - 1.0))
        made.append((builder.emit(relax.op.astype(known, "int64")), weight))
    return made


def _nearest(builder: Builder, below: Expr, rest: Expr) -> tuple[Expr, Expr]:
    """The nearest pixel; halves go to the even one."""
    half = scalar(0.5, rest)
    evens = relax.op.multiply(relax.op.floor(relax.op.multiply(below, half)), scalar(2.0, rest))
    is_odd = relax.op.greater(relax.op.subtract(below, evens), half)
    ties = relax.op.logical_and(relax.op.equal(rest, half), is_odd)
    up = relax.op.logical_or(relax.op.greater(rest, half), ties)
    nearest = builder.emit(relax.op.add(below, relax.op.astype(up, str(rest.ty.dtype))))
    return nearest, builder.emit(relax.op.ones_like(rest))


_CUBIC_SLOPE = -0.75
"""The parameter that PyTorch has in Keys, Cubic convolution interpolation (1981)."""


def _cubic(builder: Builder, rest: Expr, k: int) -> Expr:
    """Keys' weight of the pixel at distance |rest + 1 - k|: of the inner two, or of the outer two."""
    distance = relax.op.add(rest, scalar(1.0 - k, rest))
    if k > 1:
        distance = relax.op.negative(distance)
    distance, a = builder.emit(distance), _CUBIC_SLOPE
    factors = (a + 2, -(a + 3), 0.0, 1.0) if k in (1, 2) else (a, -5 * a, 8 * a, -4 * a)
    total = scalar(factors[0], rest)
    for factor in factors[1:]:
        product = relax.op.multiply(total, distance)
        total = builder.emit(relax.op.add(product, scalar(factor, rest)))
    return total


CONVERTERS: dict[str, Converter] = {
    "affine_grid_generator.default": affine_grid,
    "grid_sampler_2d.default": grid_sample,
    "grid_sampler_3d.default": grid_sample,
    "meshgrid.default": meshgrid,
    "meshgrid.indexing": meshgrid,
}
