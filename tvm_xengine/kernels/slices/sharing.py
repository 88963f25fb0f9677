"""The loop of a block that slices share out among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import ir, sym, tirx

from tvm_xengine.kernels.schedules.accumulation import mentions, read_accumulation, substitute
from tvm_xengine.kernels.schedules.blocks import Axis, Block

Dimensions = Mapping[ir.Var, int]
"""For each buffer that is sliced, the dimension that its slices divide."""


@dataclass(frozen=True)
class Sharing:
    """What a block does in each of several slices.

    Attributes
    ----------
    axis
        Each slice runs over an equal share of it; None for a block that reads nothing sliced.
    is_sum
        Whether every slice makes a part of a sum, so that the parts are to be added.
    stored
        The dimensions that divide what the block stores.
    """

    axis: Axis | None = None
    is_sum: bool = False
    stored: Dimensions = field(default_factory=dict)


def sharing_of(block: Block, sliced: Dimensions, parts: int) -> Sharing | None:
    """How a block can be shared out among `parts` slices, None where it cannot.

    It can where one axis moves all that is read from slice to slice, and stays inside each.
    """
    reads = [load for load in block.loads if load.buffer in sliced]
    if not reads:
        return Sharing()
    for axis in (*block.spatial, *block.summed):
        if axis.extent % parts == 0 and all(
            _moves_by_slices(block, axis, load.buffer, load.index, sliced[load.buffer], parts)
            for load in reads
        ):
            return _stored_by(block, axis, parts)
    return None


def _stored_by(block: Block, axis: Axis, parts: int) -> Sharing | None:
    if axis in block.summed:
        return Sharing(axis, is_sum=True) if _is_sum(block, axis) else None
    stored: dict[ir.Var, int] = {}
    for store in block.stores:
        touched = [d for d, part in enumerate(store.indices) if mentions(part, axis.var)]
        if len(touched) != 1 or stored.setdefault(store.buffer, touched[0]) != touched[0]:
            return None
        if not _moves_by_slices(block, axis, store.buffer, store.indices, touched[0], parts):
            return None
    return Sharing(axis, stored=stored)


def _is_sum(block: Block, axis: Axis) -> bool:
    """Whether a block adds to zero over an axis."""
    fold = read_accumulation(block)
    if fold is None or fold.fold is not tirx.Add:
        return False
    start = fold.start
    is_zero = isinstance(start, tirx.IntImm | tirx.FloatImm) and float(start.value) == 0
    return is_zero and not any(mentions(part, axis.var) for part in fold.index)


def _moves_by_slices(
    block: Block,
    axis: Axis,
    buffer: ir.Var,
    index: Sequence[ir.Expr],
    dimension: int,
    parts: int,
) -> bool:
    """Whether a share of `axis` later, an index is one slice further, and never outside its slice."""
    extent = int(buffer.ty.shape[dimension])
    if extent % parts:
        return False
    at, share, slice_extent = index[dimension], axis.extent // parts, extent // parts
    analyzer = _analyzer(block, axis, share)
    moved = analyzer.simplify(substitute(at, {axis.var: axis.var + share}) - at)
    if not isinstance(moved, tirx.IntImm) or int(moved) != slice_extent:
        return False
    bound = analyzer.const_int_bound(at)
    return int(bound.min_value) >= 0 and int(bound.max_value) < slice_extent


def _analyzer(block: Block, axis: Axis, share: int) -> sym.Analyzer:
    """Knows the ranges of a block's axes, of which one is cut to its share."""
    analyzer = sym.Analyzer()
    for other in (*block.spatial, *block.summed):
        extent = share if other.var.same_as(axis.var) else other.extent
        analyzer.bind(other.var, ir.Range(0, max(extent, 1)))
    return analyzer
