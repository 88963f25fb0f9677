"""Loops over neighbouring floats, written as vectors: a compiler finds few of them for Helium.

An element is computed as in the loop, and bits differ in one thing only: sums that stay in registers
add products without rounding them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.aot.emit_c.expressions import ExpressionWriter
from tvm_xengine.aot.emit_c.vectors.functions import LANES, VECTOR

_MOST_IN_REGISTERS = 6 * LANES
"""Floats of an array that lives in Helium's eight registers, which hold operands, too."""

_UNROLLED = 4 * LANES
"""A loop of so many elements, or fewer, is written without a loop; chosen."""

Memory = Mapping[ir.Var, ir.Var]
"""The buffer that has the bytes of each buffer which is a view of another one."""


@dataclass(frozen=True)
class VectorLoop:
    """A loop whose iterations are independent, and read and write neighbouring floats.

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
        return sym.Analyzer().simplify(_with(index, {self.loop.loop_var: start}))

    @property
    def accesses(self) -> Iterator[tuple[ir.Var, ir.Expr]]:
        """Buffers and indices of what its stores touch."""
        for store in self.stores:
            yield store.buffer, store.indices[0]
            for load in _loads(store.value):
                yield load.source, load.indices[0]


def read_vector_loop(loop: tirx.For, memory: Memory) -> VectorLoop | None:
    """The loop as vectors, None where it is none."""
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
            value = _with(stmt.value, inlined)
            if _mentions(value, lane):
                inlined[stmt.var] = value
            elif stores:
                return None
            else:
                before.append(stmt)
        elif isinstance(stmt, tirx.BufferStore):
            (index,) = stmt.indices
            value, index = _with(stmt.value, inlined), _with(index, inlined)
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
        return self._is_contiguous(store.buffer, store.indices) and self.is_vector(store.value)

    def reads_apart(self, expr: ir.Expr) -> bool:
        """Whether an expression reads nothing that the loop writes."""
        return not any(self._root(load.source) in self.stored for load in _loads(expr))

    def is_vector(self, expr: ir.Expr) -> bool:
        if str(expr.ty.dtype) != "float32":
            return False
        if not _mentions(expr, self.lane):
            return self.reads_apart(expr)
        match expr:
            case ir.TensorLoad():
                return self._is_vector_load(expr)
            case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.Max() | tirx.Min():
                return self.is_vector(expr.a) and self.is_vector(expr.b)
            case tirx.Select():
                return self._is_choice(expr.condition, expr.true_value, expr.false_value)
            case ir.Call() if _is_branch(expr):
                condition, *values = expr.args
                # A branch may guard what it reads; what its condition reads is there.
                known = _loads(condition)
                is_free = all(
                    any(tvm_ffi.structural_equal(load, one) for one in known)
                    for value in values
                    for load in _loads(value)
                )
                return is_free and self._is_choice(condition, *values)
        return False

    def _is_choice(self, condition: ir.Expr, yes: ir.Expr, no: ir.Expr) -> bool:
        is_comparison = isinstance(
            condition, (tirx.GT, tirx.GE, tirx.LT, tirx.LE, tirx.EQ, tirx.NE)
        )
        return is_comparison and all(
            self.is_vector(part) for part in (condition.a, condition.b, yes, no)
        )

    def _is_vector_load(self, load: ir.TensorLoad) -> bool:
        store = self.stored.get(self._root(load.source))
        if store is not None and not tvm_ffi.structural_equal(load.indices, store.indices):
            return False
        return self._is_contiguous(load.source, load.indices)

    def _is_contiguous(self, buffer: ir.Var, indices: Sequence[ir.Expr]) -> bool:
        if str(buffer.ty.dtype.dtype) != "float32" or len(indices) != 1:
            return False
        rest = sym.Analyzer().simplify(indices[0] - self.lane)
        return not _mentions(rest, self.lane)

    def _root(self, buffer: ir.Var) -> ir.Var:
        return self.memory.get(buffer, buffer)


def in_registers(
    body: tirx.Stmt, loops: Mapping[tirx.For, VectorLoop], memory: Memory
) -> set[ir.Var]:
    """Local arrays that can be vector variables: written by unrolled vectors, and read at constants."""
    arrays: set[ir.Var] = set()

    def allocated(stmt: tirx.AllocBuffer) -> None:
        (size, *_) = (int(extent) for extent in stmt.buffer.ty.shape)
        is_float = str(stmt.buffer.ty.dtype.dtype) == "float32"
        if is_float and size % LANES == 0 and size <= _MOST_IN_REGISTERS:
            arrays.add(stmt.buffer)

    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, allocated))
    arrays -= {base for view, base in memory.items() if view.ty.dtype != base.ty.dtype}
    for vectors in loops.values():
        for buffer, index in vectors.accesses:
            if not _is_register(vectors, index):
                arrays.discard(memory.get(buffer, buffer))
    for stmt in _outside(body, loops):
        if isinstance(stmt, tirx.BufferStore):
            arrays.discard(memory.get(stmt.buffer, stmt.buffer))
        for load in _loads(stmt):
            if not isinstance(load.indices[0], tirx.IntImm):
                arrays.discard(memory.get(load.source, load.source))
    return arrays if loops else set()


def _is_register(vectors: VectorLoop, index: ir.Expr) -> bool:
    """Whether an index names whole registers, known now."""
    first = vectors.index(index, 0)
    is_vector = vectors.is_unrolled and _mentions(index, vectors.loop.loop_var)
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


class VectorWriter:
    """Writes the stores of a vector loop.

    Parameters
    ----------
    registers
        The variables of the arrays that live in registers.
    operands
        Variables for what several products of a block read: GCC loads a number once more for each.
    """

    def __init__(
        self,
        vectors: VectorLoop,
        scalars: ExpressionWriter,
        registers: Mapping[ir.Var, Sequence[str]],
        operands: dict[str, str],
    ) -> None:
        self._vectors = vectors
        self._scalars = scalars
        self._registers = registers
        self._operands = operands

    def store(self, store: tirx.BufferStore, first: int | None) -> str:
        """The statement that stores four elements: from `first`, or from the variable of the loop."""
        (index,) = store.indices
        value = self._sum(store, first) or self._write(store.value, first)
        if store.buffer in self._registers:
            return f"{self._place(store.buffer, index, first)} = {value};"
        return f"{self._name('store')}(&{self._place(store.buffer, index, first)}, {value});"

    def _sum(self, store: tirx.BufferStore, first: int | None) -> str | None:
        """A product that is added to a register."""
        value = store.value
        if store.buffer not in self._registers or not isinstance(value, tirx.Add):
            return None
        for old, added in ((value.a, value.b), (value.b, value.a)):
            if not isinstance(added, tirx.Mul) or not _is_old(store, old):
                continue
            a, b = added.a, added.b
            if self._is_scalar(a):
                a, b = b, a
            name = "add_scaled" if self._is_scalar(b) else "add_product"
            place = self._place(store.buffer, store.indices[0], first)
            given = ", ".join(self._operand(part, first) for part in (a, b))
            return f"{self._name(name)}({place}, {given})"
        return None

    def _operand(self, expr: ir.Expr, first: int | None) -> str:
        is_scalar = self._is_scalar(expr)
        text = self._scalars.write(expr) if is_scalar else self._write(expr, first)
        if text not in self._operands:
            kind, wish = ("float", "factor") if is_scalar else (VECTOR, "vector")
            self._operands[text] = self._scalars.names.fresh(wish)
            self._scalars.lines.append(f"const {kind} {self._operands[text]} = {text};")
        return self._operands[text]

    def _write(self, expr: ir.Expr, first: int | None) -> str:
        if self._is_scalar(expr):
            return f"{self._name('all')}({self._scalars.write(expr)})"
        match expr:
            case ir.TensorLoad():
                place = self._place(expr.source, expr.indices[0], first)
                return (
                    place if expr.source in self._registers else f"{self._name('load')}(&{place})"
                )
            case tirx.Mul() if self._is_scalar(expr.a) or self._is_scalar(expr.b):
                a, b = (expr.b, expr.a) if self._is_scalar(expr.a) else (expr.a, expr.b)
                return f"{self._name('scale')}({self._write(a, first)}, {self._scalars.write(b)})"
            case tirx.Add() | tirx.Sub() | tirx.Mul():
                name = type(expr).__name__.lower()
                return self._call(name, (expr.a, expr.b), first)
            case tirx.Max():  # as `xe_maxf`, whatever compares with a NaN
                return self._call("if_gt", (expr.a, expr.b, expr.a, expr.b), first)
            case tirx.Min():
                return self._call("if_gt", (expr.b, expr.a, expr.a, expr.b), first)
            case tirx.Select():
                return self._choice(first, expr.condition, expr.true_value, expr.false_value)
        return self._choice(first, *expr.args)

    def _choice(self, first: int | None, test: ir.Expr, yes: ir.Expr, no: ir.Expr) -> str:
        a, b = test.a, test.b
        match test:
            case tirx.GT() | tirx.LT():
                name = "if_gt"
            case tirx.GE() | tirx.LE():
                name = "if_ge"
            case _:
                name = "if_eq"
        if isinstance(test, (tirx.LT, tirx.LE)):
            a, b = b, a
        if isinstance(test, tirx.NE):
            yes, no = no, yes
        return self._call(name, (a, b, yes, no), first)

    def _call(self, name: str, args: Sequence[ir.Expr], first: int | None) -> str:
        return f"{self._name(name)}({', '.join(self._write(arg, first) for arg in args)})"

    def _place(self, buffer: ir.Var, index: ir.Expr, first: int | None) -> str:
        here = index if first is None else self._vectors.index(index, first)
        if buffer in self._registers:
            return self._registers[buffer][int(here) // LANES]
        return self._scalars.element(buffer, here)

    def _is_scalar(self, expr: ir.Expr) -> bool:
        return not _mentions(expr, self._vectors.loop.loop_var)

    def _name(self, name: str) -> str:
        self._scalars.helper(VECTOR)
        return self._scalars.helper(f"{VECTOR}_{name}")


def _is_old(store: tirx.BufferStore, value: ir.Expr) -> bool:
    """Whether a value is what a store replaces."""
    return (
        isinstance(value, ir.TensorLoad)
        and value.source.same_as(store.buffer)
        and bool(tvm_ffi.structural_equal(value.indices, store.indices))
    )


def _is_branch(call: ir.Call) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name == "prim.if_then_else"


def _with(expr: ir.Expr, values: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
    return tvm_ffi.structural_map(expr, (ir.Var, lambda var: values.get(var, var)))


def _loads(part: ir.Expr | tirx.Stmt) -> list[ir.TensorLoad]:
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(part, (ir.TensorLoad, found.append))
    return found


def _mentions(expr: ir.Expr, var: ir.Var) -> bool:
    return any(used.same_as(var) for used in tirx.analysis.undefined_vars(expr))
