"""The block of sums of a contraction that stays in registers: cleared, added to, stored."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import substitute
from tvm_xengine.kernels.schedules.loops import ForKind, loop, sequence, unravel
from tvm_xengine.kernels.schedules.products.packing import Position
from tvm_xengine.kernels.schedules.products.tiling import TiledProduct


def multiply_panels(
    p: TiledProduct, row_panel: ir.Expr, panel: ir.Expr, store: tirx.Stmt
) -> tirx.Stmt:
    """Multiply two panels, and `store` the product, from the tile if there is one.

    The sums are zero before and after. That they live on while the tile is stored keeps
    StorageRewrite from giving both the same memory: an array that is indexed by the loop
    variables of the store could not live in registers.
    """
    row_tile, column_tile, depth = p.tiling.row_tile, p.tiling.column_tile, p.tiling.depth

    def add(k: ir.Expr, i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
        left = p.left[(row_panel * depth + k) * row_tile + i]
        right = p.right[(panel * depth + k) * column_tile + j]
        place = i * column_tile + j
        return tirx.BufferStore(p.sums, p.sums[place] + left * right, [place])

    def copy(i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
        place = i * column_tile + j
        return tirx.BufferStore(p.tile, p.sums[place], [place])

    def of_depth(k: ir.Expr) -> tirx.Stmt:
        return _in_registers(p, lambda i, j: add(k, i, j))

    product = loop(depth, of_depth, "k", dtype=p.index_dtype)
    if p.stores_from_registers:
        return sequence([product, store, clear_sums(p)])
    return sequence([product, _in_registers(p, copy), clear_sums(p), store])


def clear_sums(p: TiledProduct) -> tirx.Stmt:
    """Make the sums zero."""

    def clear(i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
        return tirx.BufferStore(p.sums, p.zero, [i * p.tiling.column_tile + j])

    return _in_registers(p, clear)


def store_sums(
    p: TiledProduct,
    at: Position,
    first_row: ir.Expr,
    first_column: ir.Expr,
    place_in_depth: tuple[bool, bool],
) -> tirx.Stmt:
    """Add the sums, or the tile where there is one, to the output.

    Parameters
    ----------
    place_in_depth
        Whether nothing was stored before, and whether nothing will be added later.
    """
    c, run = p.contraction, _contiguous_columns(p)
    is_first, is_last = place_in_depth

    def stored(here: Position, value: ir.Expr) -> tirx.Stmt:
        index = [substitute(part, here) for part in c.index]
        if not is_first:
            value = c.output[index] + value
        if is_last:
            value = substitute(c.finish, {**here, c.product: value})
        return tirx.BufferStore(c.output, value, index)

    if p.stores_from_registers:
        return _store_each(p, at, first_row, first_column, stored)

    def element(i: ir.Expr, start: ir.Expr, lane: ir.Expr) -> tirx.Stmt:
        columns = unravel(first_column + start, c.columns)
        here = {**at, **unravel(first_row + i, c.rows), **columns}
        if run > 1:
            here[c.columns[-1].var] += lane
        return stored(here, p.tile[i * p.tiling.column_tile + start + lane])

    def run_of_columns(i: ir.Expr, r: ir.Expr) -> tirx.Stmt:
        lanes = ForKind.VECTORIZED
        return loop(run, lambda lane: element(i, r * run, lane), "lane", lanes, dtype=p.index_dtype)

    rows: ir.Expr | int = p.tiling.row_tile
    if p.rows % p.tiling.row_tile:
        rows = tirx.min(rows, p.rows - first_row)
    runs: ir.Expr | int = p.tiling.column_tile // run
    if p.columns % p.block_columns:
        runs = tirx.min(runs, tirx.floordiv(p.columns - first_column, run))

    def row(i: ir.Expr) -> tirx.Stmt:
        return loop(runs, lambda r: run_of_columns(i, r), "run", dtype=p.index_dtype)

    return loop(rows, row, "row", dtype=p.index_dtype)


def _store_each(
    p: TiledProduct,
    at: Position,
    first_row: ir.Expr,
    first_column: ir.Expr,
    stored: Callable[[Position, ir.Expr], tirx.Stmt],
) -> tirx.Stmt:
    """One statement for each sum, so that where it goes is computed once for a row or a column."""
    c, (rows, columns) = p.contraction, (p.tiling.row_tile, p.tiling.column_tile)

    def element(i: int, j: int) -> tirx.Stmt:
        row, column = first_row + i, first_column + j
        here = {**at, **unravel(row, c.rows), **unravel(column, c.columns)}
        store = stored(here, p.sums[i * columns + j])
        # The last panel has `rest` rows, or columns; before them none is beyond the product.
        places = ((row, i, p.rows, rows), (column, j, p.columns, columns))
        for place, offset, extent, tile in places:
            if (rest := extent % tile) and offset >= rest:
                store = tirx.IfThenElse(place < extent, store, None)
        return store

    return sequence([element(i, j) for i in range(rows) for j in range(columns)])


def _contiguous_columns(p: TiledProduct) -> int:
    """Number of neighbouring columns that lie side by side in the output."""
    innermost = p.contraction.columns[-1]
    last = p.contraction.index[-1]
    if isinstance(last, ir.Var) and last.same_as(innermost.var):
        return math.gcd(innermost.extent, p.tiling.lanes)
    return 1


def _in_registers(p: TiledProduct, body: Callable[[ir.Expr, ir.Expr], tirx.Stmt]) -> tirx.Stmt:
    """Run `body` for each element of the block of sums, unrolled and vectorised."""
    lanes, dtype = p.tiling.lanes, p.index_dtype

    def vector(i: ir.Expr, v: ir.Expr) -> tirx.Stmt:
        return loop(
            lanes, lambda j: body(i, v * lanes + j), "lane", ForKind.VECTORIZED, dtype=dtype
        )

    def row(i: ir.Expr) -> tirx.Stmt:
        vectors = p.tiling.column_tile // lanes
        return loop(vectors, lambda v: vector(i, v), "vector", ForKind.UNROLLED, dtype=dtype)

    return loop(p.tiling.row_tile, row, "row", ForKind.UNROLLED, dtype=dtype)
