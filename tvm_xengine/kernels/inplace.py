"""Kernels that write an output over one of their inputs, where that is safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.relax_ir.kernel_attributes import inplace_pairs


def num_outputs(func: tirx.PrimFunc) -> int:
    """Number of parameters at the end of a kernel that it stores to."""
    stored: set[ir.Var] = set()
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, lambda store: stored.add(store.buffer)))
    written = [param in stored for param in func.params]
    count = sum(written)
    if not count or not all(written[-count:]):
        names = [param.name for param in func.params]
        raise UnsupportedModuleError(
            f"a kernel must store to its last parameters and to no others; of {names} it stores "
            f"to {[name for name, is_written in zip(names, written, strict=True) if is_written]}"
        )
    return count


def share_inplace_buffers(kernel: tirx.PrimFunc, num_outputs: int) -> tirx.PrimFunc:
    """Return `kernel` with each output of an in-place pair stored into its input's buffer.

    The parameters stay: the caller passes the same tensor for both of a pair.

    Raises
    ------
    UnsupportedModuleError
        When the kernel could read an element of the input after it has been overwritten.
    """
    num_inputs = len(kernel.params) - num_outputs
    shared: dict[ir.Var, ir.Var] = {}
    for pair in inplace_pairs(kernel):
        old, new = kernel.params[pair.input], kernel.params[num_inputs + pair.output]
        if reason := why_not_inplace(kernel, pair.input, num_inputs + pair.output):
            raise UnsupportedModuleError(
                f"output {new.name} cannot be written over input {old.name}: {reason}"
            )
        shared[new] = old
    if not shared:
        return kernel
    body = tvm_ffi.structural_map(kernel.body, (ir.Var, lambda var: shared.get(var, var)))
    return tirx.PrimFunc(kernel.params, body, kernel.ret_type, kernel.attrs)


def why_not_inplace(kernel: tirx.PrimFunc, old_param: int, new_param: int) -> str | None:
    """Say why an output may not lie over an input, None when it may.

    Both are positions of parameters. It may when every load of an element comes before its only
    store: in an earlier loop nest, or at the same index earlier in the iteration that stores.
    """
    loops = _as_loops(kernel)
    old, new = loops.params[old_param], loops.params[new_param]
    if not tvm_ffi.structural_equal(old.ty.shape, new.ty.shape) or old.ty.dtype != new.ty.dtype:
        return "their shapes or types differ"
    accesses = list(_accesses(loops.body, (), (old, new)))
    stores = [(place, a) for place, a in enumerate(accesses) if a.buffer.same_as(new)]
    loads = [(place, a) for place, a in enumerate(accesses) if a.buffer.same_as(old)]
    for _, store in stores:
        if not store.is_load and not all(map(store.mentions, store.loops)):
            return "the kernel writes its elements more than once"
    for load_place, load in loads:
        for store_place, store in stores:
            if load_place > store_place:
                return "the kernel reads the input after writing the output"
            if load.shares_a_loop_with(store) and not load.same_index(store):
                return "the loop that writes an element reads other elements"
    return None


def _as_loops(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """Lower blocks to plain loops."""
    lowering = tvm.transform.Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.LowerOpaqueBlock(),
            s_tir.transform.StmtSimplify(),
        ]
    )
    (lowered,) = lowering(tvm.IRModule({"kernel": kernel})).functions.values()
    return lowered


@dataclass(frozen=True)
class _Access:
    """One load or store and the variables of the loops (or of the threads) around it."""

    buffer: ir.Var
    index: tuple[ir.Expr, ...]
    loops: tuple[ir.Var, ...]
    is_load: bool

    def mentions(self, var: ir.Var) -> bool:
        used = (v for part in self.index for v in tirx.analysis.undefined_vars(part))
        return any(v.same_as(var) for v in used)

    def shares_a_loop_with(self, other: _Access) -> bool:
        return bool(self.loops and other.loops) and self.loops[0].same_as(other.loops[0])

    def same_index(self, other: _Access) -> bool:
        pairs = zip(self.index, other.index, strict=True)
        return all(tvm_ffi.structural_equal(mine, theirs) for mine, theirs in pairs)


def _accesses(
    stmt: tirx.Stmt, loops: tuple[ir.Var, ...], buffers: tuple[ir.Var, ...]
) -> Iterator[_Access]:
    """Yield the loads and stores of `buffers` in the order of the program."""
    match stmt:
        case tirx.SeqStmt():
            for child in stmt.seq:
                yield from _accesses(child, loops, buffers)
        case tirx.For():
            yield from _accesses(stmt.body, (*loops, stmt.loop_var), buffers)
        case tirx.AttrStmt() if stmt.attr_key == "thread_extent":
            is_single = isinstance(stmt.value, tirx.IntImm) and int(stmt.value) == 1
            around = loops if is_single else (*loops, stmt.node.var)
            yield from _accesses(stmt.body, around, buffers)
        case tirx.AttrStmt():
            yield from _accesses(stmt.body, loops, buffers)
        case tirx.IfThenElse():
            yield from _loads(stmt.condition, loops, buffers)
            yield from _accesses(stmt.then_case, loops, buffers)
            if stmt.else_case is not None:
                yield from _accesses(stmt.else_case, loops, buffers)
        case _:
            yield from _loads(stmt, loops, buffers)
            if isinstance(stmt, tirx.BufferStore) and stmt.buffer in buffers:
                yield _Access(stmt.buffer, tuple(stmt.indices), loops, is_load=False)


def _loads(
    stmt: tirx.Stmt, loops: tuple[ir.Var, ...], buffers: tuple[ir.Var, ...]
) -> list[_Access]:
    found: list[_Access] = []

    def visit(load: ir.TensorLoad) -> None:
        if load.source in buffers:
            found.append(_Access(load.source, tuple(load.indices), loops, is_load=True))

    tvm_ffi.structural_walk(stmt, (ir.TensorLoad, visit))
    return found
