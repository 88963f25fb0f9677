"""Sums over the windows of an image read a padded copy of it.

A sum that asks for every element whether it lies in the image cannot run in vector registers. In
front of it the image, a few channels at a time, is copied into a buffer whose border holds what
lies outside; positions that a strided window visits in turn lie side by side there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.kernels.schedules.accumulation import (
    Accumulation,
    mentions,
    read_accumulation,
    substitute,
)
from tvm_xengine.kernels.schedules.blocks import Axis, Block
from tvm_xengine.kernels.schedules.shared_axes import partitioned_dimensions, shared_axes

_MOST_BYTES = 256 * 1024
"""Of the copy that one iteration of the outer loops makes: it should stay in the cache."""

_MOST_STEP = 4
"""Strides up to this are padded for; larger ones are rare in networks."""

_LEAST_LANES = 5
"""Copying rows of fewer results takes longer than asking."""


@dataclass(frozen=True)
class Padded:
    """Blocks that compute a sum by way of a copy with a border.

    Attributes
    ----------
    blocks
        Fill the copy, copy the image, sum.
    buffer
        The copy.
    """

    blocks: tuple[Block, ...]
    buffer: ir.Var


def pad_first(block: Block, lanes: int, *, reads_apart: bool = False) -> Padded | None:
    """Return blocks that do what `block` does, None where that is not possible.

    Parameters
    ----------
    lanes
        Elements of a vector register; the last register of a row, which is not full, may read so
        many.
    reads_apart
        Whether a strided window costs as much to read as neighbours.
    """
    fold = read_accumulation(block)
    conditional = None if fold is None else _only_conditional(fold)
    if fold is None or conditional is None:
        return None
    condition, read, outside = conditional
    axes = (*block.spatial, *block.summed)
    boxes = boxes_of(condition, read, axes)
    lane = _lane_axis(block, read)
    if boxes is None or lane is None or (lane in block.spatial and lane.extent < _LEAST_LANES):
        return None
    step = _step(read.indices[-1], lane.var)
    if step is None or not 1 <= step <= _MOST_STEP:
        return None
    copy = _Copy.of(read, boxes, lane, 1 if reads_apart else step, lanes)

    def from_copy(call: ir.Call) -> ir.Expr:
        return copy.at(read.indices, axes) if is_choice(call) else call

    term = tvm_ffi.structural_map(fold.term, [(ir.Call, from_copy)])
    value = fold.fold(fold.buffer[tuple(fold.index)], term)
    summed = dataclasses.replace(block, body=tirx.BufferStore(fold.buffer, value, list(fold.index)))
    blocks = (copy.filled_with(outside), copy.copied(), summed)
    return Padded(blocks, copy.buffer) if _slice_bytes(copy.buffer, blocks) <= _MOST_BYTES else None


@dataclass(frozen=True)
class Box:
    """What is read at one dimension of the image.

    Attributes
    ----------
    least, most
        Of the index, with what lies outside.
    first, stop
        Positions that are read from the image.
    """

    least: int
    most: int
    first: int
    stop: int


@dataclass(frozen=True)
class _Copy:
    """An image with a border.

    Attributes
    ----------
    lane, step
        The axis along which vectors run, and by how much it moves the last index. Where that is
        more than one the copy has a dimension more, for the remainders.
    """

    read: ir.TensorLoad
    boxes: tuple[Box, ...]
    lane: Axis
    step: int
    buffer: ir.Var

    @classmethod
    def of(
        cls, read: ir.TensorLoad, boxes: Sequence[Box], lane: Axis, step: int, lanes: int
    ) -> _Copy:
        shape = [box.most - box.least + 1 for box in boxes]
        whole = min(lanes, 1 << (lane.extent - 1).bit_length())
        spare = -lane.extent % whole
        shape[-1:] = [step, -(-shape[-1] // step) + spare] if step > 1 else [shape[-1] + spare]
        dtype = str(read.source.ty.dtype.dtype)
        buffer = tirx.decl_buffer(shape, dtype, name=f"{read.source.name}_padded")
        return cls(read, tuple(boxes), lane, step, buffer)

    def at(self, indices: Sequence[ir.Expr], axes: Sequence[Axis]) -> ir.TensorLoad:
        """What the image has, or would have, at some index."""
        return self.buffer[tuple(self._place(indices, axes))]

    def filled_with(self, value: ir.Expr) -> Block:
        """The block that fills the copy."""
        axes = [
            Axis(ir.Var(f"f{d}", self.lane.var.ty), int(extent))
            for d, extent in enumerate(self.buffer.ty.shape)
        ]
        store = tirx.BufferStore(self.buffer, value, [axis.var for axis in axes])
        return Block(tuple(axes), (), store, None)

    def copied(self) -> Block:
        """The block that copies what is read of the image."""
        axes = [
            Axis(ir.Var(f"p{d}", self.lane.var.ty), box.stop - box.first)
            for d, box in enumerate(self.boxes)
        ]
        at = [axis.var + box.first for axis, box in zip(axes, self.boxes, strict=True)]
        value = self.read.source[tuple(_simplified(at, axes))]
        return Block(
            tuple(axes), (), tirx.BufferStore(self.buffer, value, self._place(at, axes)), None
        )

    def _place(self, indices: Sequence[ir.Expr], axes: Sequence[Axis]) -> list[ir.Expr]:
        offset = [index - box.least for index, box in zip(indices, self.boxes, strict=True)]
        if self.step == 1:
            return _simplified(offset, axes)
        *outer, last = offset
        mine = [axis.var for axis in axes if axis.var.same_as(self.lane.var)]
        steps = mine[0] if mine else tirx.const(0, str(self.lane.var.ty.dtype))
        rest = _simplified([last - steps * self.step], axes)[0]
        parts = [tirx.floormod(rest, self.step), tirx.floordiv(rest, self.step)]
        remainder, rounds = _simplified(parts, axes)
        return [*_simplified(outer, axes), remainder, steps + rounds if mine else rounds]


def _only_conditional(fold: Accumulation) -> tuple[ir.Expr, ir.TensorLoad, ir.Expr] | None:
    """The condition, the load and the constant of ``if_then_else``, where a term has just one."""
    found: list[ir.Call] = []

    def visit(call: ir.Call) -> None:
        if isinstance(call.op, ir.Op):
            found.append(call)

    tvm_ffi.structural_walk(fold.term, (ir.Call, visit))
    if len(found) != 1 or not is_choice(found[0]):
        return None
    condition, read, outside = found[0].args
    if not isinstance(read, ir.TensorLoad) or not isinstance(outside, (tirx.FloatImm, tirx.IntImm)):
        return None
    return condition, read, outside


def is_choice(expr: ir.Expr) -> bool:
    """Whether an expression is ``if_then_else``."""
    is_call = isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op)
    return is_call and expr.op.name == "prim.if_then_else"


def boxes_of(condition: ir.Expr, read: ir.TensorLoad, axes: Sequence[Axis]) -> list[Box] | None:
    """Where the image is read; None where the condition is not that of a box."""
    analyzer = analyzer_of(axes)
    found = []
    for index, extent in zip(read.indices, read.source.ty.shape, strict=True):
        reach = analyzer.const_int_bound(index)
        found.append([int(reach.min_value), int(reach.max_value), 0, int(extent)])
    for part in _conjuncts(condition):
        bound = _bound(part, read.indices, analyzer)
        if bound is None:
            return None
        dimension, is_lower, value = bound
        if is_lower:
            found[dimension][2] = max(found[dimension][2], value)
        else:
            found[dimension][3] = min(found[dimension][3], value)
    # What the condition does not guard is inside, so only what is read needs to be copied.
    boxes = [Box(lo, hi, max(lo, a), min(hi + 1, b)) for lo, hi, a, b in found]
    return boxes if all(box.first < box.stop for box in boxes) else None


def _conjuncts(condition: ir.Expr) -> list[ir.Expr]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _bound(
    part: ir.Expr, indices: Sequence[ir.Expr], analyzer: sym.Analyzer
) -> tuple[int, bool, int] | None:
    """(dimension, whether from below, first or stop) of a comparison."""
    if not isinstance(part, (tirx.LE, tirx.LT, tirx.GE, tirx.GT)):
        return None
    low, high = (part.a, part.b) if isinstance(part, (tirx.LE, tirx.LT)) else (part.b, part.a)
    gap = isinstance(part, (tirx.LT, tirx.GT))  # low + gap <= high
    for dimension, index in enumerate(indices):
        above = analyzer.simplify(high - index)
        if isinstance(above, tirx.IntImm) and isinstance(low, tirx.IntImm):
            return dimension, True, int(low) + gap - int(above)
        below = analyzer.simplify(low - index)
        if isinstance(below, tirx.IntImm) and isinstance(high, tirx.IntImm):
            return dimension, False, int(high) - gap - int(below) + 1
    return None


def _lane_axis(block: Block, read: ir.TensorLoad) -> Axis | None:
    """The longer of the last axes, where it moves the last index alone."""
    *outer, last = read.indices
    ends = [*block.spatial[-1:], *block.summed[-1:]]
    able = [
        axis
        for axis in ends
        if mentions(last, axis.var) and not any(mentions(part, axis.var) for part in outer)
    ]
    return max(able, key=lambda axis: axis.extent, default=None)


def _step(index: ir.Expr, var: ir.Var) -> int | None:
    """By how much an index grows with a variable, where that is a constant."""
    step = sym.Analyzer().simplify(substitute(index, {var: var + 1}) - index)
    return int(step) if isinstance(step, tirx.IntImm) else None


def _slice_bytes(buffer: ir.Var, blocks: Sequence[Block]) -> int:
    axes = shared_axes(blocks)
    gone = partitioned_dimensions(buffer, blocks, axes) if axes else ()
    shape = [int(extent) for d, extent in enumerate(buffer.ty.shape) if d not in gone]
    return math.prod(shape) * int(buffer.ty.dtype.dtype.itemsize)


def analyzer_of(axes: Sequence[Axis]) -> sym.Analyzer:
    """An analyzer that knows the extents of axes."""
    analyzer = sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, ir.Range(0, max(axis.extent, 1)))
    return analyzer


def _simplified(exprs: Sequence[ir.Expr], axes: Sequence[Axis]) -> list[ir.Expr]:
    analyzer = analyzer_of(axes)
    return [analyzer.simplify(expr) for expr in exprs]
