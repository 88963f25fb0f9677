"""Merge a few calls, whose results have no other readers, into one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR

Body = Callable[[relax.BlockBuilder, Mapping[str, ir.GlobalVar], Sequence[relax.Var]], relax.Expr]
"""Emits the calls; gets a builder, the kernels by name and the inputs, and returns the result."""

_NAME = "merged"


def merged_kernel(
    kernels: Mapping[str, tirx.PrimFunc],
    inputs: Sequence[relax.Type],
    body: Body,
    inplace: Sequence[int] = (),
) -> tirx.PrimFunc:
    """One kernel that does what several calls do, what they pass on kept inside.

    Parameters
    ----------
    kernels
        What `body` may call.
    inputs
        Types of the kernel's inputs.
    body
        Emits calls of `kernels` and operators of Relax. Its result is one tensor or a tuple.
    inplace
        ``[k, j, ...]``: output k may be written over input j.
    """
    builder = relax.BlockBuilder()
    called = {name: builder.add_func(func, name) for name, func in kernels.items()}
    merged = builder.add_func(_primitive(builder, called, inputs, body), _NAME)
    params = [relax.Var(f"p{k}", ty) for k, ty in enumerate(inputs)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(ir.Call(merged, params))
        builder.emit_func_output(output)
    passes = [relax.transform.LegalizeOps(), relax.transform.FuseTIR()]
    fused = tvm.transform.Sequential(passes)(builder.get())[_NAME]
    return fused.with_attr(INPLACE_ATTR, list(inplace)) if inplace else fused


def _primitive(
    builder: relax.BlockBuilder,
    called: Mapping[str, ir.GlobalVar],
    inputs: Sequence[relax.Type],
    body: Body,
) -> relax.Function:
    params = [relax.Var(f"x{k}", ty) for k, ty in enumerate(inputs)]
    inner = relax.BlockBuilder(builder.get())
    with inner.function(_NAME, params, private=True):
        with inner.dataflow():
            output = inner.emit_output(body(inner, called, params))
        inner.emit_func_output(output)
    return inner.get()[_NAME].with_attr("Primitive", 1)
