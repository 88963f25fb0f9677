"""Loops that fold the terms of sums in vector registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import (
    Accumulation,
    readable_extent,
    shares_a_load,
    substitute,
)
from tvm_xengine.kernels.schedules.blocks import Axis, Block
from tvm_xengine.kernels.schedules.loops import ForKind, loop, nest, sequence

_VECTORS_PER_SUM = 4
"""Sums that do not wait for each other: the latency of an addition in cycles."""

_BRANCHING_LANES = 128
"""Numbers between two looks at a condition; chosen."""

_SHORT_LOOP = 16
"""LLVM's ``vectorizer-min-trip-count``."""

_SUMS_AT_ONCE = 10
"""Sums of a tile that stay in the 16 vector registers of AVX2 together with their operands."""

_LONG_SUM = 64
"""Terms that are added up in turn: the sum is at most so many roundings (4e-6) off; chosen."""

_SHORT_ROW = 5
"""Terms that are written one after another: rows of the windows that networks have; chosen."""

Values = Mapping[ir.Var, ir.Expr]


def over(
    axes: Sequence[Axis], at: Values, body: Callable[[Values], tirx.Stmt], dtype: str
) -> tirx.Stmt:
    """Loops over axes, inside which `body` is given the positions of all."""
    return nest(
        [axis.extent for axis in axes],
        lambda i: body({**at, **{a.var: p for a, p in zip(axes, i, strict=True)}}),
        "i",
        dtype,
    )


