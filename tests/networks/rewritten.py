"""The same forward model in double precision, or without its dropout."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.forward_ops import ForwardOp, read_forward_ops
from tvm_xengine.relax_ir.types import Array

Emit = Callable[[relax.BlockBuilder, ForwardOp, list[relax.Expr]], list[relax.Expr]]


def as_float64(model: ForwardModel) -> ForwardModel:
    """The model with float64 where it has float32."""
    state = {name: _doubled(value) for name, value in model.state.items()}
    return _rewritten(model, state, _emit, _double_type)


def without_dropout(model: ForwardModel) -> ForwardModel:
    """The model whose dropouts pass everything through."""

    def emit(
        builder: relax.BlockBuilder, op: ForwardOp, operands: list[relax.Expr]
    ) -> list[relax.Expr]:
        if op.op == "relax.nn.dropout":
            return [operands[0], operands[0]]
        return _emit(builder, op, operands)

    return _rewritten(model, model.state, emit, lambda ty: ty)


def _rewritten(
    model: ForwardModel,
    state: Mapping[str, Array],
    emit: Emit,
    new_type: Callable[[relax.TensorType], relax.TensorType],
) -> ForwardModel:
    source = read_forward_ops(model.main)
    builder = relax.BlockBuilder()
    made: dict[relax.Expr, relax.Expr] = {
        param: relax.Var(param.name, new_type(param.ty)) for param in source.params
    }
    is_double = any("64" in str(value.dtype) for value in state.values() if value.dtype.kind == "f")

    def read(operand: relax.Expr) -> relax.Expr:
        if isinstance(operand, tvm.ir.expr.GenericConst) and is_double:
            value = _doubled(operand.value.numpy())
            return relax.const(value, str(value.dtype))
        return made.get(operand, operand)

    with builder.function("main", params=[made[param] for param in source.params]):
        with builder.dataflow():
            for op in source.ops:
                results = emit(builder, op, [read(operand) for operand in op.operands])
                made.update(zip(op.results, results, strict=True))
            output = builder.emit_output(made[source.outputs[0]], "output")
        builder.emit_func_output(output)
    return assemble(model.name, builder.get(), state, set(model.parameters))


def _emit(
    builder: relax.BlockBuilder, op: ForwardOp, operands: list[relax.Expr]
) -> list[relax.Expr]:
    call = op.rebuild(operands)
    if "dtype" in getattr(call.attrs, "keys", list)() and str(call.attrs.dtype) == "float32":
        raise NotImplementedError(f"{op.op} (in {op.name}) makes float32")
    value = builder.emit(call, op.name)
    if not isinstance(value.ty, relax.TupleType):
        return [value]
    return [
        builder.emit(relax.TupleGetItem(value, k), f"{op.name}_{k}") for k in range(len(op.results))
    ]


def _double_type(ty: relax.TensorType) -> relax.TensorType:
    return relax.TensorType(ty.shape, "float64") if str(ty.dtype) == "float32" else ty


def _doubled(value: Array) -> Array:
    return value.astype("float64") if value.dtype == np.float32 else value
