"""Give a lowered kernel its temporary memory as a parameter, so that it allocates nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.errors import UnsupportedModuleError

ALIGNMENT_BYTES = 64
"""Every part of a workspace starts at a multiple of this, and so must the workspace."""

WORKSPACE_ATTR = "tvm_xengine.workspace_bytes"
"""Kernel attribute: size of the last parameter; absent when there is no workspace."""

STACK_BYTES = 1024
"""``tirx.LowerTVMBuiltin`` puts smaller allocations of a processor's kernel on the stack."""


@tirx.transform.prim_func_pass(opt_level=0, name="ExplicitWorkspace")
class ExplicitWorkspace:
    """Replace the allocations of each kernel by parts of one extra last parameter.

    .. code-block:: python

        def kernel(x: T.Buffer((4096,)), y: T.Buffer((4096,))):
            t = T.alloc_buffer((4096,))
            ...

    becomes

    .. code-block:: python

        def kernel(x: T.Buffer((4096,)), y: T.Buffer((4096,)), workspace: T.Buffer((16384,), "uint8")):
            T.func_attr({"tvm_xengine.workspace_bytes": 16384})
            t = T.decl_buffer((4096,), data=workspace.data + 0)
            ...

    Allocations small enough for the stack stay. One inside a parallel loop gets a part for every
    iteration. Runs after ``tirx.StorageRewrite``, which lets buffers that do not live at the
    same time share memory, and before ``tirx.MakePackedAPI``.

    Parameters
    ----------
    stack_bytes
        Allocations smaller than this stay. 0 for a GPU, whose threads cannot read the stack of
        the processor that launches them.
    """

    def __init__(self, stack_bytes: int = STACK_BYTES) -> None:
        self.stack_bytes = stack_bytes

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return _with_workspace(func, self.stack_bytes)


def workspace_bytes(kernel: tirx.PrimFunc) -> int:
    """Size of the workspace parameter of a kernel that went through ExplicitWorkspace."""
    return int(kernel.attrs.get(WORKSPACE_ATTR, 0)) if kernel.attrs else 0


def _with_workspace(func: tirx.PrimFunc, stack_bytes: int) -> tirx.PrimFunc:
    parts: list[_Part] = []
    _collect(func.body, (), parts, stack_bytes)
    if not parts:
        return func
    total_bytes = sum(part.all_bytes for part in parts)
    workspace = tirx.decl_buffer((total_bytes,), "uint8", name="workspace")
    offset_bytes = 0
    pointers: dict[ir.Var, ir.Expr] = {}
    for part in parts:
        pointers[part.buffer] = part.pointer(workspace, offset_bytes)
        offset_bytes += part.all_bytes
    body = _bind(func.body, pointers)
    return tirx.PrimFunc([*func.params, workspace], body, func.ret_type, func.attrs).with_attr(
        WORKSPACE_ATTR, total_bytes
    )


@dataclass(frozen=True)
class _Part:
    """The memory of one allocation, once for each iteration of the parallel loops around it."""

    buffer: ir.Var
    parallel: tuple[tirx.For, ...] = field(default=())

    @property
    def one_bytes(self) -> int:
        return _aligned(max(_size_bytes(self.buffer), 1))

    @property
    def all_bytes(self) -> int:
        size_bytes = self.one_bytes
        for loop in self.parallel:
            size_bytes *= int(loop.extent)
        return size_bytes

    def pointer(self, workspace: ir.Var, offset_bytes: int) -> ir.Expr:
        offset: ir.Expr = tirx.const(offset_bytes, "int64")
        stride_bytes = self.one_bytes
        for loop in reversed(self.parallel):
            iteration = tirx.Cast("int64", loop.loop_var - loop.min)
            offset = offset + iteration * tirx.const(stride_bytes, "int64")
            stride_bytes *= int(loop.extent)
        address = tirx.handle_add_byte_offset(workspace.data, offset)
        return tirx.reinterpret(self.buffer.data.ty, address)


def _collect(
    stmt: tirx.Stmt, parallel: tuple[tirx.For, ...], parts: list[_Part], stack_bytes: int
) -> None:
    if isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL:
        parallel = (*parallel, stmt)
    if isinstance(stmt, tirx.AllocBuffer) and _needs_memory(stmt.buffer, stack_bytes):
        parts.append(_Part(stmt.buffer, parallel))
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent":
        _require_no_memory_in_threads(stmt.body)
        return
    for child in _children(stmt):
        _collect(child, parallel, parts, stack_bytes)


def _require_no_memory_in_threads(launch: tirx.Stmt) -> None:
    found: list[str] = []

    def visit(allocation: tirx.AllocBuffer) -> None:
        if allocation.buffer.ty.storage_scope == "global":
            found.append(allocation.buffer.name)

    tvm_ffi.structural_walk(launch, (tirx.AllocBuffer, visit))
    if found:
        raise UnsupportedModuleError(
            f"expected the threads of a launch to hold their values in registers or shared memory,"
            f" but each would need global memory of its own for {found}"
        )


def _children(stmt: tirx.Stmt) -> list[tirx.Stmt]:
    if isinstance(stmt, tirx.SeqStmt):
        return list(stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        return [branch for branch in (stmt.then_case, stmt.else_case) if branch is not None]
    if isinstance(stmt, (tirx.For, tirx.While, tirx.AttrStmt)):
        return [stmt.body]
    return []


def _bind(stmt: tirx.Stmt, pointers: dict[ir.Var, ir.Expr]) -> tirx.Stmt:
    """Return `stmt` with the allocations of `pointers` turned into declarations."""
    match stmt:
        case tirx.AllocBuffer() if stmt.buffer in pointers:
            return tirx.DeclBuffer(stmt.buffer, data=pointers[stmt.buffer])
        case tirx.SeqStmt():
            return tirx.SeqStmt([_bind(child, pointers) for child in stmt.seq])
        case tirx.For():
            return tirx.For(
                stmt.loop_var,
                stmt.min,
                stmt.extent,
                stmt.kind,
                _bind(stmt.body, pointers),
                stmt.thread_binding,
                stmt.annotations,
                stmt.step,
            )
        case tirx.IfThenElse():
            otherwise = None if stmt.else_case is None else _bind(stmt.else_case, pointers)
            return tirx.IfThenElse(stmt.condition, _bind(stmt.then_case, pointers), otherwise)
        case tirx.While():
            return tirx.While(stmt.condition, _bind(stmt.body, pointers))
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _bind(stmt.body, pointers))
        case _:
            return stmt


def _needs_memory(buffer: ir.Var, stack_bytes: int) -> bool:
    """Whether a buffer cannot lie on the stack, where TVM puts none without elements."""
    size_bytes = _size_bytes(buffer)
    return buffer.ty.storage_scope == "global" and (size_bytes >= stack_bytes or size_bytes == 0)


def _size_bytes(buffer: ir.Var) -> int:
    size_bytes = int(buffer.ty.dtype.dtype.itemsize)
    for extent in buffer.ty.shape:
        size_bytes *= int(extent)
    return size_bytes


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
