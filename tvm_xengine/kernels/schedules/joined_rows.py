"""Make long rows of short ones, where every access goes through two axes in their order.

Rows of images are often shorter than a few vectors. Where no block looks at rows as such, as in
norms and activations, several of them are one: C rows of W elements are C / k rows of k W, which lie
side by side in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import read_accumulation
from tvm_xengine.kernels.schedules.blocks import Axis, Block

_SHORT_ROW = 64
"""Elements: four of the longest vectors, which the loops over rows are unrolled by."""

_LONGEST_ROW = 1 << 14
"""Elements: some tensors of so many float32 fit into the second level of the caches together."""

_Place = tuple[ir.Var, int]
"""A buffer and the first of two of its dimensions."""


@dataclass(frozen=True)
class Rows:
    """Two axes that number rows and their elements, in every block that has them.

    Attributes
    ----------
    places
        The dimensions that they go through.
    axes
        By number of the block.
    """

    places: frozenset[_Place]
    axes: Mapping[int, tuple[Axis, Axis]]

    @property
    def lie_side_by_side(self) -> bool:
        """Whether the elements of a row are neighbours in memory."""
        return all(d + 2 == len(buffer.ty.shape) for buffer, d in self.places)

    @property
    def joined_counts(self) -> list[int]:
        """How many rows may become one, the most first."""
        rows, row = next(iter(self.axes.values()))
        counts = range(min(rows.extent, _LONGEST_ROW // row.extent), 1, -1)
        return [count for count in counts if rows.extent % count == 0]


def short_rows(blocks: Sequence[Block]) -> Iterator[Rows]:
    """All pairs of axes with short rows that may be joined."""
    pairs = _pairs_by_place(blocks)
    while faulty := [
        p for p in pairs if not all(_go_together(blocks, pairs, *a) for a in pairs[p])
    ]:
        for place in faulty:
            del pairs[place]
    seen: set[_Place] = set()
    for place in pairs:
        if place not in seen:
            rows = _component(pairs, place)
            seen |= rows.places
            if rows.lie_side_by_side and all(
                0 < row.extent < _SHORT_ROW and _may_be_longer(blocks[number], row)
                for number, (_, row) in rows.axes.items()
            ):
                yield rows


def _may_be_longer(block: Block, row: Axis) -> bool:
    """Whether a block may go through longer rows: a row that is added up in turn rounds more."""
    if row not in block.summed:
        return True
    fold = read_accumulation(block)
    return fold is not None and not fold.branches and fold.is_contiguous_in(row.var)


def with_joined_rows(
    func: tirx.PrimFunc, blocks: Sequence[Block], buffers: Sequence[ir.Var], rows: Rows, count: int
) -> tuple[tirx.PrimFunc, list[Block], list[ir.Var]]:
    """Parameters, blocks and buffers of a kernel with `count` rows joined to one."""
    wide: dict[ir.Var, ir.Var] = {}
    at: dict[ir.Var, int] = {}
    for buffer, d in rows.places:
        shape = list(map(int, buffer.ty.shape))
        shape[d : d + 2] = _joined(shape[d], shape[d + 1], count)
        wide[buffer] = tirx.decl_buffer(shape, str(buffer.ty.dtype.dtype), name=buffer.name)
        at[buffer] = d
    changed = [
        _joined_block(block, rows.axes[number], count, wide, at) if number in rows.axes else block
        for number, block in enumerate(blocks)
    ]
    params = [wide.get(param, param) for param in func.params]
    renamed = tirx.PrimFunc(params, func.body, func.ret_type, func.attrs)
    return renamed, changed, [wide.get(buffer, buffer) for buffer in buffers]


def _joined(rows: int, row: int, count: int) -> list[int]:
    """Extents of rows that are joined; all to one row are no axis of their own."""
    return [*([rows // count] if count < rows else []), row * count]


def _joined_block(
    block: Block,
    pair: tuple[Axis, Axis],
    count: int,
    wide: Mapping[ir.Var, ir.Var],
    at: Mapping[ir.Var, int],
) -> Block:
    rows, row = pair
    extents = _joined(rows.extent, row.extent, count)
    joined = [
        Axis(ir.Var(axis.var.name, axis.var.ty), extent)
        for axis, extent in zip(pair[-len(extents) :], extents, strict=True)
    ]

    def with_joined(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        kept = [axis for axis in axes if not axis.var.same_as(row.var)]
        return tuple(
            one for axis in kept for one in (joined if axis.var.same_as(rows.var) else [axis])
        )

    def indices(buffer: ir.Var, old: Sequence[ir.Expr]) -> list[ir.Expr]:
        d = at[buffer]
        return [*old[:d], *(axis.var for axis in joined), *old[d + 2 :]]

    def load(node: ir.TensorLoad) -> ir.Expr:
        buffer = wide.get(node.source)
        return node if buffer is None else buffer[tuple(indices(node.source, node.indices))]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        buffer = wide.get(node.buffer)
        if buffer is None:
            return node
        return tirx.BufferStore(buffer, node.value, indices(node.buffer, node.indices))

    def rewritten(stmt: tirx.Stmt) -> tirx.Stmt:
        return tvm_ffi.structural_map(stmt, [(ir.TensorLoad, load), (tirx.BufferStore, store)])

    return replace(
        block,
        spatial=with_joined(block.spatial),
        summed=with_joined(block.summed),
        body=rewritten(block.body),
        init=None if block.init is None else rewritten(block.init),
    )


_Pairs = dict[_Place, list[tuple[int, Axis, Axis]]]


def _pairs_by_place(blocks: Sequence[Block]) -> _Pairs:
    """For dimensions that every access goes through by two whole axes of one kind: these axes."""
    found: _Pairs = {}
    barred: set[_Place] = set()
    for number, block in enumerate(blocks):
        for buffer, index in _accesses(block):
            for d in range(len(index) - 1):
                pair = _axes_at(block, buffer, index, d)
                if pair is None:
                    barred.add((buffer, d))
                else:
                    found.setdefault((buffer, d), []).append((number, *pair))
    return {place: pairs for place, pairs in found.items() if place not in barred}


def _axes_at(
    block: Block, buffer: ir.Var, index: Sequence[ir.Expr], d: int
) -> tuple[Axis, Axis] | None:
    for axes in (block.spatial, block.summed):
        outer, inner = (
            next((a for a in axes if isinstance(i, ir.Var) and a.var.same_as(i)), None)
            for i in index[d : d + 2]
        )
        if outer is not None and inner is not None and outer is not inner:
            is_whole = [int(extent) for extent in buffer.ty.shape[d : d + 2]]
            return (outer, inner) if is_whole == [outer.extent, inner.extent] else None
    return None


def _go_together(
    blocks: Sequence[Block], pairs: _Pairs, number: int, outer: Axis, inner: Axis
) -> bool:
    """Whether a block mentions two axes nowhere but side by side, where they may be joined."""
    zero = tirx.const(0, str(outer.var.ty.dtype))

    def without(buffer: ir.Var, index: Sequence[ir.Expr]) -> list[ir.Expr]:
        for d in range(len(index) - 1):
            is_pair = all(
                isinstance(i, ir.Var) and i.same_as(axis.var)
                for i, axis in zip(index[d : d + 2], (outer, inner), strict=True)
            )
            if is_pair and (buffer, d) in pairs:
                return [*index[:d], zero, zero, *index[d + 2 :]]
        return list(index)

    def load(node: ir.TensorLoad) -> ir.Expr:
        return node.source[tuple(without(node.source, node.indices))]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        return tirx.BufferStore(node.buffer, node.value, without(node.buffer, node.indices))

    for stmt in _statements(blocks[number]):
        rest = tvm_ffi.structural_map(stmt, [(ir.TensorLoad, load), (tirx.BufferStore, store)])
        used = tirx.analysis.undefined_vars(rest)
        if any(var.same_as(axis.var) for var in used for axis in (outer, inner)):
            return False
    return True


def _component(pairs: _Pairs, start: _Place) -> Rows:
    """What must be joined together with the dimensions at a place."""
    places: set[_Place] = set()
    axes: dict[int, tuple[Axis, Axis]] = {}
    waiting = [start]
    while waiting:
        place = waiting.pop()
        places.add(place)
        for number, outer, inner in pairs[place]:
            axes.setdefault(number, (outer, inner))
        waiting += [
            other
            for other, its in pairs.items()
            if other not in places
            and any(_is_pair(axes.get(number), outer, inner) for number, outer, inner in its)
        ]
    return Rows(frozenset(places), axes)


def _is_pair(pair: tuple[Axis, Axis] | None, outer: Axis, inner: Axis) -> bool:
    return pair is not None and pair[0] is outer and pair[1] is inner


def _accesses(block: Block) -> Iterator[tuple[ir.Var, Sequence[ir.Expr]]]:
    found: list[tuple[ir.Var, Sequence[ir.Expr]]] = []
    visitors = [
        (ir.TensorLoad, lambda load: found.append((load.source, load.indices))),
        (tirx.BufferStore, lambda store: found.append((store.buffer, store.indices))),
    ]
    for stmt in _statements(block):
        tvm_ffi.structural_walk(stmt, visitors)
    return iter(found)


def _statements(block: Block) -> list[tirx.Stmt]:
    return [stmt for stmt in (block.init, block.body) if stmt is not None]
