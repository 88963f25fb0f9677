"""Loops over neighbouring numbers, written as vectors: a compiler finds few of them for Helium.

Vectors hold float32 or int32; bytes are widened as they are loaded, and narrowed as they are stored. An
element is computed as in the loop, and bits differ in one thing only: sums of floats that stay in
registers add products without rounding them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.aot.emit_c.expressions import is_small_and_rounded
from tvm_xengine.aot.emit_c.vectors.functions import LANES, VECTOR

_MOST_IN_REGISTERS = 6 * LANES
"""Numbers of an array that lives in Helium's eight registers, which hold operands, too."""

_UNROLLED = 4 * LANES
"""A loop of so many elements, or fewer, is written without a loop; chosen."""

Part = TypeVar("Part", ir.Expr, tirx.Stmt)

Memory = Mapping[ir.Var, ir.Var]
"""The buffer that has the bytes of each buffer which is a view of another one."""


@dataclass(frozen=True)
class VectorLoop:
    """A loop whose iterations are independent, and write neighbouring numbers.

    Attributes
    ----------
    before
        What is the same in every iteration.
    stores
        What each stores.
    """

    loop: tirx.For
    before: tuple[tirx.Bind, ...]
    stores: tuple[tirx.BufferStore, ...]

    @cached_property
    def extent(self) -> int:
        """Number of elements."""
        return int(self.loop.extent)

    @property
    def is_unrolled(self) -> bool:
        """Whether it is written as a few statements."""
        return self.extent <= _UNROLLED and self.extent % LANES == 0

    def index(self, index: ir.Expr, first: int) -> ir.Expr:
        """An index at the element `first`."""
        start = tirx.const(first, str(self.loop.loop_var.ty.dtype))
        return sym.Analyzer().simplify(with_values(index, {self.loop.loop_var: start}))

    @property
    def accesses(self) -> Iterator[tuple[ir.Var, ir.Expr]]:
        """Buffers and indices of what its stores touch."""
        for store in self.stores:
            yield store.buffer, store.indices[0]
            for load in loads(store.value):
                yield load.source, load.indices[0]


def read_vector_loop(loop: tirx.For, memory: Memory) -> VectorLoop | None:
    """The loop as vectors, None where it is none."""
    loop = flattened(loop)
    extents = (loop.min, loop.extent)
    if not all(isinstance(part, tirx.IntImm) for part in extents) or loop.step is not None:
        return None
    if int(loop.min) or int(loop.extent) < LANES:
        return None
    lane = loop.loop_var
    before: list[tirx.Bind] = []
    stores: list[tirx.BufferStore] = []
    inlined: dict[ir.Var, ir.Expr] = {}
    body = loop.body.seq if isinstance(loop.body, tirx.SeqStmt) else [loop.body]
    for stmt in body:
        if isinstance(stmt, tirx.Bind):
            value = with_values(stmt.value, inlined)
            if mentions(value, lane):
                inlined[stmt.var] = value
            elif stores:
                return None
            else:
                before.append(stmt)
        elif isinstance(stmt, tirx.BufferStore):
            (index,) = stmt.indices
            value, index = with_values(stmt.value, inlined), with_values(index, inlined)
            stores.append(tirx.BufferStore(stmt.buffer, value, [index]))
        else:
            return None
    stored = {memory.get(store.buffer, store.buffer): store for store in stores}
    if not stores or len(stored) < len(stores):
        return None
    reader = _Reader(lane, memory, stored)
    if not all(reader.is_vector_store(store) for store in stores):
        return None
    if not all(reader.reads_apart(bind.value) for bind in before):
        return None
    return VectorLoop(loop, tuple(before), tuple(stores))


