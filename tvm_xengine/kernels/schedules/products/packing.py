"""Reads the factors of a contraction, or packs them so that the innermost loop reads them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import is_contiguous, substitute
from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.loops import loop, nest, ravel, unravel
from tvm_xengine.kernels.schedules.products.in_place import is_linear_in
from tvm_xengine.kernels.schedules.products.tiling import TiledProduct

Position = Mapping[ir.Var, ir.Expr]
"""Where a loop is on some axes."""

Depth = Sequence[ir.Expr]
"""Where a loop is on the depth axes of a block."""


def left_at(p: TiledProduct, at: Position, row: ir.Expr, k: Depth) -> ir.Expr:
    """The left factor at a row, and in its last row behind that."""
    if p.rows % p.tiling.row_tile:
        row = tirx.min(row, p.rows - 1)
    return _term(p, p.contraction.left, {**at, **unravel(row, p.contraction.rows)}, k, [])


def right_at(p: TiledProduct, at: Position, column: ir.Expr, k: Depth) -> ir.Expr:
    """The right factor at a column, and in its last column behind that."""
    if p.columns % p.tiling.column_tile:
        column = tirx.min(column, p.columns - 1)
    return _term(p, p.contraction.right, {**at, **unravel(column, p.contraction.columns)}, k, [])


def over_depth(p: TiledProduct, at: Position, body: Callable[[Depth], tirx.Stmt]) -> tirx.Stmt:
    """Run `body` for every position in the depth: in one loop, unless that would divide positions."""
    c, t = p.contraction, p.tiling
    k = ir.Var("k", p.index_dtype)
    read = [f for f, is_read in ((c.left, t.left_in_place), (c.right, t.right_in_place)) if is_read]
    known = [Axis(k, t.depth), *c.rows, *c.columns]
    if all(is_linear_in(_term(p, f, at, _split(k, t.depth_extents), []), k, known) for f in read):
        return loop(t.depth, lambda k: body(_split(k, t.depth_extents)), "k", dtype=p.index_dtype)
    return nest(t.depth_extents, body, "k", p.index_dtype)


def _split(k: ir.Expr, extents: Sequence[int]) -> list[ir.Expr]:
    """The position with the row-major number `k`."""
    axes = [Axis(ir.Var("part", k.ty), extent) for extent in extents]
    at = unravel(k, axes)
    return [at[axis.var] for axis in axes]


def pack_left(p: TiledProduct, at: Position, panel: ir.Expr) -> tirx.Stmt:
    """Pack a panel of rows."""
    c, tile, depth = p.contraction, p.tiling.row_tile, p.tiling.depth

    def store(i: ir.Expr, k: list[ir.Expr]) -> tirx.Stmt:
        row = panel * tile + i
        conditions = [row < p.rows] if p.rows % tile else []
        value = _term(p, c.left, {**at, **unravel(row, c.rows)}, k, conditions)
        position = (panel * depth + ravel(k, p.tiling.depth_extents)) * tile + i
        return tirx.BufferStore(p.left, value, [position])

    def along_tile(k: list[ir.Expr]) -> tirx.Stmt:
        return loop(tile, lambda i: store(i, k), "i", dtype=p.index_dtype)

    if not is_contiguous(c.left, c.rows[-1].var):
        return _along_depth(p, tile, store)
    return nest(p.tiling.depth_extents, along_tile, "k", p.index_dtype)


def pack_right(p: TiledProduct, at: Position, block: ir.Expr, panel: ir.Expr) -> tirx.Stmt:
    """Pack a panel of columns of a block, in parts of rows where these are half of a vector or more.

    A part of one column would compute its place for every element of the depth.
    """
    c, tile, depth = p.contraction, p.tiling.column_tile, p.tiling.depth
    row = c.columns[-1]

    def store(first: ir.Expr, j: ir.Expr | int, k: list[ir.Expr]) -> tirx.Stmt:
        column = (block * p.tiling.column_panels + panel) * tile + first
        conditions = [column < p.columns] if p.columns % p.block_columns else []
        here = unravel(column, c.columns)
        here[row.var] = here[row.var] + j
        if c.row_length is not None:
            conditions.append(here[row.var] < c.row_length)
        value = _term(p, c.right, {**at, **here}, k, conditions)
        position = (panel * depth + ravel(k, p.tiling.depth_extents)) * tile + first + j
        return tirx.BufferStore(p.right, value, [position])

    def along_rows(k: list[ir.Expr]) -> tirx.Stmt:
        length = p.part_of_row

        def part(number: ir.Expr) -> tirx.Stmt:
            return loop(length, lambda j: store(number * length, j, k), "i", dtype=p.index_dtype)

        return loop(tile // length, part, "part", dtype=p.index_dtype)

    is_short = p.part_of_row < max(p.tiling.lanes / 2, 2)
    if is_short or not is_contiguous(c.right, row.var):
        return _along_depth(p, tile, lambda i, k: store(i, 0, k))
    return nest(p.tiling.depth_extents, along_rows, "k", p.index_dtype)


def _along_depth(
    p: TiledProduct, tile: int, store: Callable[[ir.Expr, list[ir.Expr]], tirx.Stmt]
) -> tirx.Stmt:
    def of_place(i: ir.Expr) -> tirx.Stmt:
        return nest(p.tiling.depth_extents, lambda k: store(i, k), "k", p.index_dtype)

    return loop(tile, of_place, "i", dtype=p.index_dtype)


def _term(
    p: TiledProduct,
    factor: ir.Expr,
    at: Position,
    k: Depth,
    conditions: list[ir.Expr],
) -> ir.Expr:
    """A factor at depth `k` of the block, zero outside the depth, or where conditions do not hold."""
    inner = {axis.var: i for axis, i in zip(p.inner_depth, k, strict=True)}
    split = at[p.split.var] + k[0]
    value = substitute(factor, {**at, **inner, p.split.var: split})
    if p.split.extent % p.tiling.depth_extents[0]:
        conditions = [*conditions, split < p.split.extent]
    if not conditions:
        return value
    return tirx.if_then_else(tirx.all(*conditions), value, p.zero)
