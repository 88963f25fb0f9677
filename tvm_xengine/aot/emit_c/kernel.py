"""A lowered kernel as one C function without allocation, library or global."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.aot.emit_c.expressions import (
    ExpressionWriter,
    Names,
    dtype_of,
    without_parentheses,
)
from tvm_xengine.aot.emit_c.types_in_c import stored_type, value_type
from tvm_xengine.aot.emit_c.vectors.bytes_apart import ByteLoop, read_byte_loop
from tvm_xengine.aot.emit_c.vectors.functions import LANES, VECTOR, VECTOR_TYPES
from tvm_xengine.aot.emit_c.vectors.loops import (
    VectorLoop,
    in_registers,
    read_vector_loop,
)
from tvm_xengine.aot.emit_c.vectors.writer import VectorWriter
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.buffers import base_of, buffer_roots
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.targets import vector_bytes

_FLOAT_BYTES = 4
"""Of a float32, the only type of these vectors."""


@dataclass(frozen=True)
class CKernel:
    """The C source of one kernel.

    Attributes
    ----------
    name
        Of the C function.
    prototype
        Its declaration, without semicolon.
    source
        Its definition.
    arguments
        Positions, among ``(inputs..., outputs..., workspace)``, of the parameters that the C
        function takes: an output that lies over an input, and an input that nothing reads, have
        none.
    helpers
        Names of the shared helpers it calls.
    """

    name: str
    prototype: str
    source: str
    arguments: tuple[int, ...]
    helpers: frozenset[str]


def c_kernel(kernel: DeviceKernel, name: str) -> CKernel:
    """The C function `name` that computes what `kernel` does, bit by bit.

    Raises
    ------
    UnsupportedModuleError
        If the kernel contains something that has no form in C; it is named.
    """
    try:
        return _write(kernel, name)
    except UnsupportedModuleError as error:
        raise UnsupportedModuleError(f"kernel {kernel.name}: {error}") from error


def _write(kernel: DeviceKernel, name: str) -> CKernel:
    func = lower_intrinsics(kernel)
    roots, stored = _buffers_by_parameter(func)
    used = _used_parameters(func, roots)
    names, helpers = Names(), set[str]()
    names.taken.add(name)
    arguments, declared = [], []
    for position, param in enumerate(func.params):
        if param not in used:
            continue
        arguments.append(position)
        text = names.give(param)
        constant = "" if param in stored else "const "
        declared.append(f"{constant}{stored_type(_buffer_dtype(param))} *restrict {text}")
    memory = _views(func)
    loops = _vector_loops(func, memory) if _has_vectors(kernel.target) else {}
    arrays = in_registers(func.body, loops, memory)
    copies = _byte_loops(func, memory) if _has_vectors(kernel.target) else {}
    body = _StatementWriter(names, helpers, loops, copies, arrays)
    body.write(func.body)
    prototype = f"void {name}({', '.join(declared) or 'void'})"
    source = "\n".join([f"{prototype} {{", *(f"  {line}" for line in body.lines), "}"])
    return CKernel(name, prototype, source, tuple(arguments), frozenset(helpers))


def lower_intrinsics(kernel: DeviceKernel) -> tirx.PrimFunc:
    """The kernel's function with floor divisions turned into those of C."""
    module = tvm.IRModule({"kernel": kernel.func.with_attr("target", kernel.target)})
    passes = tvm.transform.Sequential([tirx.transform.LowerIntrin()])
    (func,) = passes(module).functions.values()
    return func


def _buffers_by_parameter(func: tirx.PrimFunc) -> tuple[dict[ir.Var, ir.Var], set[ir.Var]]:
    """The parameter or local array whose bytes each buffer shows, and those stored to."""
    roots = buffer_roots(func)
    stored: set[ir.Var] = set()

    def store(stmt: tirx.BufferStore) -> None:
        if stmt.buffer in roots:
            stored.add(roots[stmt.buffer])

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, store))
    return roots, stored


def _used_parameters(func: tirx.PrimFunc, roots: dict[ir.Var, ir.Var]) -> set[ir.Var]:
    used: set[ir.Var] = set()

    def touch(buffer: ir.Var) -> None:
        if buffer in roots:
            used.add(roots[buffer])

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, lambda stmt: touch(stmt.buffer)))
    tvm_ffi.structural_walk(func.body, (ir.TensorLoad, lambda load: touch(load.source)))
    return used


def _has_vectors(target: Target) -> bool:
    return vector_bytes(target) == LANES * _FLOAT_BYTES


def _views(func: tirx.PrimFunc) -> dict[ir.Var, ir.Var]:
    """The buffer that has the bytes of each view; parts of the workspace lie apart."""
    memory: dict[ir.Var, ir.Var] = {}

    def declare(stmt: tirx.DeclBuffer) -> None:
        base = base_of(stmt.data)
        if base is not None and _byte_offset(stmt.data) is None:
            memory[stmt.buffer] = memory.get(base, base)

    tvm_ffi.structural_walk(func.body, (tirx.DeclBuffer, declare))
    return memory


