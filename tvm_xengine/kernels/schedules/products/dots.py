"""Products of int8 on small cores, written as dot products of neighbours.

Arm's cores add two products of 16 bits at once (SMLAD), Helium sixteen of 8 bits (VMLADAVA), if the terms
of a sum lie side by side in both factors. Weights do, and are read where they lie. The windows of an image
are copied, a few columns at a time, as the int8 that they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.accumulation import mentions, substitute
from tvm_xengine.kernels.schedules.blocks import Axis
from tvm_xengine.kernels.schedules.loops import ForKind, loop, nest, ravel, sequence, unravel
from tvm_xengine.kernels.schedules.padding import is_choice
from tvm_xengine.kernels.schedules.products.contraction import Contraction, Stored, size
from tvm_xengine.kernels.schedules.products.in_place import is_neighbour_in
from tvm_xengine.kernels.schedules.products.packing import Position
from tvm_xengine.kernels.targets import cpu_features

DOT_4 = "xe_dot4"
"""C function of a sum and two runs of four int8 that adds the products."""

DOT_RUNS = "xe_dots"
"""C functions, with their number behind the name, of an array of sums, runs of int8 a step apart, and one."""


_COPIES = 4
"""Bytes copied in one step of a loop, which itself takes as much as the copy of one or two; chosen."""


@dataclass(frozen=True)
class DotProduct:
    """How a core adds the products of two runs of int8.

    Attributes
    ----------
    terms
        Added at a time by `function`, or one by a multiplication where there is none.
    has_runs
        Whether `DOT_RUNS` makes whole sums instead.
    rows, columns
        Sums that it has registers for at once.
    """

    terms: int
    function: str | None
    has_runs: bool
    rows: int
    columns: int


def dot_product_of(target: Target) -> DotProduct:
    """What the cores of a target have."""
    features = cpu_features(target)
    if "mve.fp" in features:
        return DotProduct(16, None, True, 4, 1)
    if "dsp" in features:
        return DotProduct(4, DOT_4, False, 2, 2)
    return DotProduct(1, None, False, 4, 2)


def as_dot_products(
    contraction: Contraction, overwritten: Collection[ir.Var]
) -> Contraction | None:
    """The contraction of factors as they are stored, the left one with its terms side by side.

    None where that is not so for any, they are no int8, or one lies in what is `overwritten`.
    """
    factors = [
        factor.value
        for factor in (contraction.left, contraction.right)
        if isinstance(factor, tirx.Cast) and str(factor.value.ty.dtype) == "int8"
    ]
    loads: list[ir.TensorLoad] = []
    for factor in factors:
        tvm_ffi.structural_walk(factor, (ir.TensorLoad, loads.append))
    if len(factors) < 2 or contraction.dtype != "int32":
        return None
    if any(load.source in overwritten for load in loads):
        return None
    left, right = factors
    bare = dataclasses.replace(contraction, left=left, right=right)
    in_place = [is_neighbour_in(factor, bare.depth, bare) for factor in factors]
    if not any(in_place):
        return None
    if in_place[0] and not (in_place[1] and size(bare.rows) < size(bare.columns)):
        return bare
    return dataclasses.replace(bare, rows=bare.columns, columns=bare.rows, left=right, right=left)


def write_dot_products(
    contraction: Contraction, dot: DotProduct, overwritten: Collection[ir.Var]
) -> tirx.Stmt:
    """Loops for what `as_dot_products` returned.

    Where nothing that may be read is `overwritten`, a result may be computed twice.
    """
    return _Writer(contraction, dot, not overwritten).write()


class _Writer:
    def __init__(self, contraction: Contraction, dot: DotProduct, may_overlap: bool) -> None:
        self.c = contraction
        self.dot = dot
        self.rows, self.columns = size(contraction.rows), size(contraction.columns)
        self.depth = size(contraction.depth)
        self.index_dtype = str(contraction.depth[0].var.ty.dtype)
        is_even = not dot.has_runs or self._row_step is not None
        self.row_tile = _tile(self.rows, dot.rows if is_even else 1, may_overlap)
        self.column_tile = _tile(self.columns, dot.columns, may_overlap)
        self.right_in_place = is_neighbour_in(contraction.right, contraction.depth, contraction)

    @cached_property
    def packed(self) -> ir.Var:
        """Some columns of the right factor."""
        return tirx.decl_buffer((self.column_tile, self.depth), "int8", name="packed")

    @cached_property
    def sums(self) -> ir.Var:
        """The block of sums in registers."""
        return tirx.decl_buffer((self.row_tile * self.column_tile,), "int32", name="sums")

    @cached_property
    def _row_step(self) -> int | None:
        """Bytes from a row of the left factor to the next one, None if not always the same."""
        row = ir.Var("row", self.index_dtype)
        zero = tirx.const(0, self.index_dtype)
        extents = [int(extent) for extent in self.c.left.source.ty.shape]
        first, second = (
            ravel(self._left({}, place, zero).indices, extents) for place in (row, row + 1)
        )
        step = sym.Analyzer().simplify(second - first)
        return int(step) if isinstance(step, tirx.IntImm) else None

    def write(self) -> tirx.Stmt:
        product = nest(
            [axis.extent for axis in self.c.batch], self._one_product, "b", self.index_dtype
        )
        buffers = [self.sums] if self.right_in_place else [self.packed, self.sums]
        return sequence([*map(tirx.AllocBuffer, buffers), product])

    def _one_product(self, position: Sequence[ir.Expr]) -> tirx.Stmt:
        at = {axis.var: i for axis, i in zip(self.c.batch, position, strict=True)}

        def column_panel(panel: ir.Expr) -> tirx.Stmt:
            first = _first(panel, self.column_tile, self.columns)
            product = self._loop(
                -(-self.rows // self.row_tile),
                lambda row: self._one_tile(at, _first(row, self.row_tile, self.rows), first),
                "row_panel",
            )
            return product if self.right_in_place else sequence([self._pack(at, first), product])

        return self._loop(-(-self.columns // self.column_tile), column_panel, "column_panel")

    def _pack(self, at: Position, first: ir.Expr) -> tirx.Stmt:
        """Copy columns; what a condition depends on is looked at outside of the loops over the rest."""
        choice = self.c.right
        condition, inside, outside = choice.args if is_choice(choice) else (None, choice, choice)
        guarding = [axis for axis in self.c.depth if mentions(condition, axis.var)]
        free = [axis for axis in self.c.depth if axis not in guarding]

        def column(j: ir.Expr) -> tirx.Stmt:
            here = {**at, **unravel(first + j, self.c.columns)}

            def copied(value: ir.Expr, outer: Position) -> tirx.Stmt:
                def store(position: Sequence[ir.Expr]) -> tirx.Stmt:
                    k = {**outer, **_at(free, position)}
                    place = ravel(
                        [k[a.var] for a in self.c.depth], [a.extent for a in self.c.depth]
                    )
                    copy = substitute(value, {**here, **k})
                    return tirx.BufferStore(self.packed, copy, [j, place])

                return self._copies([axis.extent for axis in free], store)

            def guarded(position: Sequence[ir.Expr]) -> tirx.Stmt:
                outer = _at(guarding, position)
                if condition is None:
                    return copied(inside, outer)
                test = substitute(condition, {**here, **outer})
                return tirx.IfThenElse(test, copied(inside, outer), copied(outside, outer))

            return nest([axis.extent for axis in guarding], guarded, "g", self.index_dtype)

        return self._loop(self.column_tile, column, "j")

    def _copies(
        self, extents: Sequence[int], store: Callable[[Sequence[ir.Expr]], tirx.Stmt]
    ) -> tirx.Stmt:
        """Loops around copies of bytes, some in each step where their number allows it."""
        if not extents:
            return store([])
        together = 1 if self.dot.has_runs else math.gcd(extents[-1], _COPIES)

        def several(position: Sequence[ir.Expr]) -> tirx.Stmt:
            *outer, last = position
            return sequence([store([*outer, last * together + k]) for k in range(together)])

        outer = [*extents[:-1], extents[-1] // together]
        return nest(outer, several, "k", self.index_dtype)

    def _one_tile(self, at: Position, first_row: ir.Expr, first_column: ir.Expr) -> tirx.Stmt:
        sums = self._runs if self.dot.has_runs else self._terms
        store = self._stored_tile(at, first_row, first_column)
        return sequence([*sums(at, first_row, first_column), store])

    def _left(self, at: Position, row: ir.Expr, k: ir.Expr) -> ir.TensorLoad:
        return self._read(self.c.left, {**at, **unravel(row, self.c.rows)}, k)

    def _right(self, at: Position, first: ir.Expr, j: int, k: ir.Expr) -> ir.TensorLoad:
        if not self.right_in_place:
            return self.packed[j, k]
        return self._read(self.c.right, {**at, **unravel(first + j, self.c.columns)}, k)

    def _runs(self, at: Position, first_row: ir.Expr, first_column: ir.Expr) -> Sequence[tirx.Stmt]:
        """The sums of a column, whole ones at once."""
        zero, name = tirx.const(0, self.index_dtype), f"{DOT_RUNS}{self.row_tile}"
        runs = [
            self.sums[0],
            self._left(at, first_row, zero),
            self._right(at, first_column, 0, zero),
        ]
        numbers = [tirx.const(n, "int32") for n in (self.depth, self._row_step or 0)]
        places = map(tirx.address_of, runs)
        return [tirx.Evaluate(tirx.call_extern("int32", name, *places, *numbers))]

    def _terms(
        self, at: Position, first_row: ir.Expr, first_column: ir.Expr
    ) -> Sequence[tirx.Stmt]:
        """The sums of a tile, some terms in a step."""

        def add(k: ir.Expr, function: str | None) -> tirx.Stmt:
            def one(i: int, j: int) -> tirx.Stmt:
                place = i * self.column_tile + j
                a, b = self._left(at, first_row + i, k), self._right(at, first_column, j, k)
                old = self.sums[place]
                if function is None:
                    new = old + tirx.Cast(old.ty, a) * tirx.Cast(old.ty, b)
                else:
                    runs = (tirx.address_of(a), tirx.address_of(b))
                    new = tirx.call_pure_extern("int32", function, old, *runs)
                return tirx.BufferStore(self.sums, new, [place])

            return self._in_registers(one)

        terms = self.dot.terms
        whole = self.depth // terms
        steps = [self._loop(whole, lambda k: add(k * terms, self.dot.function), "k")]
        rest = range(whole * terms, self.depth)
        steps = steps * bool(whole)
        steps += [add(tirx.const(k, self.index_dtype), None) for k in rest]
        clear = self._in_registers(
            lambda i, j: tirx.BufferStore(
                self.sums, tirx.const(0, "int32"), [i * self.column_tile + j]
            )
        )
        return [clear, *steps]

    def _stored_tile(self, at: Position, first_row: ir.Expr, first_column: ir.Expr) -> tirx.Stmt:
        """Rows of one column as a vector, where the core has any."""
        if self.dot.has_runs and len(self.c.rows) == 1:
            return loop(
                self.row_tile,
                lambda lane: self._stored(at, first_row, first_column, lane, 0),
                "lane",
                ForKind.VECTORIZED,
                dtype=self.index_dtype,
            )
        return self._in_registers(lambda i, j: self._stored(at, first_row, first_column, i, j))

    def _read(self, factor: ir.TensorLoad, at: Position, k: ir.Expr) -> ir.TensorLoad:
        """A factor whose terms lie side by side, so that the last index may go on behind its row."""
        zero = tirx.const(0, self.index_dtype)
        first = substitute(factor, {**at, **{axis.var: zero for axis in self.c.depth}})
        *outer, last = first.indices
        return first.source[(*outer, last + k)]

    def _stored(
        self, at: Position, first_row: ir.Expr, first_column: ir.Expr, i: ir.Expr | int, j: int
    ) -> tirx.Stmt:
        c = self.c
        row, column = first_row + i, first_column + j
        here = {**at, **unravel(row, c.rows), **unravel(column, c.columns)}
        made = {c.product: self.sums[i * self.column_tile + j]}

        def stored(one: Stored) -> tirx.Stmt:
            there = one.at(here)
            return tirx.BufferStore(there.output, substitute(there.value, made), there.index)

        return sequence([stored(one) for one in c.stores])

    def _in_registers(self, body: Callable[[int, int], tirx.Stmt]) -> tirx.Stmt:
        tile = [(i, j) for i in range(self.row_tile) for j in range(self.column_tile)]
        return sequence([body(i, j) for i, j in tile])

    def _loop(self, extent: int, body: Callable[[ir.Expr], tirx.Stmt], name: str) -> tirx.Stmt:
        return loop(extent, body, name, dtype=self.index_dtype)


def _tile(extent: int, most: int, may_overlap: bool) -> int:
    """The tile of at most `most` rows that wastes least, the larger of equals.

    The last one ends with the last row, so it may compute some anew.
    """
    tiles = range(1, min(extent, most) + 1)
    usable = [tile for tile in tiles if may_overlap or extent % tile == 0]
    return min(usable, key=lambda tile: (-(-extent // tile) * (tile + 2), -tile))


def _first(panel: ir.Expr, tile: int, extent: int) -> ir.Expr:
    """The first row of a tile, so that the last one ends with the last row."""
    first = panel * tile
    return tirx.min(first, extent - tile) if extent % tile else first


def _at(axes: Sequence[Axis], position: Sequence[ir.Expr]) -> dict[ir.Var, ir.Expr]:
    return {axis.var: i for axis, i in zip(axes, position, strict=True)}
