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
from tvm_xengine.kernels.schedules.blocks import Access, Axis, Block, with_accesses

_SHORT_ROW = 64
"""Elements: four of the longest vectors, which the loops over rows are unrolled by."""

_LONGEST_ROW = 1 << 14
"""Elements: some tensors of so many float32 fit into the second level of the caches together."""

_Pair = tuple[Axis, Axis]


@dataclass(frozen=True)
class Rows:
    """Two axes that number rows and their elements, in every block that has them.

    Attributes
    ----------
    buffers
        What they go through, by its last two dimensions.
    axes
        By number of the block.
    """

    buffers: frozenset[ir.Var]
    axes: Mapping[int, _Pair]

    @property
    def joined_counts(self) -> list[int]:
        """How many rows may become one, the most first."""
        rows, row = next(iter(self.axes.values()))
        counts = range(min(rows.extent, _LONGEST_ROW // row.extent), 1, -1)
        return [count for count in counts if rows.extent % count == 0]


def short_rows(blocks: Sequence[Block]) -> Iterator[Rows]:
    """All pairs of axes with short rows that may be joined."""
    pairs = _pairs_by_buffer(blocks)
    while faulty := [
        buffer
        for buffer, its in pairs.items()
        if not all(_go_together(blocks[number], pairs, *pair) for number, pair in its)
    ]:
        for buffer in faulty:
            del pairs[buffer]
    seen: set[ir.Var] = set()
    for buffer in pairs:
        if buffer not in seen:
            rows = _component(pairs, buffer)
            seen |= rows.buffers
            if all(_may_be_longer(blocks[number], row) for number, (_, row) in rows.axes.items()):
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
    for buffer in rows.buffers:
        *outer, height, width = map(int, buffer.ty.shape)
        shape = [*outer, *_joined(height, width, count)]
        wide[buffer] = tirx.decl_buffer(shape, str(buffer.ty.dtype.dtype), name=buffer.name)
    changed = [
        _joined_block(block, rows.axes[number], count, wide) if number in rows.axes else block
        for number, block in enumerate(blocks)
    ]
    params = [wide.get(param, param) for param in func.params]
    renamed = tirx.PrimFunc(params, func.body, func.ret_type, func.attrs)
    return renamed, changed, [wide.get(buffer, buffer) for buffer in buffers]


def _joined(rows: int, row: int, count: int) -> list[int]:
    """Extents of rows that are joined; all to one row are no axis of their own."""
    return [*([rows // count] if count < rows else []), row * count]


def _joined_block(block: Block, pair: _Pair, count: int, wide: Mapping[ir.Var, ir.Var]) -> Block:
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

    def joined_access(buffer: ir.Var, index: Sequence[ir.Expr]) -> Access | None:
        if buffer not in wide:
            return None
        return wide[buffer], [*index[:-2], *(axis.var for axis in joined)]

    def rewritten(stmt: tirx.Stmt) -> tirx.Stmt:
        return with_accesses(stmt, joined_access)

    return replace(
        block,
        spatial=with_joined(block.spatial),
        summed=with_joined(block.summed),
        body=rewritten(block.body),
        init=None if block.init is None else rewritten(block.init),
    )


_Pairs = dict[ir.Var, list[tuple[int, _Pair]]]


def _pairs_by_buffer(blocks: Sequence[Block]) -> _Pairs:
    """For buffers whose rows are short, and gone through by two whole axes of one kind: these axes."""
    found: _Pairs = {}
    barred: set[ir.Var] = set()
    for number, block in enumerate(blocks):
        for buffer, index in _accesses(block):
            pair = _axes_at(block, buffer, index)
            if pair is None:
                barred.add(buffer)
            elif (number, pair) not in found.setdefault(buffer, []):
                found[buffer].append((number, pair))
    return {buffer: pairs for buffer, pairs in found.items() if buffer not in barred}


def _axes_at(block: Block, buffer: ir.Var, index: Sequence[ir.Expr]) -> _Pair | None:
    if len(index) < 2:
        return None
    height, width = map(int, buffer.ty.shape[-2:])
    if not 0 < width < _SHORT_ROW:
        return None
    for axes in (block.spatial, block.summed):
        outer, inner = (
            next((a for a in axes if isinstance(i, ir.Var) and a.var.same_as(i)), None)
            for i in index[-2:]
        )
        if outer is not None and inner is not None and outer is not inner:
            is_whole = (outer.extent, inner.extent) == (height, width)
            return (outer, inner) if is_whole else None
    return None


def _go_together(block: Block, pairs: _Pairs, outer: Axis, inner: Axis) -> bool:
    """Whether a block mentions two axes nowhere but side by side, where they may be joined."""
    zero = tirx.const(0, str(outer.var.ty.dtype))

    def without(buffer: ir.Var, index: Sequence[ir.Expr]) -> Access | None:
        is_pair = buffer in pairs and all(
            isinstance(i, ir.Var) and i.same_as(axis.var)
            for i, axis in zip(index[-2:], (outer, inner), strict=True)
        )
        return (buffer, [*index[:-2], zero, zero]) if is_pair else None

    for stmt in _statements(block):
        used = tirx.analysis.undefined_vars(with_accesses(stmt, without))
        if any(var.same_as(axis.var) for var in used for axis in (outer, inner)):
            return False
    return True


def _component(pairs: _Pairs, start: ir.Var) -> Rows:
    """What must be joined together with the rows of a buffer."""
    buffers: set[ir.Var] = set()
    axes: dict[int, _Pair] = {}
    waiting = [start]
    while waiting:
        buffer = waiting.pop()
        buffers.add(buffer)
        for number, pair in pairs[buffer]:
            axes.setdefault(number, pair)
        waiting += [
            other
            for other, its in pairs.items()
            if other not in buffers and any(axes.get(number) == pair for number, pair in its)
        ]
    return Rows(frozenset(buffers), axes)


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
