"""From indices to positions of elements in a flat tensor, and reading at such positions.

Negative indices count from the end, as in numpy. What points outside gets the position -1; reading
there gives NaN, so that the loss says that the data are wrong, and writing there does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.elementwise import broadcast_shape, read

POSITION_DTYPE = "int64"


def take(data: te.Tensor, indices: te.Tensor, *, axis: int) -> te.Tensor:
    """Slices of `data` by number, as ``numpy.take``: shape (before axis, indices, after axis)."""
    shape, count = _shape(data), len(indices.shape)

    def element(*i: Var) -> Expr:
        index, inside = checked(indices(*i[axis : axis + count]), shape[axis])
        return guarded(inside, data(*i[:axis], index, *i[axis + count :]), data.dtype)

    return te.compute((*shape[:axis], *indices.shape, *shape[axis + 1 :]), element, name="taken")


def read_at(data: te.Tensor, positions: te.Tensor) -> te.Tensor:
    """The elements of a flat tensor at positions."""

    def element(m: Var) -> Expr:
        inside = positions(m) >= tvm.tirx.const(0, POSITION_DTYPE)
        return guarded(inside, data(positions(m)), data.dtype)

    return te.compute(positions.shape, element, name="elements")


def positions_along_axis(indices: te.Tensor, *, axis: int, shape: tuple[int, ...]) -> te.Tensor:
    """Where ``(i, j, ...)`` points to when its coordinate on an axis is replaced by the index there."""
    extents = _shape(indices)

    def position(m: Var) -> Expr:
        at = unravel(m, extents)
        index, inside = checked(indices(*at), shape[axis])
        flat = ravel([*at[:axis], index, *at[axis + 1 :]], shape)
        return tvm.tirx.if_then_else(inside, flat, _outside())

    return te.compute((prod(extents),), position, name="positions")


def positions_of_slices(*indices: te.Tensor, shape: tuple[int, ...]) -> te.Tensor:
    """Where the elements of ``data[indices]`` lie; the indices broadcast and name leading axes."""
    common = broadcast_shape(*(index.shape for index in indices))
    inner = shape[len(indices) :]

    def position(m: Var) -> Expr:
        at = unravel(m, [*common, *inner])
        outer, rest = at[: len(common)], at[len(common) :]
        pairs = [
            checked(read(index, outer), extent)
            for index, extent in zip(indices, shape, strict=False)
        ]
        flat = ravel([*(index for index, _ in pairs), *rest], shape)
        inside = tvm.tirx.all(*(condition for _, condition in pairs))
        return tvm.tirx.if_then_else(inside, flat, _outside())

    return te.compute((prod(common) * prod(inner),), position, name="positions")


def positions_of_tuples(
    indices: te.Tensor, *, shape: tuple[int, ...], batch_rank: int
) -> te.Tensor:
    """Where the elements of slices lie that the vectors on the last axis of `indices` name.

    The first `batch_rank` axes of indices and data belong together.
    """
    *outer, depth = _shape(indices)
    inner = shape[batch_rank + depth :]

    def position(m: Var) -> Expr:
        at = unravel(m, [*outer, *inner])
        row, rest = at[: len(outer)], at[len(outer) :]
        pairs = [checked(indices(*row, k), shape[batch_rank + k]) for k in range(depth)]
        flat = ravel([*row[:batch_rank], *(index for index, _ in pairs), *rest], shape)
        inside = tvm.tirx.all(*(condition for _, condition in pairs))
        return tvm.tirx.if_then_else(inside, flat, _outside())

    return te.compute((prod(outer) * prod(inner),), position, name="positions")


def checked(index: Expr, extent: int) -> tuple[Expr, Expr]:
    """An index counted from the front, and the condition that it lies inside."""
    index = index.astype(POSITION_DTYPE)
    zero, end = (tvm.tirx.const(value, POSITION_DTYPE) for value in (0, extent))
    wrapped = index + tvm.tirx.Select(index < zero, end, zero)
    return wrapped, tvm.tirx.all(wrapped >= zero, wrapped < end)


def guarded(inside: Expr, value: Expr, dtype: str) -> Expr:
    """The value where the condition holds; elsewhere NaN, or 0 in an integer type."""
    nothing = float("nan") if "float" in str(dtype) else 0
    return tvm.tirx.if_then_else(inside, value, tvm.tirx.const(nothing, dtype))


def unravel(flat: Expr, shape: Sequence[int]) -> list[Expr]:
    """The coordinates of a flat position."""
    position: list[Expr] = []
    for extent in reversed(shape):
        position.insert(0, tvm.tirx.floormod(flat, extent))
        flat = tvm.tirx.floordiv(flat, extent)
    return position


def ravel(position: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The flat position of coordinates."""
    flat: Expr = tvm.tirx.const(0, POSITION_DTYPE)
    for index, extent in zip(position, shape, strict=True):
        flat = flat * extent + index.astype(POSITION_DTYPE)
    return flat


def _outside() -> Expr:
    return tvm.tirx.const(-1, POSITION_DTYPE)


def _shape(tensor: te.Tensor) -> list[int]:
    return [int(extent) for extent in tensor.shape]
