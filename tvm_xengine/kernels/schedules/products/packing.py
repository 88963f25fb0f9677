"""Packs panels of the factors of a contraction, so that the innermost loop reads them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import is_contiguous, substitute
from tvm_xengine.kernels.schedules.loops import loop, nest, ravel, unravel
from tvm_xengine.kernels.schedules.products.tiling import TiledProduct

Position = Mapping[ir.Var, ir.Expr]
"""Where a loop is on some axes."""


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
    k: list[ir.Expr],
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
