"""Recognise kernels that are one sum of products: matrix products, convolutions, their gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, sym, tirx


@dataclass(frozen=True)
class Axis:
    """One loop of a kernel: its variable runs over ``0 .. extent - 1``."""

    var: ir.Var
    extent: int


@dataclass(frozen=True)
class Contraction:
    """C[batch, row, column] = sum over depth of left[batch, row, depth] * right[batch, column, depth].

    Each of the four is a group of axes, in the order of the tensor C or of the kernel's loops.

    Attributes
    ----------
    left, right
        The factors as expressions of the axes.
    output
        The buffer that C, or what :attr:`finish` makes of it, is stored to.
    index
        Where an element goes: each entry is the variable of a row, column or batch axis, or 0.
    finish
        What is stored, as an expression in which :attr:`product` stands for the element of C.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    left: ir.Expr
    right: ir.Expr
    output: ir.Var
    index: tuple[ir.Expr, ...]
    product: ir.Var
    finish: ir.Expr

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


def read_contraction(func: tirx.PrimFunc) -> Contraction | None:
    """Return the contraction that an unscheduled kernel is, None when it is something else.

    The kernel may have a second block that makes its output of the elements of C, one by one.
    """
    blocks = _blocks(func)
    if blocks is None or not 1 <= len(blocks) <= 2:
        return None
    contraction = _read_product(blocks[0])
    if contraction is None:
        return None
    if len(blocks) == 1:
        return contraction if contraction.output in func.params else None
    return _with_finish(contraction, blocks[1], func)


def _blocks(func: tirx.PrimFunc) -> list[s_tir.SBlock] | None:
    """The blocks of a kernel in order, None when one is not a plain loop nest of its own."""
    root = func.body.block if isinstance(func.body, s_tir.SBlockRealize) else None
    if root is None:
        return None
    nests = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    blocks = [_block_of(nest) for nest in nests]
    return [block for block in blocks if block is not None] if all(blocks) else None


def _block_of(nest: tirx.Stmt) -> s_tir.SBlock | None:
    loops = []
    while isinstance(nest, tirx.For) and nest.kind == tirx.ForKind.SERIAL:
        loops.append(nest.loop_var)
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize) or len(loops) != len(nest.iter_values):
        return None
    values = zip(loops, nest.iter_values, strict=True)
    plain = all(isinstance(value, ir.Var) and value.same_as(loop) for loop, value in values)
    return nest.block if plain and isinstance(nest.block.body, tirx.BufferStore) else None


def _read_product(block: s_tir.SBlock) -> Contraction | None:
    store = block.body
    axes = {axis.var: Axis(axis.var, int(axis.dom.extent)) for axis in block.iter_vars}
    summed = [a.var for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    spatial = [a.var for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar]
    factors = _factors(store, list(axes.values()))
    if factors is None or not summed or len(summed) + len(spatial) != len(axes):
        return None
    if not isinstance(block.init, tirx.BufferStore) or not _is_zero(block.init.value):
        return None
    if not _covers(store.indices, [axes[var] for var in spatial]):
        return None
    left, right = factors
    if _mentions(left, _innermost(store.indices, axes)):
        left, right = right, left
    groups: dict[tuple[bool, bool], list[Axis]] = {}
    for var in spatial:
        is_unit = axes[var].extent == 1
        sides = (is_unit or _mentions(left, var), is_unit or _mentions(right, var))
        groups.setdefault(sides, []).append(axes[var])
    if (False, False) in groups or (False, True) not in groups:
        return None
    product = ir.Var("product", store.value.ty)
    return Contraction(
        batch=tuple(groups.get((True, True), ())),
        rows=tuple(groups.get((True, False), ())),
        columns=tuple(groups.get((False, True), ())),
        depth=tuple(axes[var] for var in summed),
        left=left,
        right=right,
        output=store.buffer,
        index=tuple(store.indices),
        product=product,
        finish=product,
    )


def _with_finish(
    contraction: Contraction, block: s_tir.SBlock, func: tirx.PrimFunc
) -> Contraction | None:
    """Add the block that makes the output of C to a contraction that stores C itself."""
    store = block.body
    axes = [Axis(axis.var, int(axis.dom.extent)) for axis in block.iter_vars]
    loads: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(store.value, (ir.TensorLoad, loads.append))
    reads = [load for load in loads if load.source.same_as(contraction.output)]
    if not reads or block.init is not None or store.buffer not in func.params:
        return None
    index = reads[0].indices
    if not _covers(store.indices, axes) or not _covers(index, axes):
        return None
    if not all(tvm_ffi.structural_equal(read.indices, index) for read in reads):
        return None
    at = {
        mine: theirs
        for mine, theirs in zip(index, contraction.index, strict=True)
        if isinstance(mine, ir.Var)
    }
    if not all(isinstance(var, ir.Var) for var in at.values()):
        return None

    def replace(load: ir.TensorLoad) -> ir.Expr:
        return contraction.product if load.source.same_as(contraction.output) else load

    value = tvm_ffi.structural_map(store.value, (ir.TensorLoad, replace))
    return dataclasses.replace(
        contraction,
        output=store.buffer,
        index=tuple(substitute(part, at) for part in store.indices),
        finish=substitute(value, at),
    )


def substitute(expr: ir.Expr, values: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
    """Return `expr` with variables replaced."""
    return tvm_ffi.structural_map(expr, (ir.Var, lambda var: values.get(var, var)))


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
            analyzer = sym.Analyzer()
            for axis in axes:
                analyzer.bind(axis.var, ir.Range(0, axis.extent))
            return analyzer.simplify(added.a), analyzer.simplify(added.b)
    return None


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


def _innermost(indices: Sequence[ir.Expr], axes: Mapping[ir.Var, Axis]) -> ir.Var | None:
    """The variable of the last index that moves, None when none does."""
    moving = [i for i in indices if isinstance(i, ir.Var) and axes[i].extent > 1]
    return moving[-1] if moving else None


def _mentions(expr: ir.Expr, var: ir.Var | None) -> bool:
    return any(var is not None and used.same_as(var) for used in tirx.analysis.undefined_vars(expr))


def _is_zero(expr: ir.Expr) -> bool:
    return isinstance(expr, (tirx.FloatImm, tirx.IntImm)) and float(expr.value) == 0.0
