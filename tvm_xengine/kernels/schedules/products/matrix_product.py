"""Loops for contractions: packed panels and a block of sums that stays in registers.

The structure is that of Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication" (ACM TOMS 2008). Packing evaluates the factors as expressions, so that a
convolution needs no im2col buffer larger than one panel, and padding costs nothing but a
comparison per packed element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.loops import loop, nest, sequence, share, unravel
from tvm_xengine.kernels.schedules.padding import is_choice
from tvm_xengine.kernels.schedules.products.contraction import Contraction, size
from tvm_xengine.kernels.schedules.products.dots import (
    as_dot_products,
    dot_product_of,
    write_dot_products,
)
from tvm_xengine.kernels.schedules.products.in_place import with_cheaper_vectors
from tvm_xengine.kernels.schedules.products.packing import Position, pack_left, pack_right
from tvm_xengine.kernels.schedules.products.padded import (
    PaddedCopy,
    with_copies,
    with_rows_apart,
)
from tvm_xengine.kernels.schedules.products.phases import split_contraction
from tvm_xengine.kernels.schedules.products.register_tile import (
    Panels,
    clear_sums,
    multiply_panels,
    store_sums,
)
from tvm_xengine.kernels.schedules.products.tiling import (
    DEPTH_BLOCK,
    TiledProduct,
    choose_tiling,
    lanes_of,
)
from tvm_xengine.kernels.schedules.products.whole_vectors import with_whole_vectors
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR, inplace_pairs


def write_matrix_product(
    func: tirx.PrimFunc, contraction: Contraction, target: Target
) -> tirx.PrimFunc:
    """Return `func`, which is `contraction`, with loops for a CPU."""
    io_bytes = sum(_size_bytes(param) for param in func.params)
    phases = split_contraction(contraction)
    in_parts = _may_be_stored_in_parts(func, contraction)
    overwritten = [func.params[pair.input] for pair in inplace_pairs(func)]
    body = sequence([_write(phase, target, io_bytes, in_parts, overwritten) for phase in phases])
    return func.with_body(body)


def _may_be_stored_in_parts(func: tirx.PrimFunc, contraction: Contraction) -> bool:
    """Whether the output can hold sums that are not complete.

    It cannot where it has another type, or lies over an input that is still to be read; of several none can.
    """
    (store, *others) = contraction.stores
    dtype = str(store.output.ty.dtype.dtype)
    return not others and dtype == contraction.dtype and INPLACE_ATTR not in func.attrs


def _write(
    contraction: Contraction,
    target: Target,
    io_bytes: int,
    in_parts: bool,
    overwritten: Sequence[ir.Var],
) -> tirx.Stmt:
    depth = size(contraction.depth)
    if depth == 0:
        return _write_empty_sum(contraction)
    most = DEPTH_BLOCK if in_parts else depth
    copies: tuple[PaddedCopy, ...] = ()
    if target.kind.name == "c":
        if (dots := as_dot_products(contraction, overwritten)) is not None:
            return write_dot_products(dots, dot_product_of(target), overwritten)
        contraction, copies, most = _read_in_place(contraction, target, most, in_parts)
    else:
        contraction = with_whole_vectors(contraction, lanes_of(target, contraction.dtype))
    tiling = choose_tiling(contraction, target, io_bytes, most_depth=most, overwritten=overwritten)
    return _Writer(TiledProduct(contraction, tiling), copies).write()


def _read_in_place(
    contraction: Contraction, target: Target, most_depth: int, in_parts: bool
) -> tuple[Contraction, tuple[PaddedCopy, ...], int]:
    """A contraction that reads its factors where they lie, or where a padded copy lies.

    Where the depth is an image, each image of a batch is copied by itself.
    """
    apart = with_rows_apart(contraction)
    around: Sequence[Axis] = ()
    if apart is contraction and in_parts and is_choice(contraction.right):
        images, *inner = contraction.depth
        if images.extent > 1 and inner:
            around, most_depth = [images], size(inner)
    padded, copies = with_copies(apart, around)
    if not copies:
        padded = contraction
    return with_cheaper_vectors(padded, target), copies, most_depth


def _size_bytes(param: ir.Var) -> int:
    elements = math.prod(int(extent) for extent in param.ty.shape)
    return elements * int(param.ty.dtype.dtype.itemsize)


def _write_empty_sum(contraction: Contraction) -> tirx.Stmt:
    axes = [*contraction.batch, *contraction.rows, *contraction.columns]
    zero = tirx.const(0, contraction.dtype)

    def store(position: Sequence[ir.Expr]) -> tirx.Stmt:
        at = {axis.var: i for axis, i in zip(axes, position, strict=True)}
        stores = (store.at(at | {contraction.product: zero}) for store in contraction.stores)
        return sequence([tirx.BufferStore(one.output, one.value, one.index) for one in stores])

    return nest([axis.extent for axis in axes], store, "i", str(axes[0].var.ty.dtype))


class _Writer:
    """Writes the loops around the panels of one contraction."""

    def __init__(self, product: TiledProduct, copies: Sequence[PaddedCopy]) -> None:
        self.p = product
        self.copies = copies
        self.c = product.contraction
        self.t = product.tiling

    def write(self) -> tirx.Stmt:
        batch = size(self.c.batch)
        left = [] if self.t.left_in_place else [tirx.AllocBuffer(self.p.left)]
        if self.t.workers > 1 and batch >= self.t.workers:
            return share(
                batch,
                self.t.workers,
                lambda b: self._one_product(unravel(b, self.c.batch), 1),
                "batch",
                dtype=self.p.index_dtype,
                setup=left,
            )
        product = self._loop(
            batch, lambda b: self._one_product(unravel(b, self.c.batch), self.t.workers), "batch"
        )
        buffers = [tirx.AllocBuffer(copy.buffer) for copy in self.copies]
        return sequence([*buffers, *(copy.filled() for copy in self.copies), *left, product])

    def _one_product(self, at: Position, workers: int) -> tirx.Stmt:
        p = self.p

        def depth_block(d: ir.Expr) -> tirx.Stmt:
            piece = tirx.floormod(d, p.split_pieces)
            outer = unravel(tirx.floordiv(d, p.split_pieces), p.outer_depth)
            here = {**at, **outer, p.split.var: piece * self.t.depth_extents[0]}
            pack = share(
                p.row_panels,
                workers,
                lambda panel: pack_left(p, here, panel),
                "row_panel",
                dtype=p.index_dtype,
            )
            multiply = share(
                p.column_blocks,
                workers,
                lambda block: self._column_block(here, d, block),
                "column_block",
                dtype=p.index_dtype,
                setup=[
                    *([] if self.t.right_in_place else [tirx.AllocBuffer(p.right)]),
                    *([] if p.stores_from_registers else [tirx.AllocBuffer(p.tile)]),
                    *map(tirx.AllocBuffer, p.made),
                    tirx.AllocBuffer(p.sums),
                    clear_sums(p),
                ],
            )
            copies = [copy.copied(here) for copy in self.copies]
            return sequence([*copies, *([] if self.t.left_in_place else [pack]), multiply])

        return self._loop(p.depth_blocks, depth_block, "depth_block")

    def _column_block(self, at: Position, depth_block: ir.Expr, block: ir.Expr) -> tirx.Stmt:
        p, panels = self.p, self.t.column_panels

        def row_panel(row: ir.Expr) -> tirx.Stmt:
            first_row = row * self.t.row_tile

            def column_panel(column: ir.Expr) -> tirx.Stmt:
                first_column = (block * panels + column) * self.t.column_tile
                store = self._store_tile(at, depth_block, first_row, first_column)
                panel = Panels(at, row, column, first_row, first_column)
                return multiply_panels(p, panel, store)

            return self._loop(panels, column_panel, "column_panel")

        product = self._loop(p.row_panels, row_panel, "row_panel")
        if self.t.right_in_place:
            return product
        pack = self._loop(panels, lambda q: pack_right(p, at, block, q), "column_panel")
        return sequence([pack, product])

    def _store_tile(
        self, at: Position, depth_block: ir.Expr, first_row: ir.Expr, first_column: ir.Expr
    ) -> tirx.Stmt:
        def store(is_first: bool, is_last: bool) -> tirx.Stmt:
            return store_sums(self.p, at, first_row, first_column, (is_first, is_last))

        last = self.p.depth_blocks - 1
        if last == 0:
            return store(True, True)
        later = store(False, True)
        if not self.c.stores[0].value.same_as(self.c.product):
            later = tirx.IfThenElse(depth_block == last, later, store(False, False))
        return tirx.IfThenElse(depth_block == 0, store(True, False), later)

    def _loop(
        self, extent: ir.Expr | int, body: Callable[[ir.Expr], tirx.Stmt], name: str
    ) -> tirx.Stmt:
        return loop(extent, body, name, dtype=self.p.index_dtype)
