"""Loops for kernels with a few passes over their data: norms, losses, sums, pooling.

Neighbouring blocks of such a kernel run inside common outer loops wherever they can, so that what
one block made is still in the cache for the next. The device's cores share the outer loops.
Sums run in vector registers: over lanes of the innermost axis where that is summed, and side by
side where it is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.accumulation import (
    Accumulation,
    read_accumulation,
    readable_extent,
    shares_a_load,
    substitute,
)
from tvm_xengine.kernels.schedules.blocks import Axis, Block
from tvm_xengine.kernels.schedules.loops import ForKind, loop, nest, sequence, share, unravel
from tvm_xengine.kernels.schedules.padding import pad_first
from tvm_xengine.kernels.schedules.phases import split_block
from tvm_xengine.kernels.schedules.shared_axes import (
    SharedAxis,
    partitioned_dimensions,
    shared_axes,
)
from tvm_xengine.kernels.targets import core_count, vector_bytes

_PARALLEL_POSITIONS = 32_768
"""With fewer, waking threads takes longer than they save; chosen."""

_VECTORS_PER_SUM = 4
"""Sums that do not wait for each other: the latency of an addition in cycles."""

_BRANCHING_LANES = 128
"""Numbers between two looks at a condition; chosen."""

_SUMS_AT_ONCE = 10
"""Sums of a tile that stay in the 16 vector registers of AVX2 together with their operands."""

Values = Mapping[ir.Var, ir.Expr]


def write_streaming(
    func: tirx.PrimFunc, blocks: Sequence[Block], buffers: Sequence[ir.Var], target: Target
) -> tirx.PrimFunc:
    """Return `func`, which is `blocks` passing `buffers` among themselves, with loops for a CPU."""
    blocks, copies = _without_conditions(blocks, target)
    buffers = [*buffers, *copies]
    groups = _groups(blocks)
    stmts = []
    allocated = {buffer: buffer for buffer in buffers}
    for group in groups:
        others = [block for block in blocks if block not in group]
        private = [b for b in buffers if not any(_touches(block, b) for block in others)]
        writer = _GroupWriter(group, target)
        stmts.append(writer.write(private))
        for buffer in writer.made_private:
            del allocated[buffer]
    body = sequence([*(tirx.AllocBuffer(buffer) for buffer in allocated), *stmts])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _without_conditions(
    blocks: Sequence[Block], target: Target
) -> tuple[list[Block], list[ir.Var]]:
    """Blocks with fewer conditions, where that is possible, and the buffers they need for it."""
    result: list[Block] = []
    copies: list[ir.Var] = []
    for block in blocks:
        parts = split_block(block)
        # Each part of several would need a copy of its own, which takes longer than it saves.
        padded = pad_first(block, max(vector_bytes(target) // 4, 1)) if len(parts) == 1 else None
        result += parts if padded is None else padded.blocks
        copies += [] if padded is None else [padded.buffer]
    return result, copies


def _groups(blocks: Sequence[Block]) -> list[list[Block]]:
    """Cut the blocks into runs that share outer loops."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and shared_axes([*groups[-1], block]):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _touches(block: Block, buffer: ir.Var) -> bool:
    stored = any(store.buffer.same_as(buffer) for store in block.stores)
    return stored or any(load.buffer.same_as(buffer) for load in block.loads)


