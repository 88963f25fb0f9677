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

    return _pack(p, tile, store, is_contiguous(c.left, c.rows[-1].var))


def pack_right(p: TiledProduct, at: Position, block: ir.Expr, panel: ir.Expr) -> tirx.Stmt:
    """Pack a panel of columns of a block."""
    c, tile, depth = p.contraction, p.tiling.column_tile, p.tiling.depth

    def store(j: ir.Expr, k: list[ir.Expr]) -> tirx.Stmt:
        column = (block * p.tiling.column_panels + panel) * tile + j
        conditions = [column < p.columns] if p.columns % p.block_columns else []
        value = _term(p, c.right, {**at, **unravel(column, c.columns)}, k, conditions)
        position = (panel * depth + ravel(k, p.tiling.depth_extents)) * tile + j
        return tirx.BufferStore(p.right, value, [position])

    innermost = c.columns[-1]
    runs = innermost.extent % tile == 0 or len(c.columns) == 1
    return _pack(p, tile, store, runs and is_contiguous(c.right, innermost.var))


def _pack(
    p: TiledProduct,
    tile: int,
    store: Callable[[ir.Expr, list[ir.Expr]], tirx.Stmt],
    reads_along_tile: bool,
) -> tirx.Stmt:
    """Run `store` over a panel, in the inner loop along what is contiguous in memory."""

    def along_depth(i: ir.Expr) -> tirx.Stmt:
        return nest(p.tiling.depth_extents, lambda k: store(i, k), "k", p.index_dtype)

    def along_tile(k: list[ir.Expr]) -> tirx.Stmt:
        return loop(tile, lambda i: store(i, k), "i", dtype=p.index_dtype)

    if reads_along_tile:
        return nest(p.tiling.depth_extents, along_tile, "k", p.index_dtype)
    return loop(tile, along_depth, "i", dtype=p.index_dtype)


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
