"""Flatten buffers without TVM's simplification of flat indices."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx

from tvm_xengine.kernels.lower.hidden_indices import hide_indices, show_indices


@tvm.transform.module_pass(opt_level=0, name="FlattenBuffers")
class FlattenBuffers:
    """Run ``FlattenBuffer`` with indices that divide hidden; ``StmtSimplify`` is to follow."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _each(tirx.transform.FlattenBuffer()(_each(mod, hide_indices)), show_indices)


def _each(mod: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.IRModule:
    mod = mod.clone()
    for symbol, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            mod[symbol] = change(func)
    return mod