class _GroupWriter:
    """Writes the loops of blocks that share their outer ones.

    Attributes
    ----------
    made_private
        Buffers of which every iteration of the outer loops has its own small copy.
    """

    def __init__(self, blocks: Sequence[Block], target: Target) -> None:
        self._blocks = blocks
        self._vector_bytes = vector_bytes(target)
        self._dtype = _index_dtype(blocks)
        self._axes = _outer_axes(blocks)
        positions = sum(_positions(block) for block in blocks)
        self._workers = core_count(target) if positions >= _PARALLEL_POSITIONS else 1
        self.made_private: dict[ir.Var, _Slice] = {}

    def write(self, private: Sequence[ir.Var]) -> tirx.Stmt:
        if not self._axes:
            return self._blocks_at([{} for _ in self._blocks])
        for buffer in private:
            dropped = partitioned_dimensions(buffer, self._blocks, self._axes)
            if len(dropped) == len(self._axes):
                self.made_private[buffer] = _Slice.of(buffer, dropped)
        first = [axis[0] for axis in self._axes]

        def iteration(p: ir.Expr) -> tirx.Stmt:
            position = unravel(p, first)
            at = [
                {axis[number].var: position[axis[0].var] for axis in self._axes}
                for number in range(len(self._blocks))
            ]
            return _redirect(self._blocks_at(at), self.made_private)

        return share(
            math.prod(axis.extent for axis in first),
            self._workers,
            iteration,
            "outer",
            dtype=self._dtype,
            setup=[tirx.AllocBuffer(piece.buffer) for piece in self.made_private.values()],
        )

    def _blocks_at(self, at: Sequence[Values]) -> tirx.Stmt:
        return sequence(
            [self._block(block, here) for block, here in zip(self._blocks, at, strict=True)]
        )

    def _block(self, block: Block, at: Values) -> tirx.Stmt:
        spatial = [axis for axis in block.spatial if axis.var not in at]
        if not block.summed:
            return self._over(spatial, at, lambda here: substitute(block.body, here))
        fold = read_accumulation(block)
        if fold is None:
            return self._over(spatial, at, lambda here: self._in_memory(block, here))
        most = self._most_lanes(fold)
        if _sums_innermost(block):
            beside = _sharing_axes(fold, spatial)
            rest = spatial[: len(spatial) - len(beside)]
            most = max(self._lanes_of(fold), most // max(1, _positions_of(beside)))
            lanes = _largest_power(min(most, block.summed[-1].extent))
            return self._over(
                rest, at, lambda here: self._over_lanes(block, fold, here, lanes, beside)
            )
        if spatial and fold.is_contiguous_in(spatial[-1].var):
            return self._over(
                spatial[:-1],
                at,
                lambda here: self._side_by_side(block, fold, here, spatial[-1], most),
            )
        return self._over(spatial, at, lambda here: self._over_lanes(block, fold, here, 1))

    def _most_lanes(self, fold: Accumulation) -> int:
        """Elements to fold at a time: some registers full, or a long row for LLVM to mask."""
        if fold.branches:
            return _BRANCHING_LANES
        return self._lanes_of(fold) * _VECTORS_PER_SUM

    def _lanes_of(self, fold: Accumulation) -> int:
        return max(self._vector_bytes // fold.itemsize, 1)

    def _in_memory(self, block: Block, at: Values) -> tirx.Stmt:
        body = self._over(block.summed, at, lambda here: substitute(block.body, here))
        return body if block.init is None else sequence([substitute(block.init, at), body])

    def _over_lanes(
        self,
        block: Block,
        fold: Accumulation,
        at: Values,
        lanes: int,
        beside: Sequence[Axis] = (),
    ) -> tirx.Stmt:
        """Fold elements in `lanes` parts, each over every `lanes`-th of the innermost axis.

        Parameters
        ----------
        beside
            Axes of the elements that are folded at once.
        """
        *outer, last = block.summed
        sums = list(_places(beside))
        parts = tirx.decl_buffer((len(sums) * lanes,), fold.dtype, name="parts")
        whole = tirx.decl_buffer((1,), fold.dtype, name="whole")

        def add(here: Values, number: int, position: ir.Expr, lane: ir.Expr) -> tirx.Stmt:
            term = substitute(fold.term, {**here, **sums[number], last.var: position})
            place = number * lanes + lane
            return tirx.BufferStore(parts, fold.fold(parts[place], term), [place])

        def piece(here: Values, first: ir.Expr, width: int) -> tirx.Stmt:
            def of_sum(number: int) -> tirx.Stmt:
                return self._lanes(fold, width, lambda lane: add(here, number, first + lane, lane))

            return sequence([of_sum(number) for number in range(len(sums))])

        def innermost(here: Values) -> tirx.Stmt:
            whole_chunks = last.extent // lanes
            chunks = self._loop(whole_chunks, lambda c: piece(here, c * lanes, lanes), "chunk")
            rest = [
                piece(here, tirx.const(first, self._dtype), width)
                for first, width in _powers(whole_chunks * lanes, last.extent)
            ]
            return sequence([chunks, *rest])

        def cleared(number: int) -> tirx.Stmt:
            start = substitute(fold.start, {**at, **sums[number]})
            return self._lanes(
                fold,
                lanes,
                lambda lane: tirx.BufferStore(parts, start, [number * lanes + lane]),
            )

        def join(number: int, lane: ir.Expr) -> tirx.Stmt:
            value = fold.fold(whole[0], parts[number * lanes + lane])
            return tirx.BufferStore(whole, value, [0])

        def joined(number: int) -> list[tirx.Stmt]:
            here = {**at, **sums[number]}
            index = [substitute(i, here) for i in fold.index]
            return [
                tirx.BufferStore(whole, substitute(fold.start, here), [0]),
                self._loop(lanes, lambda lane: join(number, lane), "lane", self._join_kind(fold)),
                tirx.BufferStore(fold.buffer, whole[0], index),
            ]

        return sequence(
            [
                tirx.AllocBuffer(parts),
                tirx.AllocBuffer(whole),
                *(cleared(number) for number in range(len(sums))),
                self._over(outer, at, innermost),
                *(stmt for number in range(len(sums)) for stmt in joined(number)),
            ]
        )

    def _side_by_side(
        self, block: Block, fold: Accumulation, at: Values, axis: Axis, most: int
    ) -> tirx.Stmt:
        """Fold neighbouring elements in the lanes of one register."""

        def piece(first: ir.Expr, lanes: int, stored: int | None = None) -> tirx.Stmt:
            parts = tirx.decl_buffer((lanes,), fold.dtype, name="parts")

            def add(here: Values) -> tirx.Stmt:
                def one(lane: ir.Expr) -> tirx.Stmt:
                    term = substitute(fold.term, {**here, axis.var: first + lane})
                    return tirx.BufferStore(parts, fold.fold(parts[lane], term), [lane])

                return self._lanes(fold, lanes, one)

            def start(lane: ir.Expr) -> tirx.Stmt:
                value = substitute(fold.start, {**at, axis.var: first + lane})
                return tirx.BufferStore(parts, value, [lane])

            def store(lane: ir.Expr) -> tirx.Stmt:
                index = [substitute(i, {**at, axis.var: first + lane}) for i in fold.index]
                return tirx.BufferStore(fold.buffer, parts[lane], index)

            def stored_from(place: int, width: int) -> tirx.Stmt:
                return self._lanes(fold, width, lambda lane: store(place + lane))

            return sequence(
                [
                    tirx.AllocBuffer(parts),
                    self._lanes(fold, lanes, start),
                    self._over(block.summed, at, add),
                    *(stored_from(*run) for run in _powers(0, stored or lanes)),
                ]
            )

        whole = axis.extent // most
        stmts = [self._loop(whole, lambda c: piece(c * most, most), "chunk")] if whole else []
        rest = axis.extent - whole * most
        at_once = min(most, 1 << (rest - 1).bit_length()) if rest else 0
        start = tirx.const(whole * most, self._dtype)
        if rest and not fold.branches and whole * most + at_once <= self._readable(block, fold):
            # One register that is not full costs less than several smaller ones.
            stmts.append(piece(start, at_once, rest))
            return sequence(stmts)
        stmts += [
            piece(tirx.const(first, self._dtype), lanes)
            for first, lanes in _powers(whole * most, axis.extent)
        ]
        return sequence(stmts)

    def _readable(self, block: Block, fold: Accumulation) -> int:
        """Positions of the last spatial axis at which the term may be read, also behind its end."""
        return readable_extent(fold.term, block.spatial[-1], (*block.spatial, *block.summed))

    def _over(
        self, axes: Sequence[Axis], at: Values, body: Callable[[Values], tirx.Stmt]
    ) -> tirx.Stmt:
        return nest(
            [axis.extent for axis in axes],
            lambda i: body({**at, **{a.var: p for a, p in zip(axes, i, strict=True)}}),
            "i",
            self._dtype,
        )

    def _lanes(
        self, fold: Accumulation, lanes: int, body: Callable[[ir.Expr], tirx.Stmt]
    ) -> tirx.Stmt:
        """Run `body` for every lane: as vectors, or as a loop that LLVM can vectorise with masks."""
        kind = ForKind.SERIAL if fold.branches else ForKind.VECTORIZED
        return self._loop(lanes, body, "lane", kind)

    def _join_kind(self, fold: Accumulation) -> ForKind:
        return ForKind.SERIAL if fold.branches else ForKind.UNROLLED

    def _loop(
        self,
        extent: int,
        body: Callable[[ir.Expr], tirx.Stmt],
        name: str,
        kind: ForKind = ForKind.SERIAL,
    ) -> tirx.Stmt:
        return loop(extent, body, name, kind, dtype=self._dtype)


class _Slice:
    """What one iteration of the outer loops sees of a buffer: some dimensions are gone."""

    def __init__(self, buffer: ir.Var, dropped: tuple[int, ...]) -> None:
        self.buffer = buffer
        self.dropped = dropped

    @classmethod
    def of(cls, buffer: ir.Var, dropped: tuple[int, ...]) -> _Slice:
        shape = [extent for d, extent in enumerate(buffer.ty.shape) if d not in dropped]
        dtype = str(buffer.ty.dtype.dtype)
        return cls(tirx.decl_buffer(shape or [1], dtype, name=buffer.name), dropped)

    def index(self, index: Sequence[ir.Expr]) -> list[ir.Expr]:
        kept = [part for d, part in enumerate(index) if d not in self.dropped]
        return kept or [tirx.const(0, "int32")]


def _redirect(stmt: tirx.Stmt, slices: Mapping[ir.Var, _Slice]) -> tirx.Stmt:
    def load(node: ir.TensorLoad) -> ir.Expr:
        piece = slices.get(node.source)
        return node if piece is None else piece.buffer[tuple(piece.index(node.indices))]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        piece = slices.get(node.buffer)
        if piece is None:
            return node
        return tirx.BufferStore(piece.buffer, node.value, piece.index(node.indices))

    if not slices:
        return stmt
    return tvm_ffi.structural_map(stmt, [(ir.TensorLoad, load), (tirx.BufferStore, store)])


def _outer_axes(blocks: Sequence[Block]) -> tuple[SharedAxis, ...]:
    """The loops around all blocks, less the one that vectors need inside."""
    axes = shared_axes(blocks)
    if all(_sums_innermost(block) for block in blocks):
        return axes
    last = blocks[-1].spatial[-1] if blocks[-1].spatial else None
    return tuple(axis for axis in axes if last is None or not axis[-1].var.same_as(last.var))


def _sums_innermost(block: Block) -> bool:
    """Whether vectors run along the last summed axis, not along the last spatial one."""
    fold = read_accumulation(block) if block.summed else None
    if fold is None or not fold.is_contiguous_in(block.summed[-1].var):
        return False
    beside = block.spatial[-1] if block.spatial else None
    return (
        beside is None
        or beside.extent <= block.summed[-1].extent
        or not fold.is_contiguous_in(beside.var)
    )


def _positions(block: Block) -> int:
    return math.prod(axis.extent for axis in (*block.spatial, *block.summed))


def _index_dtype(blocks: Sequence[Block]) -> str:
    axes = [axis for block in blocks for axis in (*block.spatial, *block.summed)]
    return str(axes[0].var.ty.dtype) if axes else "int32"


def _powers(first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut ``first .. stop`` into pieces whose lengths are powers of two: (start, length)."""
    while first < stop:
        length = _largest_power(stop - first)
        yield first, length
        first += length


def _sharing_axes(fold: Accumulation, axes: Sequence[Axis]) -> list[Axis]:
    """The last axes, of few positions, whose elements are sums with a factor in common."""
    chosen: list[Axis] = []
    for axis in reversed(axes):
        if _positions_of([axis, *chosen]) > _SUMS_AT_ONCE or not shares_a_load(fold.term, axis.var):
            break
        chosen.insert(0, axis)
    return chosen


def _positions_of(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def _places(axes: Sequence[Axis]) -> Iterator[dict[ir.Var, ir.Expr]]:
    """Every position of some axes."""
    for place in itertools.product(*(range(axis.extent) for axis in axes)):
        yield {
            axis.var: tirx.const(i, str(axis.var.ty.dtype))
            for axis, i in zip(axes, place, strict=True)
        }


def _largest_power(limit: int) -> int:
    return 1 << (limit.bit_length() - 1)
