"""Sizes of the pieces that a contraction is computed in: registers, panels, caches."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.products.contraction import Contraction, size
from tvm_xengine.kernels.schedules.products.in_place import VECTORS, is_contiguous_in, is_plain
from tvm_xengine.kernels.schedules.workers import worker_count
from tvm_xengine.kernels.targets import cpu_features, vector_bytes

DEPTH_BLOCK = 512
"""Steps of the sum in one block of packed operands: 2 KiB of float32 per row or column; chosen."""

_COLUMN_BLOCK_BYTES = 192 * 1024
"""Of the packed right operand: part of a second level cache of 256 KiB or more."""

_COLUMN_BLOCK_SHARE = 8  # of the bytes the kernel reads and writes: workspace counts in the arena


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
    left_in_place, right_in_place
        Whether a factor is read where it lies, not from packed panels.
    is_small
        Whether the core runs one instruction after another.
    """

    lanes: int
    row_tile: int
    column_tile: int
    depth_extents: tuple[int, ...]
    column_panels: int
    workers: int
    left_in_place: bool = False
    right_in_place: bool = False
    is_small: bool = False

    @property
    def depth(self) -> int:
        """Terms of each sum that are added at a time."""
        return math.prod(self.depth_extents)


def choose_tiling(
    contraction: Contraction,
    target: Target,
    io_bytes: int,
    *,
    most_depth: int = DEPTH_BLOCK,
    overwritten: Collection[ir.Var] = (),
) -> Tiling:
    """Return sizes that keep the sums in registers and the panels in the caches.

    Parameters
    ----------
    io_bytes
        Size of all inputs and outputs, which the workspace should not exceed.
    most_depth
        Terms of each sum that may be added at a time.
    overwritten
        Buffers over which the output lies.
    """
    itemsize = _itemsize(contraction.dtype)
    lanes = lanes_of(target, contraction.dtype)
    rows, columns = size(contraction.rows), size(contraction.columns)
    vectors = 1 if columns <= lanes else 2
    right_in_place = left_in_place = False
    depth_extents = _depth_extents(contraction.depth, most_depth)
    is_c = target.kind.name == "c"
    if is_c and _are_whole(contraction.depth, depth_extents):
        left_in_place = is_plain(contraction.left, overwritten)
        if is_plain(contraction.right, overwritten):
            fitting = [v for v in VECTORS if is_contiguous_in(contraction, v * lanes)]
            vectors = fitting[0] if lanes > 1 and fitting else vectors
            right_in_place = lanes == 1 or bool(fitting)
    most_rows = _sums_in_registers(cpu_features(target)) // vectors
    row_tile = _small_row_tile(rows, most_rows, vectors) if is_c else _row_tile(rows, most_rows)
    column_tile = lanes * vectors
    panels = -(-columns // column_tile)
    block_bytes = min(_COLUMN_BLOCK_BYTES, io_bytes // _COLUMN_BLOCK_SHARE)
    cached = block_bytes // (itemsize * column_tile * math.prod(depth_extents))
    if right_in_place:
        cached = panels
    elif (
        lanes == 1
    ):  # blocks of equal size: a product is stored without conditions on its last block
        cached = max(k for k in range(1, panels + 1) if panels % k == 0 and k <= max(cached, 1))
    cores = worker_count(contraction.multiplications, target)
    if size(contraction.batch) >= cores:
        column_panels = min(max(cached, 1), panels)
    else:
        column_panels = min(max(cached, 1), -(-panels // cores))
    return Tiling(
        lanes,
        row_tile,
        column_tile,
        depth_extents,
        column_panels,
        cores,
        left_in_place,
        right_in_place,
        is_c,
    )


def lanes_of(target: Target, dtype: str) -> int:
    """Sums of a type in a vector register, one where there are no vectors."""
    return max(vector_bytes(target) // _itemsize(dtype), 1)


def _itemsize(dtype: str) -> int:
    return 8 if dtype == "float64" else 4


def _are_whole(axes: tuple[Axis, ...], extents: tuple[int, ...]) -> bool:
    """Whether the depth is cut into blocks of equal size."""
    return axes[-len(extents)].extent % extents[0] == 0


def _sums_in_registers(features: frozenset[str]) -> int:
    """Vectors of sums, beside those of operands: of 32 registers, of Helium's 8, of 16 elsewhere."""
    if features & {"avx512f", "neon"}:
        return 26
    return 6 if "mve.fp" in features else 12


def _row_tile(rows: int, most: int) -> int:
    """The tile of at most `most` rows that wastes least, the larger of equals."""
    if rows <= most:
        return rows
    tiles = range(max(most // 2, 1), most + 1)
    return min(tiles, key=lambda tile: (-(-rows // tile) * (tile + 2), -tile))


def _small_row_tile(rows: int, most: int, vectors: int) -> int:
    """The same for a core that runs one instruction after another.

    A step of the depth loads each row and each vector, multiplies them, and takes about three
    instructions for the loop.
    """
    tiles = range(1, min(rows, most) + 1)
    return min(tiles, key=lambda t: (-(-rows // t) * (t * (vectors + 1) + vectors + 3), -t))


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


@dataclass(frozen=True)
class TiledProduct:
    """A contraction in pieces, with the counts and buffers that follow from their sizes."""

    contraction: Contraction
    tiling: Tiling

    @cached_property
    def rows(self) -> int:
        """Rows of the product."""
        return size(self.contraction.rows)

    @cached_property
    def columns(self) -> int:
        """Columns of the product."""
        return size(self.contraction.columns)

    @cached_property
    def row_panels(self) -> int:
        """Panels of the left factor."""
        return -(-self.rows // self.tiling.row_tile)

    @cached_property
    def column_blocks(self) -> int:
        """Blocks of panels of the right factor."""
        panels = -(-self.columns // self.tiling.column_tile)
        return -(-panels // self.tiling.column_panels)

    @property
    def block_columns(self) -> int:
        """Columns of a block of panels."""
        return self.tiling.column_tile * self.tiling.column_panels

    @property
    def inner_depth(self) -> tuple[Axis, ...]:
        """Depth axes of a block; of the first of them a block may hold a part."""
        return self.contraction.depth[-len(self.tiling.depth_extents) :]

    @property
    def outer_depth(self) -> tuple[Axis, ...]:
        """Depth axes around the blocks."""
        return self.contraction.depth[: -len(self.tiling.depth_extents)]

    @property
    def split(self) -> Axis:
        """The depth axis that may be cut."""
        return self.inner_depth[0]

    @cached_property
    def split_pieces(self) -> int:
        """Parts of that axis."""
        return -(-self.split.extent // self.tiling.depth_extents[0])

    @cached_property
    def depth_blocks(self) -> int:
        """Blocks that each sum is made of."""
        return size(self.outer_depth) * self.split_pieces

    @cached_property
    def index_dtype(self) -> str:
        """Type of positions."""
        return str(self.contraction.depth[0].var.ty.dtype)

    @property
    def zero(self) -> ir.Expr:
        """Zero, of the type of the sums."""
        return tirx.const(0, self.contraction.dtype)

    @cached_property
    def left(self) -> ir.Var:
        """All packed panels of the left factor."""
        panel_elements = self.tiling.depth * self.tiling.row_tile
        return self._buffer("packed_left", self.row_panels * panel_elements)

    @cached_property
    def right(self) -> ir.Var:
        """A block of packed panels of the right factor."""
        panel_elements = self.tiling.depth * self.tiling.column_tile
        return self._buffer("packed_right", self.tiling.column_panels * panel_elements)

    @cached_property
    def sums(self) -> ir.Var:
        """The block of sums in registers."""
        return self._buffer("sums", self.tiling.row_tile * self.tiling.column_tile)

    @cached_property
    def stores_from_registers(self) -> bool:
        """Whether sums go to the output in statements of their own, without a tile and loops between.

        Loops over a tile are short code, and vectors where there are any. Without vectors they take more
        instructions than a product of little depth; where much is done to each sum, code counts. What reads
        a tensor for each sum, as an update does, may run in place, which is seen in a single statement only.
        """
        more: list[ir.Expr] = []
        for store in self.contraction.stores:
            for kind in (ir.Call, ir.TensorLoad):
                tvm_ffi.structural_walk(store.value, (kind, more.append))
        blocks = -(-self.columns // self.tiling.column_tile) % self.tiling.column_panels
        return self.stores_lanes and blocks == 0 and not more

    @property
    def stores_lanes(self) -> bool:
        """Whether each vector of sums is a run of the output: always, where a vector is one number."""
        lanes = self.tiling.lanes
        is_whole = self.columns % self.tiling.column_tile == 0
        return lanes == 1 or (self.tiling.is_small and is_whole and self.run == lanes)

    @cached_property
    def run(self) -> int:
        """Number of neighbouring columns that lie side by side in the output."""
        innermost = self.contraction.columns[-1]
        last = [store.index[-1] for store in self.contraction.stores]
        if all(isinstance(one, ir.Var) and one.same_as(innermost.var) for one in last):
            length = self.contraction.row_length or innermost.extent
            return math.gcd(length, self.tiling.lanes)
        return 1

    @cached_property
    def part_of_row(self) -> int:
        """Columns of a tile that are neighbours in one row; whole tiles where there is one row only."""
        columns, tile = self.contraction.columns, self.tiling.column_tile
        return tile if len(columns) == 1 else math.gcd(columns[-1].extent, tile)

    @cached_property
    def tile(self) -> ir.Var:
        """The sums on their way to the output."""
        return self._buffer("tile", self.tiling.row_tile * self.tiling.column_tile)

    @property
    def makes_first(self) -> bool:
        """Whether all that is stored for a run is computed before any of it is stored.

        Each result may be written over a tensor that others read, as those of an update are.
        """
        return len(self.contraction.stores) > 1 and not self.stores_from_registers

    @cached_property
    def made(self) -> tuple[ir.Var, ...]:
        """For each result what is stored for a run of neighbours."""
        types = [str(store.output.ty.dtype.dtype) for store in self.contraction.stores]
        made = (tirx.decl_buffer((self.run,), dtype, name="made") for dtype in types)
        return tuple(made) if self.makes_first else ()

    def _buffer(self, name: str, elements: int) -> ir.Var:
        return tirx.decl_buffer((elements,), self.contraction.dtype, name=name)
