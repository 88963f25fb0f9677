"""Hide indices that divide from TVM's simplification of sums of loop variables, which is wrong.

In TVM 0.27 ``IterMapSimplify`` takes something less a loop variable, divided, for a division by a
negative number: ``(21 - i) // 9 * 9`` becomes ``i // -9 * 9 + 18``. It is wrong under conditions on
remainders, too: with ``outer % 9 < 8``, ``outer // 9 * 9 + (outer % 9 + 1) // 3 * 3`` becomes
``(outer + 1) // 3 * 3 - 9``. ``FlattenBuffer`` and the schedules' ``transform_layout`` use it. The rules
of ``StmtSimplify`` are sound, and find the same forms for almost all kernels.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.search import any_part

_HIDDEN = "tvm_xengine.hidden_index"
"""The function that hidden indices are arguments of; it is never called."""


def hide_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with each index that divides as the argument of an unknown function."""
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
    if not any_part(index, lambda part: isinstance(part, (tirx.FloorDiv, tirx.FloorMod))):
        return index
    return tirx.call_pure_extern(str(index.ty.dtype), _HIDDEN, index)


def _shown(call: ir.Call) -> ir.Expr:
    if call.op != ir.Op.get("tirx.call_pure_extern") or call.args[0].value != _HIDDEN:
        return call
    return call.args[1]
