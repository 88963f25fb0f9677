"""Hide indices that divide from TVM's simplification of sums of loop variables, which is wrong.

In TVM 0.27 ``IterMapSimplify`` takes something less a loop variable, divided, for a division by a
negative number: ``(21 - i) // 9 * 9`` becomes ``i // -9 * 9 + 18``. It is wrong under conditions on
remainders, too: with ``outer % 9 < 8``, ``outer // 9 * 9 + (outer % 9 + 1) // 3 * 3`` becomes
``(outer + 1) // 3 * 3 - 9``. ``FlattenBuffer`` and the schedules' ``transform_layout`` use it. The rules
of ``StmtSimplify`` are sound, and find the same forms for almost all kernels. Where TVM alone compiles a
module of ours, indices stay hidden: what hides them computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.search import any_part

_HIDDEN = "tirx.reinterpret"
"""What hidden indices are arguments of: bits of a type taken for ones of the same type."""


@tvm.transform.module_pass(opt_level=0, name="HideIndices")
class HideIndices:
    """Hide the indices that divide of every kernel (`hide_indices`)."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _each(mod, hide_indices)


@tvm.transform.module_pass(opt_level=0, name="ShowIndices")
class ShowIndices:
    """Undo `HideIndices`."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _each(mod, show_indices)


def hide_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with each index that divides as the argument of a call."""
    changes = [(ir.TensorLoad, _hidden_load), (tirx.BufferStore, _hidden_store)]
    return func.with_body(tvm_ffi.structural_map(func.body, changes))


def show_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with indices as they were before `hide_indices`."""
    return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, _shown)))


def _hidden_load(load: ir.TensorLoad) -> ir.Expr:
    return tirx.BufferLoad(load.source, [_hidden(index) for index in load.indices], load.span)


def _hidden_store(store: tirx.BufferStore) -> tirx.Stmt:
    indices = [_hidden(index) for index in store.indices]
    return tirx.BufferStore(store.buffer, store.value, indices, store.span)


def _hidden(index: ir.Expr) -> ir.Expr:
    if _is_hidden(index) or not any_part(index, _divides):
        return index
    return tirx.call_intrin(str(index.ty.dtype), _HIDDEN, index)


def _divides(part: ir.Expr) -> bool:
    return isinstance(part, tirx.FloorDiv | tirx.FloorMod)


def _shown(call: ir.Call) -> ir.Expr:
    return call.args[0] if _is_hidden(call) else call


def _is_hidden(part: ir.Expr) -> bool:
    is_call = isinstance(part, ir.Call) and part.op == ir.Op.get(_HIDDEN)
    return is_call and part.ty.dtype == part.args[0].ty.dtype


def _each(mod: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.IRModule:
    mod = mod.clone()
    for symbol, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            mod[symbol] = change(func)
    return mod
