"""Copies, with a border, of the part of an image that a contraction reads at a time.

Windows of a convolution reach over the edge of their image. A factor that asks for each element whether it
is inside can be read neither in place nor in vectors; a copy of a few rows, with what lies outside, can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import mentions, substitute
from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.loops import loop, nest
from tvm_xengine.kernels.schedules.padding import (
    Box,
    analyzer_of,
    boxes_of,
    is_choice,
)
from tvm_xengine.kernels.schedules.products.contraction import Contraction
from tvm_xengine.kernels.schedules.products.in_place import within
from tvm_xengine.kernels.schedules.products.packing import Position


@dataclass(frozen=True)
class PaddedCopy:
    """What is copied of an image.

    Attributes
    ----------
    read, outside
        The element of the image, and what stands for one that it does not have.
    boxes
        Of each dimension of the image: where it is read, and what of that exists.
    parts
        Of each dimension: what the loops around the copy make of its index, and the rest, which the copy has
        a dimension for; None where there is no rest.
    """

    buffer: ir.Var
    read: ir.TensorLoad
    outside: ir.Expr
    boxes: tuple[Box, ...]
    parts: tuple[tuple[ir.Expr, Box | None], ...]

    def filled(self) -> tirx.Stmt:
        """Stores what lies outside everywhere."""
        extents = [int(extent) for extent in self.buffer.ty.shape]
        dtype = str(self.read.indices[0].ty.dtype)
        return nest(extents, lambda at: tirx.BufferStore(self.buffer, self.outside, at), "f", dtype)

    def copied(self, at: Position) -> tirx.Stmt:
        """Copies what is inside, where the loops around are at `at`; the rest stays as it is filled."""
        dtype = str(self.read.indices[0].ty.dtype)

        def level(d: int, source: list[ir.Expr], place: list[ir.Expr], inside: bool) -> tirx.Stmt:
            if d == len(self.parts):
                value = self.read.source[tuple(source)] if inside else self.outside
                return tirx.BufferStore(self.buffer, value, place)
            around, rest = self.parts[d]
            moved, box = substitute(around, at), self.boxes[d]
            is_known = isinstance(around, tirx.IntImm)
            is_free = is_known or (box.first <= box.least and box.most < box.stop)

            def guarded(index: ir.Expr, here: list[ir.Expr]) -> tirx.Stmt:
                copy = level(d + 1, [*source, index], here, inside)
                if is_free or not inside:
                    return copy
                test = tirx.all(index >= box.first, index < box.stop)
                return tirx.IfThenElse(test, copy, level(d + 1, [*source, index], here, False))

            if rest is None:
                return guarded(moved, place)
            first = max(rest.least, box.first) if is_known else rest.least
            stop = min(rest.most + 1, box.stop) if is_known else rest.most + 1

            def at_position(p: ir.Expr) -> tirx.Stmt:
                return guarded(moved + p + first, [*place, p + (first - rest.least)])

            return loop(stop - first, at_position, f"p{d}", dtype=dtype)

        return level(0, [], [], True)


def with_rows_apart(contraction: Contraction) -> Contraction:
    """One product for each row of an image, if a product reads over its edge: a copy is then small."""
    *outer, last = contraction.columns
    is_image = is_choice(contraction.right) and last.extent >= contraction.depth[-1].extent
    if not is_image or not outer or not isinstance(contraction.left, ir.TensorLoad):
        return contraction
    return dataclasses.replace(contraction, batch=(*contraction.batch, *outer), columns=(last,))


def with_copies(
    contraction: Contraction, around: Sequence[Axis]
) -> tuple[Contraction, tuple[PaddedCopy, ...]]:
    """The contraction of copies, where a factor reads over an edge.

    Parameters
    ----------
    around
        Axes whose loops are around those of the product, beside the batch.
    """
    axes = (
        *contraction.batch,
        *contraction.rows,
        *contraction.columns,
        *contraction.depth,
    )
    fixed = [axis.var for axis in (*contraction.batch, *around)]
    copies, factors = [], []
    for factor in (contraction.left, contraction.right):
        made = _copy_of(factor, axes, fixed)
        factors.append(factor if made is None else made[0])
        copies += [] if made is None else [made[1]]
    left, right = factors
    return dataclasses.replace(contraction, left=left, right=right), tuple(copies)


def _copy_of(
    factor: ir.Expr, axes: Sequence[Axis], fixed: Sequence[ir.Var]
) -> tuple[ir.TensorLoad, PaddedCopy] | None:
    if not is_choice(factor):
        return None
    condition, read, outside = factor.args
    if not isinstance(read, ir.TensorLoad) or not isinstance(outside, (tirx.FloatImm, tirx.IntImm)):
        return None
    boxes = boxes_of(condition, read, axes)
    if boxes is None:
        return None
    parts, place, shape = [], [], []
    for index in read.indices:
        part = _parted(index, axes, fixed)
        if part is None:
            return None
        moved, rest, box = part
        parts.append((moved, box))
        if box is not None:
            place.append(within(rest - box.least, axes))
            shape.append(box.most - box.least + 1)
    dtype = str(read.source.ty.dtype.dtype)
    buffer = tirx.decl_buffer(shape, dtype, name=f"{read.source.name}_padded")
    copy = PaddedCopy(buffer, read, outside, tuple(boxes), tuple(parts))
    return buffer[tuple(place)], copy


def _parted(
    index: ir.Expr, axes: Sequence[Axis], fixed: Sequence[ir.Var]
) -> tuple[ir.Expr, ir.Expr, Box | None] | None:
    """An index as what the loops around make of it, and the rest with its bounds."""
    zero = {var: tirx.const(0, str(var.ty.dtype)) for var in fixed}
    moving = [axis for axis in axes if axis.var not in zero]
    rest = within(substitute(index, zero), axes)
    moved = within(index - rest, axes)
    if any(mentions(moved, axis.var) for axis in moving):
        return None
    if not any(mentions(rest, axis.var) for axis in moving):
        return within(index, axes), rest, None
    reach = analyzer_of(axes).const_int_bound(rest)
    least, most = int(reach.min_value), int(reach.max_value)
    return moved, rest, Box(least, most, least, most + 1)
