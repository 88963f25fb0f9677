"""The forward function in inference mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.batch_norms import BATCH_NORMS
from tvm_xengine.relax_ir.forward_ops import ForwardOp, read_forward_ops
from tvm_xengine.relax_ir.hints import HINTS
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.forward.input_ranges import index_ranges
from tvm_xengine.training.forward.simplify import simplified
from tvm_xengine.training.gradients.normalisation import emit_frozen_batch_norm
from tvm_xengine.training.gradients.rules import gradient_rules
from tvm_xengine.training.rule import Rule, Site


def evaluation_module(model: ForwardModel) -> tvm.IRModule:
    """A module whose ``main`` is the forward function in inference mode.

    Batch norms use their running statistics, dropout passes everything through, and no buffer is
    written. The parameters
    of ``main`` are those of the model, in the same order; its signature says which values integer
    inputs may have.
    """
    return evaluation_of(model.main, len(model.input_names), model.constants)


def evaluation_of(main: relax.Function, count: int, values: Mapping[str, Array]) -> tvm.IRModule:
    """The same for a forward function with `count` inputs and these values of constants."""
    source = simplified(replace(read_forward_ops(main), writes=()).live())
    rules = gradient_rules()
    builder = relax.BlockBuilder()
    emitter = Emitter(builder)
    made: dict[relax.Var, relax.Expr] = {
        param: relax.Var(param.name, param.ty) for param in source.params
    }
    with builder.function("main"):
        with builder.dataflow():
            for op in source.ops:
                operands = tuple(
                    made.get(read, read) if isinstance(read, relax.Var) else read
                    for read in op.operands
                )
                made.update(zip(op.results, _emit(emitter, op, operands, rules), strict=True))
            outputs = [made.get(output, output) for output in source.outputs]
            value = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
            output = builder.emit_output(value, "output")
        builder.emit_func_output(output, params=[made[param] for param in source.params])
    mod = relax.transform.DeadCodeElimination(["main"])(builder.get())
    roles = (Role.BATCH,) * count + (Role.PARAMETER,) * (len(source.params) - count)
    ranges = index_ranges(source, source.params[:count], values)
    results = result_names(len(outputs))
    mod["main"] = StepSignature(roles, len(outputs), results, ranges=ranges).write(mod["main"])
    return mod


def result_names(count: int) -> tuple[str, ...]:
    """Names of the results of a forward function with `count` outputs."""
    return ("output",) if count == 1 else tuple(f"output_{k}" for k in range(count))


def _emit(
    emitter: Emitter, op: ForwardOp, operands: tuple[relax.Expr, ...], rules: Mapping[str, Rule]
) -> tuple[relax.Expr, ...]:
    if op.op in HINTS:  # they speak of the training step
        return operands
    site = Site(op, operands, needs=(False,) * len(operands))
    if op.op in BATCH_NORMS:
        return (emit_frozen_batch_norm(emitter, site), *operands[3:5])
    if op.op not in rules:
        return site.emit(emitter)
    try:
        return rules[op.op](emitter, site).outputs
    except UnsupportedModelError:  # only its gradient is unsupported
        return site.emit(emitter)