@dataclass(frozen=True)
class _Reader:
    """Says what of a loop can be computed in vectors."""

    lane: ir.Var
    memory: Memory
    stored: Mapping[ir.Var, tirx.BufferStore]

    def is_vector_store(self, store: tirx.BufferStore) -> bool:
        value = store.value
        if element_type(store.buffer) == "int8":
            if not isinstance(value, tirx.Cast) or not mentions(value, self.lane):
                return False
            is_integer = str(value.value.ty.dtype) == "int32"
            is_even = self._step(store.indices) is not None
            return is_integer and is_even and self.is_vector(value.value)
        is_vector = element_type(store.buffer) in VECTOR
        return is_vector and self._step(store.indices) == 1 and self.is_vector(value)

    def reads_apart(self, expr: ir.Expr) -> bool:
        """Whether an expression reads nothing that the loop writes."""
        return not any(self._root(load.source) in self.stored for load in loads(expr))

    def is_vector(self, expr: ir.Expr) -> bool:
        if str(expr.ty.dtype) not in VECTOR:
            return False
        if not mentions(expr, self.lane):
            return self.reads_apart(expr)
        match expr:
            case ir.TensorLoad():
                return self._is_vector_load(expr) and self._step(expr.indices) == 1
            case tirx.Add() | tirx.Sub() | tirx.Mul():
                return self.is_vector(expr.a) and self.is_vector(expr.b)
            case tirx.Max() | tirx.Min() if str(expr.ty.dtype) == "float32":
                return self.is_vector(expr.a) and self.is_vector(expr.b)
            case tirx.Cast():
                return self._is_vector_cast(expr)
            case tirx.Select():
                return self._is_choice(expr.condition, expr.true_value, expr.false_value)
            case ir.Call() if _is_branch(expr):
                condition, *values = expr.args
                # A branch may guard what it reads; what its condition reads is there.
                known = loads(condition)
                is_free = all(
                    any(tvm_ffi.structural_equal(load, one) for one in known)
                    for value in values
                    for load in loads(value)
                )
                return is_free and self._is_choice(condition, *values)
        return False

    def _is_choice(self, condition: ir.Expr, yes: ir.Expr, no: ir.Expr) -> bool:
        if not isinstance(condition, (tirx.GT, tirx.GE, tirx.LT, tirx.LE, tirx.EQ, tirx.NE)):
            return False
        parts = (condition.a, condition.b, yes, no)
        return all(str(part.ty.dtype) == "float32" and self.is_vector(part) for part in parts)

    def _is_vector_cast(self, cast: tirx.Cast) -> bool:
        """Whether a vector is made of bytes, a number of floats that are rounded, or floats of integers."""
        value, made = cast.value, str(cast.ty.dtype)
        match str(value.ty.dtype), made:
            case "int8", "int32":
                is_load = isinstance(value, ir.TensorLoad) and self._is_vector_load(value)
                return is_load and self._step(value.indices) is not None
            case "float32", "int32":
                return is_small_and_rounded(value) and self.is_vector(value.args[-1])
            case "int32", "float32":
                return self.is_vector(value)
        return False

    def _is_vector_load(self, load: ir.TensorLoad) -> bool:
        """Whether the loop leaves alone what an element reads, up to that element."""
        store = self.stored.get(self._root(load.source))
        return store is None or (
            tvm_ffi.structural_equal(load.indices, store.indices)
            and element_type(load.source) == element_type(store.buffer)
        )

    def _step(self, indices: Sequence[ir.Expr]) -> int | None:
        return step_of(indices[0], self.lane) if len(indices) == 1 else None

    def _root(self, buffer: ir.Var) -> ir.Var:
        return self.memory.get(buffer, buffer)


def in_registers(
    body: tirx.Stmt, loops: Mapping[tirx.For, VectorLoop], memory: Memory
) -> set[ir.Var]:
    """Local arrays that can be vector variables: written by unrolled vectors, and read at constants."""
    arrays: set[ir.Var] = set()

    def allocated(stmt: tirx.AllocBuffer) -> None:
        (size, *_) = (int(extent) for extent in stmt.buffer.ty.shape)
        is_vector = element_type(stmt.buffer) in VECTOR
        if is_vector and size % LANES == 0 and size <= _MOST_IN_REGISTERS:
            arrays.add(stmt.buffer)

    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, allocated))
    arrays -= {base for view, base in memory.items() if view.ty.dtype != base.ty.dtype}

    def shown(call: ir.Call) -> None:
        if isinstance(call.op, ir.Op) and call.op.name == "tirx.address_of":
            arrays.discard(memory.get(call.args[0].source, call.args[0].source))

    tvm_ffi.structural_walk(body, (ir.Call, shown))
    for vectors in loops.values():
        for buffer, index in vectors.accesses:
            if not _is_register(vectors, index):
                arrays.discard(memory.get(buffer, buffer))
    for stmt in _outside(body, loops):
        if isinstance(stmt, tirx.BufferStore):
            arrays.discard(memory.get(stmt.buffer, stmt.buffer))
        for load in loads(stmt):
            if not isinstance(load.indices[0], tirx.IntImm):
                arrays.discard(memory.get(load.source, load.source))
    return arrays if loops else set()


