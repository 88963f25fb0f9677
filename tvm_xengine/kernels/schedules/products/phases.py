"""Remove the zero terms from sums that read only every s-th position.

The data gradient of a convolution or pooling with stride s sums terms that are zero unless
``(i + p - k) % s == 0``. For positions i with one remainder only the k with one remainder count,
so the kernel is s smaller ones (per strided axis) without such a condition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.kernels.schedules.accumulation import mentions, read_accumulation, substitute
from tvm_xengine.kernels.schedules.blocks import Axis, Block
from tvm_xengine.kernels.schedules.products.contraction import Contraction

_MAX_STRIDE = 4
"""With s phases per axis there would be too much code for longer strides."""


def split_contraction(contraction: Contraction) -> tuple[Contraction, ...]:
    """Return contractions whose outputs together are that of the given one.

    One whose depth has an axis of extent 0 sums nothing.
    """
    nothing = tirx.const(0, str(contraction.right.ty.dtype))
    phases = _phases(contraction.right, nothing, contraction.columns, contraction.depth)
    if phases is None:
        return (contraction,)
    return tuple(
        part for phase in phases for part in split_contraction(_contraction_in(contraction, phase))
    )


def split_block(block: Block) -> tuple[Block, ...]:
    """Return blocks that together store what the given one does."""
    fold = read_accumulation(block)
    if fold is None:
        return (block,)
    phases = _phases(fold.term, fold.ignored, block.spatial, block.summed)
    if phases is None:
        return (block,)
    return tuple(part for phase in phases for part in split_block(_block_in(block, phase)))


@dataclass(frozen=True)
class _Phase:
    """The positions with one remainder each of a spatial and a summed axis.

    Attributes
    ----------
    smaller
        The axes that number these positions, by the variable of the axis they replace.
    at
        The old variables in terms of the new ones.
    """

    smaller: Mapping[ir.Var, Axis]
    at: Mapping[ir.Var, ir.Expr]

    def shrunk(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(self.smaller.get(axis.var, axis) for axis in axes)


def _phases(
    term: ir.Expr, ignored: ir.Expr, spatial: Sequence[Axis], summed: Sequence[Axis]
) -> list[_Phase] | None:
    """Phases in which a condition on a remainder is known.

    None where a term counts although the condition does not hold, that is where it is not `ignored`.
    """
    if not summed:
        return None
    for condition in _remainder_conditions(term):
        mine = [axis for axis in spatial if mentions(condition, axis.var)]
        other = [axis for axis in summed if mentions(condition, axis.var)]
        if len(mine) != 1 or len(other) > 1:
            continue
        stride = int(condition.a.b)
        if stride > _MAX_STRIDE:
            continue
        if not tvm_ffi.structural_equal(_where_false(term, condition), ignored):
            continue
        phases = []
        for remainder in range(min(stride, mine[0].extent)):
            here = {mine[0].var: mine[0].var * stride + remainder}
            matching = _matching_remainders(substitute(condition, here), other, stride)
            if matching is None or len(matching) > 1:
                break
            phases.append(_phase((mine[0], remainder), matching, other, summed, stride))
        else:
            return phases
    return None


def _remainder_conditions(expr: ir.Expr) -> list[tirx.EQ]:
    found: list[tirx.EQ] = []

    def visit(equal: tirx.EQ) -> None:
        if isinstance(equal.a, tirx.FloorMod) and isinstance(equal.a.b, tirx.IntImm):
            found.append(equal)

    tvm_ffi.structural_walk(expr, (tirx.EQ, visit))
    return found


def _where_false(term: ir.Expr, condition: tirx.EQ) -> ir.Expr:
    """What is left of a term where a condition does not hold."""

    def known(equal: tirx.EQ) -> ir.Expr:
        is_it = tvm_ffi.structural_equal(equal, condition)
        return tirx.const(False, "bool") if is_it else equal

    return sym.Analyzer().simplify(tvm_ffi.structural_map(term, (tirx.EQ, known)))


def _matching_remainders(
    condition: ir.Expr, other: Sequence[Axis], stride: int
) -> list[int] | None:
    """The remainders of the summed axis with which a condition holds; None when unclear.

    Where no summed axis matters the answer is ``[0]`` or none at all.
    """
    matching = []
    for candidate in range(stride if other else 1):
        at = {axis.var: axis.var * stride + candidate for axis in other}
        value = sym.Analyzer().simplify(substitute(condition, at))
        if not isinstance(value, tirx.IntImm):
            return None
        if int(value):
            matching.append(candidate)
    return matching


def _phase(
    spatial: tuple[Axis, int],
    matching: Sequence[int],
    other: Sequence[Axis],
    summed: Sequence[Axis],
    stride: int,
) -> _Phase:
    """The positions with one remainder, and what they sum: nothing where nothing matches."""
    remainders = [spatial, *((axis, match) for axis in other for match in matching)]
    smaller: dict[ir.Var, Axis] = {}
    for axis, remainder in remainders:
        extent = max(-(-(axis.extent - remainder) // stride), 0)
        smaller[axis.var] = Axis(ir.Var(axis.var.name, axis.var.ty), extent)
    at = {axis.var: smaller[axis.var].var * stride + remainder for axis, remainder in remainders}
    if not matching:
        empty = (*other, *summed)[0]
        smaller[empty.var] = Axis(empty.var, 0)
    return _Phase(smaller, at)


def _contraction_in(contraction: Contraction, phase: _Phase) -> Contraction:
    part = dataclasses.replace(
        contraction,
        columns=phase.shrunk(contraction.columns),
        depth=phase.shrunk(contraction.depth),
        stores=tuple(store.at(phase.at) for store in contraction.stores),
    )
    axes = (*part.batch, *part.rows, *part.columns, *part.depth)
    return dataclasses.replace(
        part,
        left=_simplified(substitute(contraction.left, phase.at), axes),
        right=_simplified(substitute(contraction.right, phase.at), axes),
    )


def _block_in(block: Block, phase: _Phase) -> Block:
    spatial, summed = phase.shrunk(block.spatial), phase.shrunk(block.summed)
    init = _store_in(block.init, phase, spatial)
    if any(axis.extent == 0 for axis in summed):
        return Block(spatial, (), init, None)
    return Block(spatial, summed, _store_in(block.body, phase, (*spatial, *summed)), init)


def _store_in(store: tirx.BufferStore, phase: _Phase, axes: Sequence[Axis]) -> tirx.BufferStore:
    value = _simplified(substitute(store.value, phase.at), axes)
    return tirx.BufferStore(
        store.buffer, value, [substitute(index, phase.at) for index in store.indices]
    )


def _simplified(expr: ir.Expr, axes: Sequence[Axis]) -> ir.Expr:
    """Return `expr` with what is known about the axes used."""
    analyzer = sym.Analyzer()
    for axis in axes:
        dtype = str(axis.var.ty.dtype)
        extent = tirx.const(max(axis.extent, 1), dtype)
        analyzer.bind(axis.var, ir.Range(tirx.const(0, dtype), extent))
    return analyzer.simplify(expr)