def in_pieces(
    axes: Sequence[Axis], at: Values, body: Callable[[Values], tirx.Stmt], dtype: str
) -> tirx.Stmt:
    """Like `over` for one axis at most, in powers of two where it is short.

    LLVM vectorises no loop with fewer than `_SHORT_LOOP` iterations that would leave some over.
    """
    if not axes or axes[0].extent >= _SHORT_LOOP:
        return over(axes, at, body, dtype)
    (axis,) = axes

    def piece(first: int, extent: int) -> tirx.Stmt:
        start = tirx.const(first, dtype)
        stmt = loop(extent, lambda i: body({**at, axis.var: start + i}), "i", dtype=dtype)
        return _with_own_names(stmt)

    pieces, first = [], 0
    for extent in (8, 4, 2, 1):
        for _ in range((axis.extent - first) // extent):
            pieces.append(piece(first, extent))
            first += extent
    return sequence(pieces)


def _with_own_names(stmt: tirx.Stmt) -> tirx.Stmt:
    """The same statement with new variables where it binds some: each may be bound once."""
    own: dict[ir.Var, ir.Var] = {}

    def rename(bind: tirx.Bind) -> None:
        own[bind.var] = ir.Var(bind.var.name, bind.var.ty)

    tvm_ffi.structural_walk(stmt, (tirx.Bind, rename))
    return tvm_ffi.structural_map(
        stmt,
        [
            (ir.Var, lambda var: own.get(var, var)),
            (tirx.Bind, lambda bind: tirx.Bind(own.get(bind.var, bind.var), bind.value, bind.span)),
        ],
    )


def counts_one_by_one(fold: Accumulation, vector_bytes: int) -> bool:
    """Whether integers are folded without vectors: in any order, neighbours or not."""
    return "int" in fold.dtype and vector_bytes <= fold.itemsize


class FoldWriter:
    """Writes the loops of one block that folds terms.

    Parameters
    ----------
    dtype
        Of positions.
    vector_bytes
        Of a register.
    as_written
        Whether integers run in the loops that are written here: LLVM unrolls and masks some itself.
    """

    def __init__(
        self,
        block: Block,
        fold: Accumulation,
        dtype: str,
        vector_bytes: int,
        *,
        as_written: bool = False,
    ) -> None:
        self.block = block
        self.fold = fold
        self.dtype = dtype
        self._lanes_of_register = max(vector_bytes // fold.itemsize, 1)
        self._is_scalar = counts_one_by_one(fold, vector_bytes)
        self._as_written = as_written and "int" in fold.dtype
        # Some registers full, or a long row for LLVM to mask.
        self._most = (
            _BRANCHING_LANES if fold.branches else self._lanes_of_register * _VECTORS_PER_SUM
        )

    def sharing_axes(self, axes: Sequence[Axis]) -> list[Axis]:
        """The last axes, of few positions, whose elements are sums with a factor in common."""
        chosen: list[Axis] = []
        for axis in reversed(axes):
            beside = _positions_of([axis, *chosen])
            if beside > _SUMS_AT_ONCE or not shares_a_load(self.fold.term, axis.var):
                break
            chosen.insert(0, axis)
        return chosen

    def over_lanes(self, at: Values, beside: Sequence[Axis]) -> tirx.Stmt:
        """Fold an element, or those of the axes `beside` at once, over lanes of the innermost axis."""
        most = max(self._lanes_of_register, self._most // max(1, _positions_of(beside)))
        lanes = _largest_power(min(most, self.block.summed[-1].extent))
        return _LaneSums(self, at, lanes, beside).write()

    def one_by_one(self, at: Values) -> tirx.Stmt:
        """Fold an element, term by term."""
        return _LaneSums(self, at, 1, ()).write()

    def side_by_side(self, at: Values, axis: Axis) -> tirx.Stmt:
        """Fold neighbouring elements in the lanes of one register."""
        most = self._most
        whole = axis.extent // most

        def piece(first: ir.Expr, lanes: int, stored: int) -> tirx.Stmt:
            return self._neighbours(at, axis, first, lanes, stored)

        stmts = [self.loop(whole, lambda c: piece(c * most, most, most), "chunk")] if whole else []
        rest = axis.extent - whole * most
        at_once = min(most, 1 << (rest - 1).bit_length()) if rest else 0
        if self._as_written:
            at_once = -(-rest // self._lanes_of_register) * self._lanes_of_register
        start = tirx.const(whole * most, self.dtype)
        if rest and not self.fold.branches and whole * most + at_once <= self._readable():
            # One register that is not full costs less than several smaller ones.
            return sequence([*stmts, piece(start, at_once, rest)])
        stmts += [
            piece(tirx.const(first, self.dtype), lanes, lanes)
            for first, lanes in _powers(whole * most, axis.extent)
        ]
        return sequence(stmts)

    def _neighbours(
        self, at: Values, axis: Axis, first: ir.Expr, lanes: int, stored: int
    ) -> tirx.Stmt:
        """Fold `lanes` neighbouring elements from `first`, and store the first `stored` of them."""
        fold = self.fold
        parts = tirx.decl_buffer((lanes,), fold.dtype, name="parts")

        def add(here: Values) -> tirx.Stmt:
            def one(lane: ir.Expr) -> tirx.Stmt:
                term = substitute(fold.term, {**here, axis.var: first + lane})
                return tirx.BufferStore(parts, fold.fold(parts[lane], term), [lane])

            return self.lanes(lanes, one)

        def start(lane: ir.Expr) -> tirx.Stmt:
            value = substitute(fold.start, {**at, axis.var: first + lane})
            return tirx.BufferStore(parts, value, [lane])

        def store(lane: ir.Expr) -> tirx.Stmt:
            index = [substitute(i, {**at, axis.var: first + lane}) for i in fold.index]
            return tirx.BufferStore(fold.buffer, parts[lane], index)

        def stored_from(place: int, width: int) -> tirx.Stmt:
            return self.lanes(width, lambda lane: store(place + lane))

        return sequence(
            [
                tirx.AllocBuffer(parts),
                self.lanes(lanes, start),
                self._over_terms(at, add),
                *(stored_from(*run) for run in _powers(0, stored)),
            ]
        )

    def _over_terms(self, at: Values, body: Callable[[Values], tirx.Stmt]) -> tirx.Stmt:
        """Loops over the terms; short rows of them without a loop where elements share what they read."""
        *outer, last = self.block.summed
        if not (self._is_scalar or self._as_written) or last.extent > _SHORT_ROW:
            return over(self.block.summed, at, body, self.dtype)

        def row(here: Values) -> tirx.Stmt:
            places = (tirx.const(k, self.dtype) for k in range(last.extent))
            return sequence([body({**here, last.var: k}) for k in places])

        return over(outer, at, row, self.dtype)

    def _readable(self) -> int:
        """Positions of the last spatial axis at which the term may be read, also behind its end."""
        block = self.block
        return readable_extent(self.fold.term, block.spatial[-1], (*block.spatial, *block.summed))

    def lanes(self, lanes: int, body: Callable[[ir.Expr], tirx.Stmt]) -> tirx.Stmt:
        """Run `body` for every lane: as vectors, one by one without any, or as a loop for LLVM's masks."""
        kind = ForKind.UNROLLED if self._is_scalar else ForKind.VECTORIZED
        return self.loop(lanes, body, "lane", ForKind.SERIAL if self.fold.branches else kind)

    def loop(
        self,
        extent: int,
        body: Callable[[ir.Expr], tirx.Stmt],
        name: str,
        kind: ForKind = ForKind.SERIAL,
    ) -> tirx.Stmt:
        """A loop over positions."""
        return loop(extent, body, name, kind, dtype=self.dtype)


class _LaneSums:
    """Folds elements in `lanes` parts, each over every `lanes`-th of the innermost axis.

    Parameters
    ----------
    beside
        Axes of the elements that are folded at once.
    """

    def __init__(self, writer: FoldWriter, at: Values, lanes: int, beside: Sequence[Axis]) -> None:
        self._writer = writer
        self._fold = writer.fold
        self._at = at
        self._lanes = lanes
        self._sums = list(_places(beside))
        self._parts = tirx.decl_buffer((len(self._sums) * lanes,), self._fold.dtype, name="parts")
        self._whole = tirx.decl_buffer((1,), self._fold.dtype, name="whole")

    def write(self) -> tirx.Stmt:
        outer, sums = self._writer.block.summed[:-1], range(len(self._sums))
        allocated = [tirx.AllocBuffer(self._parts), tirx.AllocBuffer(self._whole)]
        if self._lanes == len(sums) == 1 and _positions_of(outer) > 1 and self._is_long():
            return sequence([*allocated, *self._by_rows(outer)])
        return sequence(
            [
                *allocated,
                *(self._cleared(number) for number in sums),
                over(outer, self._at, self._innermost, self._writer.dtype),
                *(stmt for number in sums for stmt in self._joined(number)),
            ]
        )

    def _is_long(self) -> bool:
        last = self._writer.block.summed[-1]
        return last.extent > 1 and _positions_of(self._writer.block.summed) > _LONG_SUM

    def _by_rows(self, outer: Sequence[Axis]) -> list[tirx.Stmt]:
        """Each run of the innermost axis is folded by itself: one long sum in turn rounds more."""
        fold = self._fold
        joined = fold.fold(self._whole[0], self._parts[0])

        def row(here: Values) -> tirx.Stmt:
            add = tirx.BufferStore(self._whole, joined, [0])
            return sequence([self._cleared(0), self._innermost(here), add])

        return [
            tirx.BufferStore(self._whole, substitute(fold.start, self._at), [0]),
            over(outer, self._at, row, self._writer.dtype),
            tirx.BufferStore(
                fold.buffer, self._whole[0], [substitute(i, self._at) for i in fold.index]
            ),
        ]

    def _cleared(self, number: int) -> tirx.Stmt:
        start = substitute(self._fold.start, {**self._at, **self._sums[number]})
        first = number * self._lanes
        return self._writer.lanes(
            self._lanes, lambda lane: tirx.BufferStore(self._parts, start, [first + lane])
        )

    def _innermost(self, here: Values) -> tirx.Stmt:
        extent, lanes = self._writer.block.summed[-1].extent, self._lanes
        whole_chunks = extent // lanes
        chunks = self._writer.loop(
            whole_chunks, lambda c: self._piece(here, c * lanes, lanes), "chunk"
        )
        rest = [
            self._piece(here, tirx.const(first, self._writer.dtype), width)
            for first, width in _powers(whole_chunks * lanes, extent)
        ]
        return sequence([chunks, *rest])

    def _piece(self, here: Values, first: ir.Expr, width: int) -> tirx.Stmt:
        def of_sum(number: int) -> tirx.Stmt:
            return self._writer.lanes(
                width, lambda lane: self._add(here, number, first + lane, lane)
            )

        return sequence([of_sum(number) for number in range(len(self._sums))])

    def _add(self, here: Values, number: int, position: ir.Expr, lane: ir.Expr) -> tirx.Stmt:
        last = self._writer.block.summed[-1]
        term = substitute(self._fold.term, {**here, **self._sums[number], last.var: position})
        place = number * self._lanes + lane
        return tirx.BufferStore(self._parts, self._fold.fold(self._parts[place], term), [place])

    def _joined(self, number: int) -> list[tirx.Stmt]:
        fold, here = self._fold, {**self._at, **self._sums[number]}

        def join(lane: ir.Expr) -> tirx.Stmt:
            part = self._parts[number * self._lanes + lane]
            return tirx.BufferStore(self._whole, fold.fold(self._whole[0], part), [0])

        kind = ForKind.SERIAL if fold.branches else ForKind.UNROLLED
        index = [substitute(i, here) for i in fold.index]
        return [
            tirx.BufferStore(self._whole, substitute(fold.start, here), [0]),
            self._writer.loop(self._lanes, join, "lane", kind),
            tirx.BufferStore(fold.buffer, self._whole[0], index),
        ]


def _powers(first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut ``first .. stop`` into pieces whose lengths are powers of two: (start, length)."""
    while first < stop:
        length = _largest_power(stop - first)
        yield first, length
        first += length


def _positions_of(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def _places(axes: Sequence[Axis]) -> Iterator[dict[ir.Var, ir.Expr]]:
    """Every position of some axes."""
    for place in itertools.product(*(range(axis.extent) for axis in axes)):
        yield {
            axis.var: tirx.const(i, str(axis.var.ty.dtype))
            for axis, i in zip(axes, place, strict=True)
        }


def _largest_power(limit: int) -> int:
    return 1 << (limit.bit_length() - 1)
