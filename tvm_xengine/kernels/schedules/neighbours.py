"""Let one iteration of a loop do several neighbouring positions, each of which has short rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import ir

from tvm_xengine.kernels.schedules.accumulation import read_accumulation, substitute
from tvm_xengine.kernels.schedules.blocks import Axis, Block
from tvm_xengine.kernels.schedules.shared_axes import SharedAxis
from tvm_xengine.kernels.schedules.workers import least_iterations

_MOST_ELEMENTS = 64
"""Of the rows together: as many sums fit into four registers of AVX-512 or eight of AVX2."""

_MOST_ROWS = 8
"""Sums that are folded at once, each from the lanes of a register of its own."""


@dataclass(frozen=True)
class Neighbours:
    """A block whose axis is two: `outer` numbers runs of positions, `inner` those of one run."""

    block: Block
    outer: Axis
    inner: Axis


def neighbours_at_once(blocks: Sequence[Block], axes: Sequence[SharedAxis], workers: int) -> int:
    """How many positions of the only axis that blocks share one iteration should do."""
    if len(axes) != 1 or not all(block.loads for block in blocks):
        return 1
    rows: set[int] = set()
    for block, axis in zip(blocks, axes[0], strict=True):
        its = _rows(block, axis)
        if its and block.summed and not _sums_rows(block, its):
            return 1
        rows |= its
    if not rows or min(rows) <= 1:
        return 1
    positions = axes[0][0].extent
    counts = range(min(_MOST_ROWS, _MOST_ELEMENTS // max(rows)), 1, -1)
    fitting = (
        n for n in counts if positions % n == 0 and positions // n >= least_iterations(workers)
    )
    return next(fitting, 1)


def with_neighbours(block: Block, axis: Axis, count: int) -> Neighbours:
    """A block with `count` positions of an axis on an axis of their own, in its place."""
    dtype = axis.var.ty
    outer = Axis(ir.Var(f"{axis.var.name}_run", dtype), axis.extent // count)
    inner = Axis(ir.Var(axis.var.name, dtype), count)
    place = {axis.var: outer.var * count + inner.var}
    spatial = [two for one in block.spatial for two in ((outer, inner) if one is axis else (one,))]
    split = replace(
        block,
        spatial=tuple(spatial),
        body=substitute(block.body, place),
        init=None if block.init is None else substitute(block.init, place),
    )
    return Neighbours(split, outer, inner)


def _rows(block: Block, axis: Axis) -> set[int]:
    """How many elements lie behind a position, in tensors that have several such rows of it."""
    found = set()
    for buffer, indices in block.accesses.items():
        shape = [int(extent) for extent in buffer.ty.shape]
        for index in indices:
            at = [d for d, i in enumerate(index) if isinstance(i, ir.Var) and i.same_as(axis.var)]
            if at and prod(shape[: at[0]]) > 1:
                found.add(prod(shape[at[0] + 1 :]))
    return found


def _sums_rows(block: Block, rows: set[int]) -> bool:
    """Whether a block makes one number of all rows of a position."""
    *outer, last = block.summed
    is_row = read_accumulation(block) is not None and rows == {last.extent}
    return is_row and bool(outer) and len(block.spatial) == 1
