"""Factors of a contraction that are read where they lie.

Packing a factor pays where caches and vectors do. A small core has no cache, and Helium reads any four
neighbours; packed panels would take memory of its arena, and often more instructions than the product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.accumulation import mentions, substitute
from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.loops import ravel, unravel
from tvm_xengine.kernels.schedules.products.contraction import Contraction, size
from tvm_xengine.kernels.targets import vector_bytes

VECTORS = (2, 3, 1)
"""Registers in a row of sums that Helium has room for, those that load least first."""

FLOAT_BYTES = 4
"""Of a float32; products of other types are not written so."""


def is_plain(factor: ir.Expr, overwritten: Collection[ir.Var]) -> bool:
    """Whether a factor is an element of a buffer that stays as it is until the product is stored."""
    return isinstance(factor, ir.TensorLoad) and factor.source not in overwritten


def is_contiguous_in(contraction: Contraction, tile: int) -> bool:
    """Whether each tile of columns, all full, is a run of neighbours in the right factor."""
    columns = size(contraction.columns)
    if columns % tile:
        return False
    dtype = contraction.columns[0].var.ty
    panel, lane = ir.Var("panel", dtype), ir.Var("lane", dtype)
    factor = substitute(contraction.right, unravel(panel * tile + lane, contraction.columns))
    known = [Axis(panel, columns // tile), Axis(lane, tile), *contraction.batch, *contraction.depth]
    return not mentions(within(_place(factor) - lane, known), lane)


def is_neighbour_in(factor: ir.Expr, axes: Sequence[Axis], contraction: Contraction) -> bool:
    """Whether the elements over some axes are a run of neighbours in a buffer, read as they are."""
    if not isinstance(factor, ir.TensorLoad):
        return False
    position = ir.Var("position", axes[0].var.ty)
    moved = substitute(factor, unravel(position, axes))
    c = contraction
    known = [Axis(position, size(axes)), *c.batch, *c.rows, *c.columns]
    return not mentions(within(_place(moved) - position, known), position)


def with_cheaper_vectors(contraction: Contraction, target: Target) -> Contraction:
    """The contraction with rows for columns, where vectors are wanted and fewer numbers packed so."""
    lanes = vector_bytes(target) // FLOAT_BYTES
    rows, columns = size(contraction.rows), size(contraction.columns)
    factors = (contraction.left, contraction.right)
    if lanes == 1 or rows % lanes or rows >= columns or not all(is_plain(f, ()) for f in factors):
        return contraction
    if any(is_contiguous_in(contraction, vectors * lanes) for vectors in VECTORS):
        return contraction
    return dataclasses.replace(
        contraction,
        rows=contraction.columns,
        columns=contraction.rows,
        left=contraction.right,
        right=contraction.left,
    )


def is_linear_in(factor: ir.TensorLoad, var: ir.Var, axes: Sequence[Axis]) -> bool:
    """Whether the place of a factor is found without divisions of what depends on a variable."""
    divided: list[ir.Expr] = []

    def visit(division: tirx.FloorDiv | tirx.FloorMod) -> None:
        if mentions(division, var):
            divided.append(division)

    place = within(_place(factor), axes)
    tvm_ffi.structural_walk(place, ((tirx.FloorDiv, tirx.FloorMod), visit))
    return not divided


def _place(load: ir.TensorLoad) -> ir.Expr:
    """The row-major number of an element."""
    return ravel(load.indices, [int(extent) for extent in load.source.ty.shape])


def within(expr: ir.Expr, axes: Sequence[Axis]) -> ir.Expr:
    """`expr` with what is known about the axes used."""
    analyzer = sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, ir.Range(0, max(axis.extent, 1)))
    return analyzer.simplify(expr)
