"""Recognise contractions: matrix products, convolutions and their gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.kernels.schedules.accumulation import mentions, substitute
from tvm_xengine.kernels.schedules.blocks import Axis, Block

_LEAST_ROWS = 3
"""Packing pays when what is packed is used for as many rows."""


@dataclass(frozen=True)
class Stored:
    """What is stored for an element of a product.

    Attributes
    ----------
    index
        Where it goes: each entry is the variable of a row, column or batch axis, or 0.
    value
        An expression in which :attr:`Contraction.product` stands for the element.
    """

    output: ir.Var
    index: tuple[ir.Expr, ...]
    value: ir.Expr

    def at(self, position: Mapping[ir.Var, ir.Expr]) -> Stored:
        """The same with other expressions for some variables."""
        index = tuple(substitute(part, position) for part in self.index)
        return Stored(self.output, index, substitute(self.value, position))


@dataclass(frozen=True)
class Contraction:
    """C[batch, row, column] = sum over depth of left[batch, row, depth] * right[batch, column, depth].

    Each of the four is a group of axes, in the order of the tensor C or of the kernel's loops.

    Attributes
    ----------
    left, right
        The factors as expressions of the axes.
    product
        Stands for the element of C.
    stores
        What is stored for each element: C itself, or what is made of it. None reads what another one
        stores.
    row_length
        Positions of the last column axis that there are: behind them nothing is read or stored.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    left: ir.Expr
    right: ir.Expr
    product: ir.Var
    stores: tuple[Stored, ...]
    row_length: int | None = None

    @property
    def dtype(self) -> str:
        """Element type of the sum."""
        return str(self.product.ty.dtype)

    @property
    def multiplications(self) -> int:
        """Number of products that are summed."""
        return math.prod(
            axis.extent for axis in (*self.batch, *self.rows, *self.columns, *self.depth)
        )


def size(axes: Sequence[Axis]) -> int:
    """Number of positions in a group of axes."""
    return math.prod(axis.extent for axis in axes)


def read_contraction(blocks: Sequence[Block], params: Sequence[ir.Var]) -> Contraction | None:
    """Return the contraction that the blocks of a kernel are, None when they are something else.

    There may be more blocks that make outputs of the elements of C, one by one.

    Parameters
    ----------
    params
        The parameters of the kernel: inputs and outputs.
    """
    if not blocks:
        return None
    contraction = _read_product(blocks[0])
    if contraction is None or size(contraction.rows) < _LEAST_ROWS:
        return None
    (own,) = contraction.stores
    if len(blocks) == 1:
        return contraction if own.output in params else None
    made = [own]
    for block in blocks[1:]:
        finish = _finish(contraction, made, block)
        if finish is None:
            return None
        made.append(finish)
    stores = tuple(one for one in made if one.output in params)
    return dataclasses.replace(contraction, stores=stores) if stores else None


def _read_product(block: Block) -> Contraction | None:
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not block.summed:
        return None
    factors = _factors(store, (*block.spatial, *block.summed))
    if factors is None or not _covers(store.indices, block.spatial):
        return None
    if not isinstance(block.init, tirx.BufferStore) or not _is_zero(block.init.value):
        return None
    left, right = factors
    if mentions(left, _innermost(store.indices, block.spatial)):
        left, right = right, left
    spatial, at = _split_groups(block.spatial, (left, right))
    left, right = (_simplified(substitute(f, at), (*spatial, *block.summed)) for f in (left, right))
    groups: dict[tuple[bool, bool], list[Axis]] = {}
    for axis in spatial:
        is_unit = axis.extent == 1
        sides = (is_unit or mentions(left, axis.var), is_unit or mentions(right, axis.var))
        groups.setdefault(sides, []).append(axis)
    if (False, False) in groups or (False, True) not in groups:
        return None
    product = ir.Var("product", store.value.ty)
    return Contraction(
        batch=tuple(groups.get((True, True), ())),
        rows=tuple(groups.get((True, False), ())),
        columns=tuple(groups.get((False, True), ())),
        depth=block.summed,
        left=left,
        right=right,
        product=product,
        stores=(Stored(store.buffer, tuple(store.indices), product).at(at),),
    )