def _is_register(vectors: VectorLoop, index: ir.Expr) -> bool:
    """Whether an index names whole registers, known now."""
    first = vectors.index(index, 0)
    is_vector = vectors.is_unrolled and mentions(index, vectors.loop.loop_var)
    return is_vector and isinstance(first, tirx.IntImm) and int(first) % LANES == 0


def _outside(stmt: tirx.Stmt, loops: Mapping[tirx.For, VectorLoop]) -> Iterator[ir.Expr]:
    """Statements and expressions that are not in a vector loop."""
    match stmt:
        case tirx.For() if stmt in loops:
            yield from (bind.value for bind in loops[stmt].before)
        case tirx.For():
            yield stmt.extent
            yield from _outside(stmt.body, loops)
        case tirx.SeqStmt():
            for child in stmt.seq:
                yield from _outside(child, loops)
        case tirx.IfThenElse():
            yield stmt.condition
            yield from _outside(stmt.then_case, loops)
            if stmt.else_case is not None:
                yield from _outside(stmt.else_case, loops)
        case tirx.While():
            yield stmt.condition
            yield from _outside(stmt.body, loops)
        case tirx.AttrStmt():
            yield from _outside(stmt.body, loops)
        case _:
            yield stmt


def flattened(loop: tirx.For) -> tirx.For:
    """One loop for two, the inner one alone in the other, if what they touch goes on from row to row."""
    inner = without_binds(loop.body)
    if not isinstance(inner, tirx.For):
        return loop
    inner = flattened(inner)
    store, i, j = without_binds(inner.body), loop.loop_var, inner.loop_var
    extents = (loop.min, loop.extent, inner.min, inner.extent)
    if any((loop.step, inner.step)) or not all(isinstance(part, tirx.IntImm) for part in extents):
        return loop
    if int(loop.min) or int(inner.min) or not isinstance(store, tirx.BufferStore):
        return loop
    touched = [store.indices[0], *(load.indices[0] for load in loads(store.value))]
    bare = tvm_ffi.structural_map(store.value, (ir.TensorLoad, lambda load: load.source[0]))
    goes_on = all(_goes_on(index, i, j, int(inner.extent)) for index in touched)
    if not goes_on or mentions(bare, i) or mentions(bare, j):
        return loop
    body = with_values(store, {i: tirx.const(0, str(i.ty.dtype))})
    whole = tirx.const(int(loop.extent) * int(inner.extent), str(j.ty.dtype))
    return tirx.For(j, inner.min, whole, inner.kind, body)


def without_binds(body: tirx.Stmt) -> tirx.Stmt | None:
    """The only statement, with what is bound before it put in; None of several."""
    *before, last = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    values: dict[ir.Var, ir.Expr] = {}
    for bind in before:
        if not isinstance(bind, tirx.Bind):
            return None
        values[bind.var] = with_values(bind.value, values)
    return with_values(last, values)


def _goes_on(index: ir.Expr, outer: ir.Var, inner: ir.Var, extent: int) -> bool:
    if not mentions(index, outer) and not mentions(index, inner):
        return True
    step, row = step_of(index, inner), step_of(index, outer)
    return step is not None and row == step * extent


def element_type(buffer: ir.Var) -> str:
    """What a buffer holds."""
    return str(buffer.ty.dtype.dtype)


def step_of(index: ir.Expr, var: ir.Var) -> int | None:
    """By how much an index grows with a variable, None if not always by the same or not at all."""
    following = with_values(index, {var: var + 1})
    step = sym.Analyzer().simplify(following - index)
    return int(step) if isinstance(step, tirx.IntImm) and int(step) > 0 else None


def _is_branch(call: ir.Call) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name == "prim.if_then_else"


def with_values(part: Part, values: Mapping[ir.Var, ir.Expr]) -> Part:
    """An expression or statement with variables replaced."""
    return tvm_ffi.structural_map(part, (ir.Var, lambda var: values.get(var, var)))


def loads(part: ir.Expr | tirx.Stmt) -> list[ir.TensorLoad]:
    """What an expression or statement reads."""
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(part, (ir.TensorLoad, found.append))
    return found


def mentions(expr: ir.Expr, var: ir.Var) -> bool:
    """Whether an expression depends on a variable."""
    return any(used.same_as(var) for used in tirx.analysis.undefined_vars(expr))
