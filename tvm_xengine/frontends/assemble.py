"""From an imported Relax function and its values to a forward model."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import tvm
from tvm import relax

from tvm_xengine.frontends.model import Array, ForwardModel
from tvm_xengine.training.forward_ops import ForwardOps, read_forward_ops
from tvm_xengine.training.gradients.normalisation import running_statistics


def assemble(
    name: str, mod: tvm.IRModule, values: Mapping[str, Array], trainable: Collection[str]
) -> ForwardModel:
    """The forward model of ``main``, whose parameters without a value are inputs.

    Ops that the output does not depend on go, and so do the tensors that only they read. The
    parameters of ``main`` are ordered, and large constants inside it become parameters.
    """
    source = read_forward_ops(mod["main"]).live()
    readers = source.consumers()
    statistics = {var.name for var in running_statistics(source)}
    inputs = [param for param in source.params if param.name not in values]
    state = [param for param in source.params if param.name in values and param in readers]
    lifted = _large_constants(source)
    groups: dict[str, list[str]] = {"parameter": [], "statistic": [], "constant": []}
    for param in state:
        if param.name in statistics:
            groups["statistic"].append(param.name)
        else:
            groups["parameter" if param.name in trainable else "constant"].append(param.name)
    ordered = [*groups["parameter"], *groups["statistic"], *groups["constant"]]
    by_name = {param.name: param for param in state}
    params = [*inputs, *(by_name[one] for one in ordered), *(var for var, _ in lifted.values())]
    mod = tvm.IRModule({"main": _rewritten(source, params, lifted)})
    constants = {var.name: value for var, value in lifted.values()}
    return ForwardModel(
        name,
        mod,
        tuple(param.name for param in inputs),
        {one: values[one] for one in groups["parameter"]},
        {one: values[one] for one in groups["statistic"]},
        {**{one: values[one] for one in groups["constant"]}, **constants},
    )


def _large_constants(source: ForwardOps) -> dict[relax.Expr, tuple[relax.Var, Array]]:
    """A parameter for each constant tensor that is not a scalar."""
    lifted: dict[relax.Expr, tuple[relax.Var, Array]] = {}
    for op in source.ops:
        for operand in op.operands:
            if (
                isinstance(operand, tvm.ir.GenericConst)
                and operand.ty.ndim
                and operand not in lifted
            ):
                var = relax.Var(f"constant_{len(lifted)}_of_{op.name}", operand.ty)
                lifted[operand] = (var, operand.value.numpy())
    return lifted


def _rewritten(
    source: ForwardOps,
    params: list[relax.Var],
    lifted: Mapping[relax.Expr, tuple[relax.Var, Array]],
) -> relax.Function:
    builder = relax.BlockBuilder()
    made: dict[relax.Expr, relax.Expr] = {constant: var for constant, (var, _) in lifted.items()}
    with builder.function("main", params=params):
        with builder.dataflow():
            for op in source.ops:
                operands = [made.get(operand, operand) for operand in op.operands]
                value = builder.emit(op.rebuild(operands), op.name)
                if isinstance(value.ty, relax.TupleType):
                    for position, result in enumerate(op.results):
                        field = relax.TupleGetItem(value, position)
                        made[result] = builder.emit(field, f"{op.name}_{position}")
                else:
                    made[op.results[0]] = value
            outputs = [made.get(output, output) for output in source.outputs]
            result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
            output = builder.emit_output(result, "output")
        builder.emit_func_output(output)
    return builder.get()["main"]
