"""The block of sums of a contraction that stays in registers: cleared, added to, stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import substitute
from tvm_xengine.kernels.schedules.loops import ForKind, loop, ravel, sequence, unravel
from tvm_xengine.kernels.schedules.products.packing import (
    Depth,
    Position,
    left_at,
    over_depth,
    right_at,
)
from tvm_xengine.kernels.schedules.products.tiling import TiledProduct


@dataclass(frozen=True)
class Panels:
    """A panel of each factor: its number among those that are packed, and where it begins.

    Attributes
    ----------
    at
        Where the loops around are.
    """

    at: Position
    row_panel: ir.Expr
    column_panel: ir.Expr
    first_row: ir.Expr
    first_column: ir.Expr


def multiply_panels(p: TiledProduct, panels: Panels, store: tirx.Stmt) -> tirx.Stmt:
    """Multiply two panels, and `store` the product, from the tile if there is one.

    The sums are zero before and after. That they live on while the tile is stored keeps
    StorageRewrite from giving both the same memory: an array that is indexed by the loop
    variables of the store could not live in registers.
    """
    row_tile, column_tile, depth = p.tiling.row_tile, p.tiling.column_tile, p.tiling.depth

    def left(k: Depth, i: ir.Expr) -> ir.Expr:
        if p.tiling.left_in_place:
            return left_at(p, panels.at, panels.first_row + i, k)
        place = ravel(k, p.tiling.depth_extents)
        return p.left[(panels.row_panel * depth + place) * row_tile + i]

    def right(k: Depth, j: ir.Expr) -> ir.Expr:
        if p.tiling.right_in_place:
            return right_at(p, panels.at, panels.first_column + j, k)
        place = ravel(k, p.tiling.depth_extents)
        return p.right[(panels.column_panel * depth + place) * column_tile + j]

    def add(k: Depth, i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
        place = i * column_tile + j
        return tirx.BufferStore(p.sums, p.sums[place] + left(k, i) * right(k, j), [place])

    def copy(i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
        place = i * column_tile + j
        return tirx.BufferStore(p.tile, p.sums[place], [place])

    def of_depth(k: Depth) -> tirx.Stmt:
        return _in_registers(p, lambda i, j: add(k, i, j))

    product = over_depth(p, panels.at, of_depth)
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
    c, run = p.contraction, p.run
    is_first, is_last = place_in_depth

    def stored(here: Position, value: ir.Expr, lane: ir.Expr) -> tirx.Stmt:
        (own, *_) = places = [store.at(here) for store in c.stores]
        if not is_first:
            value = own.output[own.index] + value
        if not is_last:
            return tirx.BufferStore(own.output, value, own.index)
        made = [substitute(one.value, {c.product: value}) for one in places]
        if not p.makes_first:
            stores = zip(places, made, strict=True)
            return sequence([tirx.BufferStore(one.output, v, one.index) for one, v in stores])
        values = [tirx.BufferStore(to, v, [lane]) for to, v in zip(p.made, made, strict=True)]
        stores = zip(places, p.made, strict=True)
        return sequence(
            [*values, *(tirx.BufferStore(one.output, v[lane], one.index) for one, v in stores)]
        )

    if p.stores_from_registers:
        return _store_each(p, at, first_row, first_column, stored)

    def element(i: ir.Expr, start: ir.Expr, lane: ir.Expr) -> tirx.Stmt:
        columns = unravel(first_column + start, c.columns)
        here = {**at, **unravel(first_row + i, c.rows), **columns}
        if run > 1:
            here[c.columns[-1].var] += lane
        return stored(here, p.tile[i * p.tiling.column_tile + start + lane], lane)

    def run_of_columns(i: ir.Expr, start: ir.Expr) -> tirx.Stmt:
        lanes = ForKind.VECTORIZED
        return loop(run, lambda lane: element(i, start, lane), "lane", lanes, dtype=p.index_dtype)

    rows: ir.Expr | int = p.tiling.row_tile
    if p.rows % p.tiling.row_tile:
        rows = tirx.min(rows, p.rows - first_row)
    length = p.part_of_row
    parts: ir.Expr | int = p.tiling.column_tile // length
    is_cut, has_rest = p.columns % p.block_columns != 0, p.columns % length != 0
    if is_cut and not has_rest:
        parts = tirx.min(parts, tirx.floordiv(p.columns - first_column, length))

    def part_of_row(i: ir.Expr, number: ir.Expr) -> tirx.Stmt:
        first, runs = number * length, length // run
        if has_rest:
            runs = tirx.min(runs, tirx.floordiv(p.columns - first_column, run))
        if c.row_length is not None:
            begin = tirx.floormod(first_column + first, c.columns[-1].extent)
            runs = tirx.min(runs, tirx.floordiv(c.row_length - begin, run))
        return loop(runs, lambda r: run_of_columns(i, first + r * run), "run", dtype=p.index_dtype)

    def row(i: ir.Expr) -> tirx.Stmt:
        return loop(parts, lambda number: part_of_row(i, number), "part", dtype=p.index_dtype)

    return loop(rows, row, "row", dtype=p.index_dtype)


def _store_each(
    p: TiledProduct,
    at: Position,
    first_row: ir.Expr,
    first_column: ir.Expr,
    stored: Callable[[Position, ir.Expr, ir.Expr], tirx.Stmt],
) -> tirx.Stmt:
    """One statement for each vector of sums, so that where it goes is computed once for a row or a column."""
    c, (rows, columns) = p.contraction, (p.tiling.row_tile, p.tiling.column_tile)

    def element(i: int, j: int, lane: ir.Expr) -> tirx.Stmt:
        row, column = first_row + i, first_column + j
        here = {**at, **unravel(row, c.rows), **unravel(column, c.columns)}
        if p.tiling.lanes > 1:
            here[c.columns[-1].var] += lane
        store = stored(here, p.sums[i * columns + j + lane], lane)
        # The last panel has `rest` rows, or columns; before them none is beyond the product.
        places = ((row, i, p.rows, rows), (column, j, p.columns, columns))
        for place, offset, extent, tile in places:
            if (rest := extent % tile) and offset >= rest:
                store = tirx.IfThenElse(place < extent, store, None)
        return store

    def vector(i: int, j: int) -> tirx.Stmt:
        lanes = ForKind.VECTORIZED
        return loop(
            p.tiling.lanes, lambda lane: element(i, j, lane), "lane", lanes, dtype=p.index_dtype
        )

    starts = range(0, columns, p.tiling.lanes)
    return sequence([vector(i, j) for i in range(rows) for j in starts])


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
