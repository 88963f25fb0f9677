"""Write one-element constants into the kernels that read them."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx

from tvm_xengine.relax_ir.dataflow import single_block, with_bindings


@tvm.transform.module_pass(opt_level=0, name="InlineScalarConstants")
class InlineScalarConstants:
    """Replace each one-element constant that a kernel is called with by a literal inside it.

    .. code-block:: python

        y = R.call_tir(where, (mask, x, R.const(0.5)), ...)

    becomes, with the third parameter of ``where`` gone,

    .. code-block:: python

        y = R.call_tir(where_1, (mask, x), ...)
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        builder = relax.BlockBuilder(mod)
        func = mod[self.func_name]
        bindings = [_inline(builder, mod, binding) for binding in single_block(func).bindings]
        mod = builder.get()
        mod[self.func_name] = with_bindings(func, bindings)
        return relax.transform.Normalize()(mod)


def _inline(
    builder: relax.BlockBuilder, mod: tvm.IRModule, binding: relax.Binding
) -> relax.Binding:
    call = binding.value
    if not isinstance(call, ir.Call) or call.op != ir.Op.get("relax.call_tir"):
        return binding
    kernel, args = call.args[0], list(call.args[1].fields)
    literals = {
        position: arg.value.numpy().reshape(-1)[0].item()
        for position, arg in enumerate(args)
        if isinstance(arg, ir.expr.GenericConst) and arg.value.numpy().size == 1
    }
    if not literals:
        return binding
    smaller = builder.add_func(_with_literals(mod[kernel], literals), kernel.name_hint)
    left = [arg for position, arg in enumerate(args) if position not in literals]
    value = ir.Call(call.op, [smaller, relax.Tuple(left)], call.attrs, call.ty_args, call.span)
    return relax.VarBinding(binding.var, value)


def _with_literals(
    kernel: tirx.PrimFunc, literals: Mapping[int, float | int | bool]
) -> tirx.PrimFunc:
    values = {kernel.params[position]: value for position, value in literals.items()}

    def literal(load: ir.TensorLoad) -> ir.Expr:
        if load.source in values:
            return tirx.const(values[load.source], load.ty.dtype)
        return load

    def without_reads(block: s_tir.SBlock) -> s_tir.SBlock:
        reads = [region for region in block.reads if region.source not in values]
        if len(reads) == len(block.reads):
            return block
        return s_tir.SBlock(
            block.iter_vars,
            reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = tvm_ffi.structural_map(
        kernel.body, [(ir.TensorLoad, literal), (s_tir.SBlock, without_reads)]
    )
    params = [param for position, param in enumerate(kernel.params) if position not in literals]
    return tirx.PrimFunc(params, body, kernel.ret_type, kernel.attrs)
