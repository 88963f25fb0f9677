"""Loops for kernels with a few passes over their data: norms, losses, sums, pooling.

Neighbouring blocks of such a kernel run inside common outer loops wherever they can, so that what
one block made is still in the cache for the next. The device's cores share the outer loops.
Sums run in vector registers: over lanes of the innermost axis where that is summed, and side by
side where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.accumulation import (
    Accumulation,
    is_contiguous,
    read_accumulation,
    substitute,
)
from tvm_xengine.kernels.schedules.blocks import Access, Axis, Block, with_accesses
from tvm_xengine.kernels.schedules.folds import (
    FoldWriter,
    Values,
    counts_one_by_one,
    in_pieces,
    over,
)
from tvm_xengine.kernels.schedules.joined_rows import short_rows, with_joined_rows
from tvm_xengine.kernels.schedules.loops import sequence, share, unravel
from tvm_xengine.kernels.schedules.neighbours import neighbours_at_once, with_neighbours
from tvm_xengine.kernels.schedules.padding import pad_first
from tvm_xengine.kernels.schedules.products.phases import split_block
from tvm_xengine.kernels.schedules.shared_axes import (
    SharedAxis,
    partitioned_dimensions,
    shared_axes,
)
from tvm_xengine.kernels.schedules.workers import least_iterations, operations, worker_count
from tvm_xengine.kernels.targets import vector_bytes


def write_streaming(
    func: tirx.PrimFunc, blocks: Sequence[Block], buffers: Sequence[ir.Var], target: Target
) -> tirx.PrimFunc:
    """Return `func`, which is `blocks` passing `buffers` among themselves, with loops for a CPU."""
    func, blocks, buffers = _with_long_rows(func, blocks, buffers, target)
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
    return func.with_body(body)


def _with_long_rows(
    func: tirx.PrimFunc, blocks: Sequence[Block], buffers: Sequence[ir.Var], target: Target
) -> tuple[tirx.PrimFunc, Sequence[Block], Sequence[ir.Var]]:
    """The kernel with short rows joined, as far as that leaves iterations for all workers."""
    if target.kind.name == "c":  # boards have no cache and short vectors
        return func, blocks, buffers
    workers = worker_count(sum(map(operations, blocks)), target)
    least = min(_iterations(blocks, target), least_iterations(workers))
    while True:
        joined = (
            with_joined_rows(func, blocks, buffers, rows, count)
            for rows in short_rows(blocks)
            for count in rows.joined_counts
        )
        longer = next((one for one in joined if _iterations(one[1], target) >= least), None)
        if longer is None:
            return func, blocks, buffers
        func, blocks, buffers = longer


def _iterations(blocks: Sequence[Block], target: Target) -> int:
    """Iterations of the outer loops, where there are fewest."""
    groups = [group for group in _groups(blocks) if group[0].loads]
    return min(
        (math.prod(axis[0].extent for axis in _outer_axes(group, target)) for group in groups),
        default=1,
    )


def _without_conditions(
    blocks: Sequence[Block], target: Target
) -> tuple[list[Block], list[ir.Var]]:
    """Blocks with fewer conditions, where that is possible, and the buffers they need for it."""
    result: list[Block] = []
    copies: list[ir.Var] = []
    for block in blocks:
        parts = split_block(block)
        # Each part of several would need a copy of its own, which takes longer than it saves.
        lanes = max(vector_bytes(target, _sum_type(block)) // 4, 1)
        fold = read_accumulation(block)
        apart = fold is not None and _reads_apart(fold, target)
        padded = pad_first(block, lanes, reads_apart=apart) if len(parts) == 1 else None
        result += parts if padded is None else padded.blocks
        copies += [] if padded is None else [padded.buffer]
    return result, copies


def _sum_type(block: Block) -> str:
    fold = read_accumulation(block)
    return "float32" if fold is None else fold.dtype


def _groups(blocks: Sequence[Block]) -> list[list[Block]]:
    """Cut the blocks into runs that share outer loops; tables, which read nothing, come first."""
    tables: list[list[Block]] = []
    groups: list[list[Block]] = []
    for block in blocks:
        if _is_table(block, blocks):
            tables.append([block])
        elif groups and shared_axes([*groups[-1], block]):
            groups[-1].append(block)
        else:
            groups.append([block])
    return [*tables, *groups]


def _is_table(block: Block, blocks: Sequence[Block]) -> bool:
    """Whether others read what a block alone makes of positions alone."""
    others = [other for other in blocks if other is not block]
    is_read = any(block.written & other.accesses.keys() for other in others)
    is_shared = any(block.written & other.written for other in others)
    return is_read and not is_shared and not block.loads and not block.summed


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
        self._target = target
        self._dtype = _index_dtype(blocks)
        self._axes = _outer_axes(blocks, target)
        self._beside: Sequence[Axis] = ()
        self._workers = worker_count(sum(map(operations, blocks)), target)
        self.made_private: dict[ir.Var, _Slice] = {}

    def write(self, private: Sequence[ir.Var]) -> tirx.Stmt:
        if not self._axes:
            return self._blocks_at([{} for _ in self._blocks])
        if self._target.kind.name != "c" and not any(map(_is_image, private)):
            self._take_neighbours()
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

    def _take_neighbours(self) -> None:
        """Let an iteration do several positions of the only outer axis where each has short rows.

        Channels of small images are such: one alone is a line of the cache in each image, which
        is too little to be fetched ahead, and often falls into one set of the cache with all the others.
        """
        count = neighbours_at_once(self._blocks, self._axes, self._workers)
        if count == 1:
            return
        taken = [
            with_neighbours(block, axis, count)
            for block, axis in zip(self._blocks, self._axes[0], strict=True)
        ]
        self._blocks = [one.block for one in taken]
        self._axes = (tuple(one.outer for one in taken),)
        self._beside = [one.inner for one in taken]

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
            return self._over(spatial[:-1], at, lambda row: self._in_memory(block, spatial, row))
        width = vector_bytes(self._target, fold.dtype)
        in_c = self._target.kind.name == "c"
        folded = FoldWriter(block, fold, self._dtype, width, as_written=in_c)
        if sums_innermost(block, self._target):
            beside = [axis for axis in spatial if axis in self._beside]
            beside = beside or folded.sharing_axes(spatial)
            rest = [axis for axis in spatial if axis not in beside]
            return self._over(rest, at, lambda here: folded.over_lanes(here, beside))
        if spatial and (_reads_apart(fold, self._target) or fold.is_contiguous_in(spatial[-1].var)):
            return self._over(spatial[:-1], at, lambda here: folded.side_by_side(here, spatial[-1]))
        return self._over(spatial, at, folded.one_by_one)

    def _in_memory(self, block: Block, spatial: Sequence[Axis], at: Values) -> tirx.Stmt:
        """A row of what is no sum, as running sums and places of extremes are.

        Where neighbours lie side by side they take each step together.
        """

        def along_row(here: Values, body: Callable[[Values], tirx.Stmt]) -> tirx.Stmt:
            return in_pieces(spatial[-1:], here, body, self._dtype)

        def steps(here: Values, inner: Callable[[Values], tirx.Stmt]) -> tirx.Stmt:
            return self._over(block.summed, here, inner)

        def begun(here: Values) -> list[tirx.Stmt]:
            return [] if block.init is None else [substitute(block.init, here)]

        def body(here: Values) -> tirx.Stmt:
            return substitute(block.body, here)

        if not spatial or not is_contiguous(block.body, spatial[-1].var):
            return along_row(at, lambda here: sequence([*begun(here), steps(here, body)]))
        first = [] if block.init is None else [along_row(at, lambda here: sequence(begun(here)))]
        return sequence([*first, steps(at, lambda here: along_row(here, body))])

    def _over(
        self, axes: Sequence[Axis], at: Values, body: Callable[[Values], tirx.Stmt]
    ) -> tirx.Stmt:
        return over(axes, at, body, self._dtype)


def _is_image(buffer: ir.Var) -> bool:
    """Whether a buffer has more than a number for each position of one axis."""
    return sum(int(extent) > 1 for extent in buffer.ty.shape) > 1


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
    def of_slice(buffer: ir.Var, index: Sequence[ir.Expr]) -> Access | None:
        piece = slices.get(buffer)
        return None if piece is None else (piece.buffer, piece.index(index))

    return with_accesses(stmt, of_slice) if slices else stmt


def _outer_axes(blocks: Sequence[Block], target: Target) -> tuple[SharedAxis, ...]:
    """The loops around all blocks, less the one that vectors need inside."""
    axes = shared_axes(blocks)
    if all(sums_innermost(block, target) for block in blocks):
        return axes
    last = blocks[-1].spatial[-1] if blocks[-1].spatial else None
    return tuple(axis for axis in axes if last is None or not axis[-1].var.same_as(last.var))


def sums_innermost(block: Block, target: Target) -> bool:
    """Whether vectors run along the last summed axis, not along the last spatial one."""
    fold = read_accumulation(block) if block.summed else None
    if fold is None or not fold.is_contiguous_in(block.summed[-1].var):
        return False
    beside = block.spatial[-1] if block.spatial else None
    if beside is None or beside.extent <= block.summed[-1].extent:
        return True
    return not _reads_apart(fold, target) and not fold.is_contiguous_in(beside.var)


def _reads_apart(fold: Accumulation, target: Target) -> bool:
    """Whether terms may lie apart as well as side by side: Helium loads such bytes at once, too."""
    is_scalar = counts_one_by_one(fold, vector_bytes(target, fold.dtype))
    return is_scalar or ("int" in fold.dtype and target.kind.name == "c")


def _index_dtype(blocks: Sequence[Block]) -> str:
    axes = [axis for block in blocks for axis in (*block.spatial, *block.summed)]
    return str(axes[0].var.ty.dtype) if axes else "int32"
