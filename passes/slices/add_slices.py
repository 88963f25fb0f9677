"""Kernels of a slice that add what they make to what earlier slices have made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import ir, relax, te, tirx, topi

from tvm_xengine.kernels.library.parts import (
    KernelParts,
    Part,
    kernel_parts,
    name_attributes,
    with_parts,
)
from tvm_xengine.passes.fusion.merged_kernel import merged_kernel


def adding_kernel(kernel: tirx.PrimFunc, num_inputs: int, summed: Sequence[int]) -> tirx.PrimFunc:
    """The kernel with some outputs added to tensors that it reads behind its other inputs.

    Parameters
    ----------
    summed
        Numbers of these outputs.
    """
    types = [_tensor_type(param) for param in kernel.params]
    outputs = types[num_inputs:]
    added = {place: _adding(outputs[place]) for place in summed}

    def body(
        inner: relax.BlockBuilder, called: Mapping[str, ir.GlobalVar], given: Sequence[relax.Var]
    ) -> relax.Expr:
        earlier = dict(zip(summed, given[num_inputs:], strict=True))
        inputs = relax.Tuple(list(given[:num_inputs]))
        single = len(outputs) == 1
        made = inner.emit(
            relax.call_tir(called["kernel"], inputs, outputs[0] if single else outputs)
        )
        fields = [made]
        if not single:
            fields = [inner.emit(relax.TupleGetItem(made, k)) for k in range(len(outputs))]
        results = [
            inner.emit(
                relax.call_tir(called[f"add{k}"], relax.Tuple([field, earlier[k]]), outputs[k])
            )
            if k in earlier
            else field
            for k, field in enumerate(fields)
        ]
        return results[0] if single else relax.Tuple(results)

    kernels = {"kernel": kernel, **{f"add{k}": func for k, func in added.items()}}
    inputs = [*types[:num_inputs], *(outputs[k] for k in summed)]
    merged = merged_kernel(kernels, inputs, body)
    parts = kernel_parts(kernel) if len(outputs) == 1 else None
    return merged if parts is None else _with_added_part(merged, parts, added[0])


def _with_added_part(
    merged: tirx.PrimFunc, whole: KernelParts, added: tirx.PrimFunc
) -> tirx.PrimFunc:
    """The merged kernel, with what its parts are; the earlier sum is its last input."""
    count = whole.num_inputs

    def number(old: int) -> int:
        return old if old < count else old + 1

    parts = [Part(part.func, tuple(map(number, part.inputs))) for part in whole.parts]
    last = count + 1 + len(parts) - 1
    parts.append(Part(added, (last, count)))
    return with_parts(merged, KernelParts(count + 1, tuple(parts)))


def _adding(ty: relax.TensorType) -> tirx.PrimFunc:
    shape = [int(extent) for extent in ty.shape]
    a, b = (te.placeholder(shape, str(ty.dtype), name=name) for name in ("part", "earlier"))
    func = te.create_prim_func([a, b, topi.add(a, b)], index_dtype_override="int64")
    return func.without_attr("global_symbol").with_attrs(name_attributes("add"))


def _tensor_type(param: ir.Var) -> relax.TensorType:
    return relax.TensorType(list(map(int, param.ty.shape)), str(param.ty.dtype.dtype))
