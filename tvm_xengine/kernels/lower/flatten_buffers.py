"""Flatten buffers without TVM's simplification of flat indices, which is wrong."""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.search import any_part

_HIDDEN = "tvm_xengine.hidden_index"
"""The function that hidden indices are arguments of; it is never called."""


@tvm.transform.module_pass(opt_level=0, name="FlattenBuffers")
class FlattenBuffers:
    """Run ``FlattenBuffer``, and show it no index that divides.

    It simplifies flat indices as sums of parts of loop variables, which is wrong in TVM 0.27 where
    something less a loop variable is divided, and where a condition on a remainder holds:
    ``(21 - i) // 9 * 9`` became ``i // -9 * 9 + 18``, and with ``outer % 9 < 8``,
    ``outer // 9 * 9 + (outer % 9 + 1) // 3 * 3`` became ``(outer + 1) // 3 * 3 - 9``. The rules of
    ``StmtSimplify``, which is to follow, find the same forms for almost all kernels.
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = _mapped(mod, [(ir.TensorLoad, _hidden_load), (tirx.BufferStore, _hidden_store)])
        return _mapped(tirx.transform.FlattenBuffer()(mod), [(ir.Call, _shown)])


def _mapped(mod: tvm.IRModule, callbacks: list[tuple[type, Callable[..., object]]]) -> tvm.IRModule:
    mod = mod.clone()
    for symbol, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            body = tvm_ffi.structural_map(func.body, callbacks)
            mod[symbol] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return mod


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
