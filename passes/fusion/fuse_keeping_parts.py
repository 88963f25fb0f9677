"""Fuse kernels, and record the parts in the result."""

from __future__ import annotations

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.kernels.library.parts import KernelParts, Part, with_parts
from tvm_xengine.relax_ir.dataflow import single_block


@tvm.transform.module_pass(opt_level=0, name="FuseKeepingParts")
class FuseKeepingParts:
    """``FuseTIR`` with the attribute ``tvm_xengine.parts`` on the kernels it makes.

    Runs after ``FuseOps``. A kernel with several outputs, or one whose group holds anything but
    kernel calls, gets no attribute.
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        groups = {
            symbol.name_hint: made_of
            for symbol, func in mod.functions_items()
            if (made_of := _parts_of(func, mod)) is not None
        }
        fused = tvm.transform.Sequential([relax.transform.FuseTIR()])(mod)
        for symbol, func in fused.functions_items():
            if symbol.name_hint in groups and isinstance(func, tirx.PrimFunc):
                fused[symbol] = with_parts(func, groups[symbol.name_hint])
        return fused


def _parts_of(func: object, mod: tvm.IRModule) -> KernelParts | None:
    if not isinstance(func, relax.Function) or not func.attrs or "Primitive" not in func.attrs:
        return None
    number: dict[relax.Var, int] = {param: k for k, param in enumerate(func.params)}
    parts: list[Part] = []
    bindings = single_block(func).bindings
    for binding in bindings:
        value = binding.value
        if not isinstance(value, ir.Call) or value.op != ir.Op.get("relax.call_tir"):
            return None
        arguments = value.args[1].fields
        if any(argument not in number for argument in arguments):
            return None
        parts.append(Part(mod[value.args[0]], tuple(number[argument] for argument in arguments)))
        number[binding.var] = len(number)
    returns_last = bool(bindings) and func.body.body.same_as(bindings[-1].var)
    return KernelParts(len(func.params), tuple(parts)) if returns_last else None
