"""Loops for contractions: packed panels and a block of sums that stays in registers.

The structure is that of Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication" (ACM TOMS 2008). Packing evaluates the factors as expressions, so that a
convolution needs no im2col buffer larger than one panel, and padding costs nothing but a
comparison per packed element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.accumulation import is_contiguous, substitute
from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.contraction import Contraction, size
from tvm_xengine.kernels.schedules.loops import (
    ForKind,
    loop,
    nest,
    ravel,
    sequence,
    share,
    unravel,
)
from tvm_xengine.kernels.schedules.phases import split_contraction
from tvm_xengine.kernels.targets import core_count, cpu_features, vector_bytes
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR

_TileBody = Callable[[ir.Expr, ir.Expr], tirx.Stmt]
_LoopBody = Callable[[ir.Expr], tirx.Stmt]

_DEPTH_BLOCK = 512
"""Steps of the sum in one block of packed operands: 2 KiB of float32 per row or column; chosen."""

_COLUMN_BLOCK_BYTES = 192 * 1024
"""Of the packed right operand: part of a second level cache of 256 KiB or more."""

_COLUMN_BLOCK_SHARE = 8  # of the bytes the kernel reads and writes: workspace counts in the arena
_PARALLEL_MULTIPLICATIONS = 200_000
"""With fewer, waking threads takes longer than they save; chosen."""


@dataclass(frozen=True)
class Tiling:
    """Sizes of the pieces a contraction is computed in.

    Attributes
    ----------
    lanes
        Elements of a vector register.
    row_tile, column_tile
        Size of the block of sums in registers.
    depth_extents
        Extents of the innermost depth axes that are packed at a time; the first of them may be a
        part of its axis.
    column_panels
        Column tiles packed at a time.
    workers
        Threads that share the work.
    """

    lanes: int
    row_tile: int
    column_tile: int
    depth_extents: tuple[int, ...]
    column_panels: int
    workers: int

    @property
    def depth(self) -> int:
        """Terms of each sum that are added at a time."""
        return math.prod(self.depth_extents)


def choose_tiling(
    contraction: Contraction, target: Target, io_bytes: int, *, most_depth: int = _DEPTH_BLOCK
) -> Tiling:
    """Return sizes that keep the sums in registers and the panels in the caches.

    Parameters
    ----------
    io_bytes
        Size of all inputs and outputs, which the workspace should not exceed.
    most_depth
        Terms of each sum that may be added at a time.
    """
    itemsize = 8 if contraction.dtype == "float64" else 4
    lanes = max(vector_bytes(target) // itemsize, 1)
    rows, columns = size(contraction.rows), size(contraction.columns)
    vectors = 1 if columns <= lanes else 2
    sums = 26 if cpu_features(target) & {"avx512f", "neon"} else 12
    row_tile = _row_tile(rows, sums // vectors)
    column_tile = lanes * vectors
    depth_extents = _depth_extents(contraction.depth, most_depth)
    panels = -(-columns // column_tile)
    block_bytes = min(_COLUMN_BLOCK_BYTES, io_bytes // _COLUMN_BLOCK_SHARE)
    cached = block_bytes // (itemsize * column_tile * math.prod(depth_extents))
    cores = core_count(target) if contraction.multiplications >= _PARALLEL_MULTIPLICATIONS else 1
    if size(contraction.batch) >= cores:
        column_panels = min(max(cached, 1), panels)
    else:
        column_panels = min(max(cached, 1), -(-panels // cores))
    return Tiling(lanes, row_tile, column_tile, depth_extents, column_panels, cores)


def _row_tile(rows: int, most: int) -> int:
    """The tile of at most `most` rows that wastes least, the larger of equals."""
    if rows <= most:
        return rows
    tiles = range(max(most // 2, 1), most + 1)
    return min(tiles, key=lambda tile: (-(-rows // tile) * (tile + 2), -tile))


def _depth_extents(axes: tuple[Axis, ...], most: int) -> tuple[int, ...]:
    extents: list[int] = []
    block = 1
    for axis in reversed(axes):
        if block * axis.extent <= most:
            extents.insert(0, axis.extent)
            block *= axis.extent
            continue
        pieces = -(-axis.extent * block // most)
        extents.insert(0, -(-axis.extent // pieces))
        break
    return tuple(extents)


def write_matrix_product(
    func: tirx.PrimFunc, contraction: Contraction, target: Target
) -> tirx.PrimFunc:
    """Return `func`, which is `contraction`, with loops for a CPU."""
    io_bytes = sum(_size_bytes(param) for param in func.params)
    phases = split_contraction(contraction)
    in_parts = _may_be_stored_in_parts(func, contraction)
    body = sequence([_write(phase, target, io_bytes, in_parts) for phase in phases])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _may_be_stored_in_parts(func: tirx.PrimFunc, contraction: Contraction) -> bool:
    """Whether the output can hold sums that are not complete.

    It cannot where it has another type, or lies over an input that is still to be read.
    """
    dtype = str(contraction.output.ty.dtype.dtype)
    return dtype == contraction.dtype and INPLACE_ATTR not in func.attrs


def _write(contraction: Contraction, target: Target, io_bytes: int, in_parts: bool) -> tirx.Stmt:
    depth = size(contraction.depth)
    if depth == 0:
        return _write_empty_sum(contraction)
    most = _DEPTH_BLOCK if in_parts else depth
    tiling = choose_tiling(contraction, target, io_bytes, most_depth=most)
    return _Writer(contraction, tiling).write()


def _size_bytes(param: ir.Var) -> int:
    elements = math.prod(int(extent) for extent in param.ty.shape)
    return elements * int(param.ty.dtype.dtype.itemsize)


def _write_empty_sum(contraction: Contraction) -> tirx.Stmt:
    axes = [*contraction.batch, *contraction.rows, *contraction.columns]
    zero = tirx.const(0, contraction.dtype)

    def store(position: Sequence[ir.Expr]) -> tirx.Stmt:
        at = {axis.var: i for axis, i in zip(axes, position, strict=True)}
        value = substitute(contraction.finish, at | {contraction.product: zero})
        index = [substitute(part, at) for part in contraction.index]
        return tirx.BufferStore(contraction.output, value, index)

    return nest([axis.extent for axis in axes], store, "i", str(axes[0].var.ty.dtype))


class _Writer:
    """Writes the loops of one contraction."""

    def __init__(self, contraction: Contraction, tiling: Tiling) -> None:
        self.c = contraction
        self.t = tiling
        self.index_dtype = str(contraction.depth[0].var.ty.dtype)
        self.rows, self.columns = size(contraction.rows), size(contraction.columns)
        self.row_panels = -(-self.rows // tiling.row_tile)
        self.panels = -(-self.columns // tiling.column_tile)
        self.column_blocks = -(-self.panels // tiling.column_panels)
        inner = len(tiling.depth_extents)
        self.split = contraction.depth[-inner]
        self.split_pieces = -(-self.split.extent // tiling.depth_extents[0])
        self.outer_depth = contraction.depth[:-inner]
        self.inner_depth = contraction.depth[-inner:]
        self.depth_blocks = size(self.outer_depth) * self.split_pieces
        left_elements = self.row_panels * tiling.depth * tiling.row_tile
        right_elements = tiling.column_panels * tiling.depth * tiling.column_tile
        self.left = self._buffer("packed_left", left_elements)
        self.right = self._buffer("packed_right", right_elements)
        tile_elements = tiling.row_tile * tiling.column_tile
        self.sums = self._buffer("sums", tile_elements)
        self.tile = self._buffer("tile", tile_elements)

    def write(self) -> tirx.Stmt:
        batch = size(self.c.batch)
        if self.t.workers > 1 and batch >= self.t.workers:
            return share(
                batch,
                self.t.workers,
                lambda b: self._one_product(unravel(b, self.c.batch), 1),
                "batch",
                dtype=self.index_dtype,
                setup=[tirx.AllocBuffer(self.left)],
            )
        product = loop(
            batch,
            lambda b: self._one_product(unravel(b, self.c.batch), self.t.workers),
            "batch",
            dtype=self.index_dtype,
        )
        return sequence([tirx.AllocBuffer(self.left), product])

    def _one_product(self, at: dict[ir.Var, ir.Expr], workers: int) -> tirx.Stmt:
        def depth_block(d: ir.Expr) -> tirx.Stmt:
            piece = tirx.floormod(d, self.split_pieces)
            outer = unravel(tirx.floordiv(d, self.split_pieces), self.outer_depth)
            here = at | outer | {self.split.var: piece * self.t.depth_extents[0]}
            return sequence(
                [
                    share(
                        self.row_panels,
                        workers,
                        lambda p: self._pack_left(here, p),
                        "row_panel",
                        dtype=self.index_dtype,
                    ),
                    share(
                        self.column_blocks,
                        workers,
                        lambda j: self._column_block(here, d, j),
                        "column_block",
                        dtype=self.index_dtype,
                        setup=[
                            tirx.AllocBuffer(self.right),
                            tirx.AllocBuffer(self.tile),
                            tirx.AllocBuffer(self.sums),
                            self._clear_sums(),
                        ],
                    ),
                ]
            )

        return self._loop(self.depth_blocks, depth_block, "depth_block")

    def _pack_left(self, at: dict[ir.Var, ir.Expr], panel: ir.Expr) -> tirx.Stmt:
        tile, depth = self.t.row_tile, self.t.depth

        def store(i: ir.Expr, k: list[ir.Expr]) -> tirx.Stmt:
            row = panel * tile + i
            here = at | unravel(row, self.c.rows)
            value = self._term(self.c.left, here, k, row, self.rows, tile)
            position = (panel * depth + ravel(k, self.t.depth_extents)) * tile + i
            return tirx.BufferStore(self.left, value, [position])

        return self._pack(tile, store, is_contiguous(self.c.left, self.c.rows[-1].var))

    def _pack_right(self, at: dict[ir.Var, ir.Expr], block: ir.Expr, panel: ir.Expr) -> tirx.Stmt:
        tile, depth = self.t.column_tile, self.t.depth

        def store(j: ir.Expr, k: list[ir.Expr]) -> tirx.Stmt:
            column = (block * self.t.column_panels + panel) * tile + j
            here = at | unravel(column, self.c.columns)
            value = self._term(self.c.right, here, k, column, self.columns, self._covered)
            position = (panel * depth + ravel(k, self.t.depth_extents)) * tile + j
            return tirx.BufferStore(self.right, value, [position])

        innermost = self.c.columns[-1]
        runs = innermost.extent % tile == 0 or len(self.c.columns) == 1
        return self._pack(tile, store, runs and is_contiguous(self.c.right, innermost.var))

    def _pack(
        self,
        tile: int,
        store: Callable[[ir.Expr, list[ir.Expr]], tirx.Stmt],
        reads_along_tile: bool,
    ) -> tirx.Stmt:
        """Run `store` over a panel, in the inner loop along what is contiguous in memory."""

        def along_depth(i: ir.Expr) -> tirx.Stmt:
            return nest(self.t.depth_extents, lambda k: store(i, k), "k", self.index_dtype)

        def along_tile(k: list[ir.Expr]) -> tirx.Stmt:
            return self._loop(tile, lambda i: store(i, k), "i")

        if reads_along_tile:
            return nest(self.t.depth_extents, along_tile, "k", self.index_dtype)
        return self._loop(tile, along_depth, "i")

    @property
    def _covered(self) -> int:
        return self.t.column_tile * self.t.column_panels

    def _term(
        self,
        factor: ir.Expr,
        at: dict[ir.Var, ir.Expr],
        k: list[ir.Expr],
        position: ir.Expr,
        extent: int,
        step: int,
    ) -> ir.Expr:
        """A factor at depth `k` of the block, zero outside the rows, columns or depth."""
        inner = {axis.var: i for axis, i in zip(self.inner_depth, k, strict=True)}
        split = at[self.split.var] + k[0]
        value = substitute(factor, at | inner | {self.split.var: split})
        conditions = []
        if extent % step:
            conditions.append(position < extent)
        if self.split.extent % self.t.depth_extents[0]:
            conditions.append(split < self.split.extent)
        if not conditions:
            return value
        return tirx.if_then_else(tirx.all(*conditions), value, self._zero())

    def _column_block(
        self, at: dict[ir.Var, ir.Expr], depth_block: ir.Expr, block: ir.Expr
    ) -> tirx.Stmt:
        pack = self._loop(
            self.t.column_panels, lambda p: self._pack_right(at, block, p), "column_panel"
        )
        multiply = self._loop(
            self.row_panels,
            lambda p: self._loop(
                self.t.column_panels,
                lambda q: self._tile(at, depth_block, p, block, q),
                "column_panel",
            ),
            "row_panel",
        )
        return sequence([pack, multiply])

    def _tile(
        self,
        at: dict[ir.Var, ir.Expr],
        depth_block: ir.Expr,
        row_panel: ir.Expr,
        block: ir.Expr,
        panel: ir.Expr,
    ) -> tirx.Stmt:
        """Multiply two panels and add the product to the output.

        The sums are zero before and after. That they live on while the tile is stored keeps
        StorageRewrite from giving both the same memory: an array that is indexed by the loop
        variables of the store could not live in registers.
        """
        row_tile, column_tile = self.t.row_tile, self.t.column_tile

        def add(k: ir.Expr, i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
            left = self.left[(row_panel * self.t.depth + k) * row_tile + i]
            right = self.right[(panel * self.t.depth + k) * column_tile + j]
            place = i * column_tile + j
            return tirx.BufferStore(self.sums, self.sums[place] + left * right, [place])

        def copy(i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
            place = i * column_tile + j
            return tirx.BufferStore(self.tile, self.sums[place], [place])

        first_row = row_panel * row_tile
        first_column = (block * self.t.column_panels + panel) * column_tile
        return sequence(
            [
                self._loop(
                    self.t.depth, lambda k: self._in_registers(lambda i, j: add(k, i, j)), "k"
                ),
                self._in_registers(copy),
                self._clear_sums(),
                self._store_tile(at, depth_block, first_row, first_column),
            ]
        )

    def _clear_sums(self) -> tirx.Stmt:
        def clear(i: ir.Expr, j: ir.Expr) -> tirx.Stmt:
            return tirx.BufferStore(self.sums, self._zero(), [i * self.t.column_tile + j])

        return self._in_registers(clear)

    def _in_registers(self, body: _TileBody) -> tirx.Stmt:
        """Run `body` for each element of the block of sums, unrolled and vectorised."""
        lanes = self.t.lanes

        def vector(i: ir.Expr, v: ir.Expr) -> tirx.Stmt:
            return self._loop(lanes, lambda j: body(i, v * lanes + j), "lane", ForKind.VECTORIZED)

        def row(i: ir.Expr) -> tirx.Stmt:
            return self._loop(
                self.t.column_tile // lanes, lambda v: vector(i, v), "vector", ForKind.UNROLLED
            )

        return self._loop(self.t.row_tile, row, "row", ForKind.UNROLLED)

    def _store_tile(
        self,
        at: dict[ir.Var, ir.Expr],
        depth_block: ir.Expr,
        first_row: ir.Expr,
        first_column: ir.Expr,
    ) -> tirx.Stmt:
        def store(is_first: bool, is_last: bool) -> tirx.Stmt:
            return self._store(at, first_row, first_column, is_first, is_last)

        last = self.depth_blocks - 1
        if last == 0:
            return store(True, True)
        later = store(False, True)
        if not self.c.finish.same_as(self.c.product):
            later = tirx.IfThenElse(depth_block == last, later, store(False, False))
        return tirx.IfThenElse(depth_block == 0, store(True, False), later)

    def _store(
        self,
        at: dict[ir.Var, ir.Expr],
        first_row: ir.Expr,
        first_column: ir.Expr,
        is_first: bool,
        is_last: bool,
    ) -> tirx.Stmt:
        run = self._store_run()

        def element(i: ir.Expr, start: ir.Expr, lane: ir.Expr) -> tirx.Stmt:
            here = at | unravel(first_row + i, self.c.rows)
            here |= unravel(first_column + start, self.c.columns)
            if run > 1:
                here[self.c.columns[-1].var] += lane
            index = [substitute(part, here) for part in self.c.index]
            value = self.tile[i * self.t.column_tile + start + lane]
            if not is_first:
                value = self.c.output[index] + value
            if is_last:
                value = substitute(self.c.finish, here | {self.c.product: value})
            return tirx.BufferStore(self.c.output, value, index)

        def run_of_columns(i: ir.Expr, r: ir.Expr) -> tirx.Stmt:
            return self._loop(
                run, lambda lane: element(i, r * run, lane), "lane", ForKind.VECTORIZED
            )

        rows: ir.Expr | int = self.t.row_tile
        if self.rows % self.t.row_tile:
            rows = tirx.min(rows, self.rows - first_row)
        runs: ir.Expr | int = self.t.column_tile // run
        if self.columns % self._covered:
            runs = tirx.min(runs, tirx.floordiv(self.columns - first_column, run))
        return self._loop(
            rows, lambda i: self._loop(runs, lambda r: run_of_columns(i, r), "run"), "row"
        )

    def _store_run(self) -> int:
        """Number of neighbouring columns that lie side by side in the output."""
        innermost = self.c.columns[-1]
        last = self.c.index[-1]
        if isinstance(last, ir.Var) and last.same_as(innermost.var):
            return math.gcd(innermost.extent, self.t.lanes)
        return 1

    def _buffer(self, name: str, elements: int) -> ir.Var:
        return tirx.decl_buffer((elements,), self.c.dtype, name=name)

    def _loop(
        self,
        extent: ir.Expr | int,
        body: _LoopBody,
        name: str,
        kind: ForKind = ForKind.SERIAL,
    ) -> tirx.Stmt:
        return loop(extent, body, name, kind, dtype=self.index_dtype)

    def _zero(self) -> ir.Expr:
        return tirx.const(0, self.c.dtype)