def _vector_loops(
    func: tirx.PrimFunc, memory: Mapping[ir.Var, ir.Var]
) -> dict[tirx.For, VectorLoop]:
    """The loops of a kernel that can be written as vectors."""
    found: dict[tirx.For, VectorLoop] = {}

    def visit(loop: tirx.For) -> None:
        if (vectors := read_vector_loop(loop, memory)) is not None:
            found[loop] = vectors

    tvm_ffi.structural_walk(func.body, (tirx.For, visit))
    return found


def _byte_loops(func: tirx.PrimFunc, memory: Mapping[ir.Var, ir.Var]) -> dict[tirx.For, ByteLoop]:
    """The loops of a kernel that copy bytes."""
    found: dict[tirx.For, ByteLoop] = {}

    def visit(loop: tirx.For) -> None:
        if (copied := read_byte_loop(loop, memory)) is not None:
            found[loop] = copied

    tvm_ffi.structural_walk(func.body, (tirx.For, visit))
    return found


def _buffer_dtype(buffer: ir.Var) -> str:
    return str(buffer.ty.dtype.dtype)


class _StatementWriter:
    def __init__(
        self,
        names: Names,
        helpers: set[str],
        vectors: Mapping[tirx.For, VectorLoop],
        copies: Mapping[tirx.For, ByteLoop],
        arrays: Set[ir.Var],
    ) -> None:
        self.names = names
        self.vectors = vectors
        self.bytes = copies
        self.arrays = arrays
        self.registers: dict[ir.Var, list[str]] = {}
        self.operands: dict[str, str] = {}
        self.expressions = ExpressionWriter(names, helpers, self.registers)
        self.lines: list[str] = []

    def write(self, stmt: tirx.Stmt) -> None:
        """Append `stmt`."""
        if not isinstance(stmt, tirx.Bind) and not self._adds_to_registers(stmt):
            self.operands.clear()  # what they were read from may be stored to
        match stmt:
            case tirx.SeqStmt():
                for position, child in enumerate(stmt.seq):
                    if isinstance(child, tirx.Bind) and not _mentioned(
                        child.var, stmt.seq[position + 1 :]
                    ):
                        continue
                    self.write(child)
            case tirx.For():
                self._loop(stmt)
            case tirx.While():
                self.lines.append(f"while ({without_parentheses(self._value(stmt.condition))}) {{")
                self._block(stmt.body)
                self.lines.append("}")
            case tirx.IfThenElse():
                self._branch(stmt)
            case tirx.BufferStore():
                self._store(stmt)
            case tirx.Bind():
                value = self._value(stmt.value)
                kind = value_type(dtype_of(stmt.value))
                self.lines.append(f"const {kind} {self.names.give(stmt.var)} = {value};")
            case tirx.DeclBuffer():
                self._declare(stmt)
            case tirx.AllocBuffer():
                self._allocate(stmt)
            case tirx.AttrStmt():
                self.write(stmt.body)
            case tirx.Evaluate():
                self._evaluate(stmt)
            case _:
                raise UnsupportedModuleError(
                    f"the C back end cannot emit the statement {type(stmt).__name__}: {stmt}"
                )

    def _value(self, expr: ir.Expr) -> str:
        """`expr` in C, after the lines that it needs."""
        text = self.expressions.write(expr)
        self.lines += self.expressions.lines
        self.expressions.lines = []
        return text

    def _block(self, stmt: tirx.Stmt) -> None:
        outer, self.lines = self.lines, []
        self.operands.clear()
        self.write(stmt)
        self.operands.clear()
        self.lines = outer + [f"  {line}" for line in self.lines]

    def _loop(self, stmt: tirx.For) -> None:
        if stmt.thread_binding is not None:
            raise UnsupportedModuleError(f"the C back end has no thread {stmt.thread_binding}")
        if stmt in self.bytes:
            self._bytes(self.bytes[stmt])
            return
        vectors = self.vectors.get(stmt)
        stmt = stmt if vectors is None else vectors.loop
        # Vector, unrolled and parallel loops are plain loops here: one thread, any vector unit is
        # for the C compiler to use.
        begin, extent = self._value(stmt.min), self._value(stmt.extent)
        end = extent if begin in ("0", "0LL") else f"({begin} + {extent})"
        name = self.names.give(stmt.loop_var)
        kind = stored_type(dtype_of(stmt.loop_var))
        if vectors is not None:
            begin = self._vector_loop(vectors, f"{kind} {name}")
            if begin == extent:
                return
        step = "++" if stmt.step is None else f" += {self._value(stmt.step)}"
        self.lines.append(f"for ({kind} {name} = {begin}; {name} < {end}; {name}{step}) {{")
        self._block(stmt.body)
        self.lines.append("}")

    def _bytes(self, copied: ByteLoop) -> None:
        """Write a loop that copies bytes as a call."""
        given = [f"&{self.expressions.element(copied.buffer, copied.first)}", str(copied.step)]
        if isinstance(copied.value, ir.TensorLoad):
            (index,) = copied.value.indices
            given += [f"&{self.expressions.element(copied.value.source, index)}"]
            given += [str(copied.value_step)]
        else:
            given += [self.expressions.write(copied.value)]
        name = self.expressions.helper(copied.function)
        self._lines_of(f"{name}({', '.join(given)}, {copied.extent});")

    def _adds_to_registers(self, stmt: tirx.Stmt) -> bool:
        vectors = self.vectors.get(stmt)
        return vectors is not None and all(s.buffer in self.registers for s in vectors.stores)

    def _vector_loop(self, vectors: VectorLoop, variable: str) -> str:
        """Write a loop as vectors; returns where the rest of it begins."""
        for bind in vectors.before:
            self.write(bind)
        writer = VectorWriter(vectors, self.expressions, self.registers, self.operands)
        if vectors.is_unrolled:
            for store in vectors.stores:
                for first in range(0, vectors.extent, LANES):
                    self._lines_of(writer.store(store, first))
            return str(vectors.extent)
        whole = vectors.extent - vectors.extent % LANES
        name = variable.split()[-1]
        self.lines.append(f"for ({variable} = 0; {name} < {whole}; {name} += {LANES}) {{")
        outer, self.lines = self.lines, []
        for store in vectors.stores:
            self._lines_of(writer.store(store, None))
        self.lines = [*outer, *(f"  {line}" for line in self.lines), "}"]
        return str(whole)

    def _lines_of(self, text: str) -> None:
        """Append a statement, after the lines that its expressions need."""
        self.lines += [*self.expressions.lines, text]
        self.expressions.lines = []

    def _branch(self, stmt: tirx.IfThenElse) -> None:
        self.lines.append(f"if ({without_parentheses(self._value(stmt.condition))}) {{")
        self._block(stmt.then_case)
        if stmt.else_case is not None:
            self.lines.append("} else {")
            self._block(stmt.else_case)
        self.lines.append("}")

    def _store(self, stmt: tirx.BufferStore) -> None:
        (index,) = stmt.indices
        place = self.expressions.element(stmt.buffer, index)
        dtype = _buffer_dtype(stmt.buffer)
        value = self._value(stmt.value)
        self.lines.append(f"{place} = {self.expressions.stored(value, dtype)};")

    def _declare(self, stmt: tirx.DeclBuffer) -> None:
        buffer = stmt.buffer
        base = base_of(stmt.data)
        if base in self.registers:
            self.registers[buffer] = self.registers[base]
            return
        if base is None or base not in self.names.of:  # nothing reads or writes it
            return
        offset = _byte_offset(stmt.data)
        if offset is None and _buffer_dtype(base) == _buffer_dtype(buffer):
            self.names.of[buffer] = self.names.of[base]
            return
        kind, shown = stored_type(_buffer_dtype(buffer)), self.names.of[base]
        # Parts of the workspace lie apart; another view of a parameter does not.
        start = shown if offset is None else f"({shown} + {self._value(offset)})"
        apart = "" if offset is None else "restrict "
        name = self.names.give(buffer)
        self.lines.append(f"{kind} *{apart}const {name} = ({kind} *)(void *){start};")

    def _allocate(self, stmt: tirx.AllocBuffer) -> None:
        count = 1
        for extent in stmt.buffer.ty.shape:
            count *= int(extent)
        kind, name = stored_type(_buffer_dtype(stmt.buffer)), self.names.give(stmt.buffer)
        if stmt.buffer not in self.arrays:
            self.lines.append(f"{kind} {name}[{count}];")
            return
        self.expressions.helper(VECTOR_TYPES)
        vectors = [self.names.fresh(f"{name}_{k}") for k in range(count // LANES)]
        self.registers[stmt.buffer] = vectors
        self.lines.append(f"{VECTOR[_buffer_dtype(stmt.buffer)]} {', '.join(vectors)};")

    def _evaluate(self, stmt: tirx.Evaluate) -> None:
        value = stmt.value
        if isinstance(value, ir.Call) and value.op.name in ("tirx.assume",):
            return
        if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
            return
        if isinstance(value, ir.Call) and value.op.name == "tirx.call_extern":
            self._lines_of(f"{self.expressions.write(value)};")
            return
        raise UnsupportedModuleError(f"the C back end cannot emit the statement {value}")


def _byte_offset(data: ir.Expr) -> ir.Expr | None:
    while isinstance(data, ir.Call):
        if data.op.name == "tirx.handle_add_byte_offset":
            return data.args[1]
        if data.op.name != "tirx.reinterpret":
            return None
        data = data.args[0]
    return None


def _mentioned(var: ir.Var, stmts: Sequence[tirx.Stmt]) -> bool:
    found: list[ir.Var] = []

    def visit(other: ir.Var) -> None:
        if other.same_as(var):
            found.append(other)

    for stmt in stmts:
        tvm_ffi.structural_walk(stmt, (ir.Var, visit))
    return bool(found)
