"""Make weights real numbers where they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.passes.fusion.merged_kernel import merged_kernel
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_bindings
from tvm_xengine.relax_ir.integer_ops import DEQUANTIZE_CHANNELS
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.kernel_calls import KernelCall, is_view, kernel_call
from tvm_xengine.relax_ir.own_ops import PREFIX


@tvm.transform.module_pass(opt_level=0, name="ReadStoredWeights")
class ReadStoredWeights:
    """Merge each kernel that makes real numbers of int8, by channel, into all that read them.

    .. code-block:: python

        w = R.call_tir(dequantize_channels, (q, scale), ...)
        y = R.call_tir(conv2d, (x, w), ...)
        dx = R.call_tir(conv_data_gradient, (dy, w), ...)

    becomes

    .. code-block:: python

        y = R.call_tir(conv2d_stored, (x, q, scale), ...)
        dx = R.call_tir(conv_data_gradient_stored, (dy, q, scale), ...)

    so that no memory holds `w`. Where a view of it is read, or it is returned, it stays. Runs after
    `LowerToKernels`.
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func = mod[self.func_name]
        bindings = list(single_block(func).bindings)
        made = _stored(mod, func, bindings)
        if not made:
            return mod
        builder = relax.BlockBuilder(mod.clone())
        known: dict[tuple[str, ...], ir.GlobalVar] = {}
        written = []
        for position, binding in enumerate(bindings):
            call = kernel_call(position, binding)
            if call is None or made.keys().isdisjoint(call.args):
                written.append(binding)
            else:
                value = _with_stored(mod, builder, known, call, made)
                written.append(relax.VarBinding(binding.var, value))
        mod = builder.get()
        mod[self.func_name] = with_bindings(func, [b for b in written if b.var not in made])
        return relax.transform.Normalize()(mod)


def _stored(
    mod: tvm.IRModule, func: relax.Function, bindings: Sequence[relax.Binding]
) -> dict[relax.Var, KernelCall]:
    """The calls that make real numbers, by their variables, as far as only kernels read these."""
    found = {}
    for position, binding in enumerate(bindings):
        call = kernel_call(position, binding)
        parts = None if call is None else kernel_parts(mod[call.kernel])
        names = [] if parts is None else [part.name for part in parts.parts]
        if call is not None and names == [DEQUANTIZE_CHANNELS.removeprefix(PREFIX)]:
            found[call.var] = call
    others = [*returned_fields(func)]
    for binding in bindings:
        others += [binding.value.args[0]] if is_view(binding.value) else [binding.value]
    return {var: call for var, call in found.items() if all(var is not one for one in others)}


def _with_stored(
    mod: tvm.IRModule,
    builder: relax.BlockBuilder,
    known: dict[tuple[str, ...], ir.GlobalVar],
    call: KernelCall,
    made: Mapping[relax.Var, KernelCall],
) -> relax.Expr:
    """The call that reads what is stored, its kernel added to `builder`."""
    places = {k: made[arg] for k, arg in enumerate(call.args) if arg in made}
    args: list[relax.Expr] = list(call.args)
    more: list[relax.Expr] = []
    for k, stored in places.items():
        args[k] = stored.args[0]
        more += stored.args[1:]
    called = {k: stored.kernel.name_hint for k, stored in places.items()}
    key = (call.kernel.name_hint, *(f"{k} {name}" for k, name in called.items()))
    types = call.outputs[0] if len(call.outputs) == 1 else list(call.outputs)
    if key not in known:
        merged = _merged(mod, call, places, [arg.ty for arg in (*args, *more)], types)
        known[key] = builder.add_func(merged, f"{call.kernel.name_hint}_stored")
    return relax.call_tir(known[key], relax.Tuple([*args, *more]), types)


def _merged(
    mod: tvm.IRModule,
    call: KernelCall,
    places: Mapping[int, KernelCall],
    inputs: Sequence[relax.Type],
    outputs: relax.Type | list[relax.Type],
) -> tirx.PrimFunc:
    """The kernel of a call in which some inputs are made of what is stored; the rest of it comes last."""
    count = len(call.args)

    def body(
        inner: relax.BlockBuilder, called: Mapping[str, ir.GlobalVar], given: Sequence[relax.Var]
    ) -> relax.Expr:
        real, rest = list(given[:count]), list(given[count:])
        for k, stored in places.items():
            own, rest = rest[: len(stored.args) - 1], rest[len(stored.args) - 1 :]
            operands = relax.Tuple([real[k], *own])
            real[k] = inner.emit(relax.call_tir(called[f"stored{k}"], operands, stored.outputs[0]))
        return inner.emit(relax.call_tir(called["kernel"], relax.Tuple(real), outputs))

    kernel = mod[call.kernel]
    pairs = [int(k) for k in kernel.attrs.get(INPLACE_ATTR, ())] if kernel.attrs else []
    kernels = {"kernel": kernel, **{f"stored{k}": mod[s.kernel] for k, s in places.items()}}
    return merged_kernel(kernels, inputs, body, pairs)
