"""The generated rest of a fused kernel when a library computes one of its parts."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from tvm_xengine.kernels.library.parts import KernelParts

_NAME = "rest"


@dataclass(frozen=True)
class Rest:
    """The other parts as one kernel, which reads what the library made.

    Attributes
    ----------
    func
        Its inputs are the values of `reads` in this order.
    reads
        Numbers as in :class:`KernelParts`.
    """

    func: tirx.PrimFunc
    reads: tuple[int, ...]


def without_parts(whole: KernelParts, taken: frozenset[int]) -> Rest | None:
    """The parts that are not `taken`, fused; None where nothing remains.

    Parameters
    ----------
    taken
        Positions of the parts that the library computes.
    """
    left = [k for k in range(len(whole.parts)) if k not in taken]
    if not left:
        return None
    own = {whole.value_of(k) for k in left}
    reads = tuple(dict.fromkeys(n for k in left for n in whole.parts[k].inputs if n not in own))
    builder = relax.BlockBuilder()
    shapes = _types(whole)
    values: dict[int, relax.Expr] = {n: relax.Var(f"value{n}", shapes[n]) for n in reads}
    params = list(values.values())
    with builder.function(_NAME, params, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            for k in left:
                part = whole.parts[k]
                symbol = builder.add_func(part.func, f"part{k}")
                arguments = relax.Tuple([values[n] for n in part.inputs])
                call = relax.call_tir(symbol, arguments, shapes[whole.value_of(k)])
                is_last = k == left[-1]
                values[whole.value_of(k)] = (
                    builder.emit_output(call) if is_last else builder.emit(call)
                )
        builder.emit_func_output(values[whole.value_of(left[-1])])
    mod = _called_once(builder.get(), params)
    fused = tvm.transform.Sequential([relax.transform.FuseTIR()])(mod)
    return Rest(fused[_NAME], reads)


def _called_once(mod: tvm.IRModule, params: list[relax.Var]) -> tvm.IRModule:
    """The module with a function that calls the fused one, without which FuseTIR drops it."""
    builder = relax.BlockBuilder(mod)
    given = [relax.Var(f"given{k}", param.ty) for k, param in enumerate(params)]
    with builder.function("caller", given):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(mod.get_global_var(_NAME), given))
        builder.emit_func_output(result)
    return builder.get()


def _types(whole: KernelParts) -> dict[int, relax.TensorType]:
    """Type of every value."""
    types: dict[int, relax.TensorType] = {}
    for k, part in enumerate(whole.parts):
        *given, made = part.func.params
        for number, param in zip(part.inputs, given, strict=True):
            types[number] = _type(param)
        types[whole.value_of(k)] = _type(made)
    return types


def _type(param: tvm.ir.Var) -> relax.TensorType:
    return relax.TensorType([int(extent) for extent in param.ty.shape], str(param.ty.dtype.dtype))