def _finish(contraction: Contraction, earlier: Sequence[Stored], block: Block) -> Stored | None:
    """What a block makes of the elements of C, and of what earlier blocks have made of them."""
    store, axes = block.body, block.spatial
    if not isinstance(store, tirx.BufferStore) or block.summed:
        return None
    made = {one.output: one for one in earlier}
    loads: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(store.value, (ir.TensorLoad, loads.append))
    reads = [load for load in loads if load.source in made]
    if not reads or not _covers(store.indices, axes):
        return None
    if size(axes) != size((*contraction.batch, *contraction.rows, *contraction.columns)):
        return None  # it takes a part of C only
    at: dict[ir.Var, ir.Expr] = {}
    for read in reads:
        if not _covers(read.indices, axes):
            return None
        theirs = zip(read.indices, made[read.source].index, strict=True)
        here = {mine: other for mine, other in theirs if isinstance(mine, ir.Var)}
        if at and not (at.keys() == here.keys() and all(at[v].same_as(here[v]) for v in at)):
            return None
        at = here

    def replace(load: ir.TensorLoad) -> ir.Expr:
        return made[load.source].value if load.source in made else load

    value = tvm_ffi.structural_map(substitute(store.value, at), (ir.TensorLoad, replace))
    index = tuple(substitute(part, at) for part in store.indices)
    return Stored(store.buffer, index, value)


def _factors(store: tirx.BufferStore, axes: Sequence[Axis]) -> tuple[ir.Expr, ir.Expr] | None:
    """The two factors of ``C[...] = C[...] + left * right``, simplified within the axes."""
    value = store.value
    if not isinstance(value, tirx.Add):
        return None
    for old, added in ((value.a, value.b), (value.b, value.a)):
        if (
            isinstance(old, ir.TensorLoad)
            and old.source.same_as(store.buffer)
            and tvm_ffi.structural_equal(old.indices, store.indices)
            and isinstance(added, tirx.Mul)
        ):
            return _simplified(added.a, axes), _simplified(added.b, axes)
    return None


def _simplified(expr: ir.Expr, axes: Sequence[Axis]) -> ir.Expr:
    """Return `expr` with what is known about the axes used."""
    analyzer = sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, ir.Range(0, axis.extent))
    return analyzer.simplify(expr)


def _split_groups(
    axes: Sequence[Axis], factors: Sequence[ir.Expr]
) -> tuple[tuple[Axis, ...], dict[ir.Var, ir.Expr]]:
    """Split each axis that all factors need into groups and their members.

    In a grouped convolution one factor needs the channel, another its group only.
    """
    parts: list[Axis] = []
    at: dict[ir.Var, ir.Expr] = {}
    for axis in axes:
        is_common = all(mentions(factor, axis.var) for factor in factors)
        length = _group_length(axis, factors) if is_common else None
        if length is None:
            parts.append(axis)
            continue
        group = Axis(ir.Var(f"{axis.var.name}_group", axis.var.ty), axis.extent // length)
        member = Axis(ir.Var(f"{axis.var.name}_member", axis.var.ty), length)
        parts += [group, member]
        at[axis.var] = group.var * length + member.var
    return tuple(parts), at


def _group_length(axis: Axis, factors: Sequence[ir.Expr]) -> int | None:
    """The number by which the factors divide an axis, None when there is none or are several."""
    lengths: set[int] = set()

    def visit(division: tirx.FloorDiv | tirx.FloorMod) -> None:
        if isinstance(division.b, tirx.IntImm) and division.a.same_as(axis.var):
            lengths.add(int(division.b))

    for factor in factors:
        tvm_ffi.structural_walk(factor, ((tirx.FloorDiv, tirx.FloorMod), visit))
    return lengths.pop() if len(lengths) == 1 and axis.extent % min(lengths) == 0 else None


def _covers(indices: Sequence[ir.Expr], axes: Sequence[Axis]) -> bool:
    """Whether the indices are the variables of the axes, each once, else zeros."""
    used = [index for index in indices if isinstance(index, ir.Var)]
    others = [index for index in indices if not isinstance(index, ir.Var)]
    missing = [axis for axis in axes if not any(axis.var.same_as(var) for var in used)]
    return (
        len(used) + len(missing) == len(axes)
        and all(axis.extent == 1 for axis in missing)
        and all(isinstance(index, tirx.IntImm) and int(index) == 0 for index in others)
    )


def _innermost(indices: Sequence[ir.Expr], axes: Sequence[Axis]) -> ir.Var | None:
    """The variable of the last index that moves, None when none does."""
    extents = {axis.var: axis.extent for axis in axes}
    moving = [index for index in indices if extents.get(index, 1) > 1]
    return moving[-1] if moving else None


def _is_zero(expr: ir.Expr) -> bool:
    return isinstance(expr, (tirx.FloatImm, tirx.IntImm)) and float(expr.value) == 0.0
