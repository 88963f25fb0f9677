"""From an imported Relax function and its values to a forward model."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import tvm
from tvm import relax

from tvm_xengine.checks.names import some
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import UniqueNames
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.frontends.step_names import OF_MODEL, is_of_step
from tvm_xengine.relax_ir.batch_norms import running_statistics
from tvm_xengine.relax_ir.constants import lift_constants
from tvm_xengine.relax_ir.forward_ops import ForwardOps, read_forward_ops
from tvm_xengine.relax_ir.indices.values import index_values
from tvm_xengine.relax_ir.types import Array

logger = logging.getLogger(__name__)


def assemble(
    name: str,
    mod: tvm.IRModule,
    values: Mapping[str, Array],
    trainable: Collection[str],
    *,
    origins: Iterable[TensorRole] = (),
    notes: Iterable[str] = (),
) -> ForwardModel:
    """The forward model of ``main``, whose parameters without a value are inputs.

    Ops that the output does not depend on go, and so do the tensors that only they read. The
    parameters of ``main`` are ordered, and large constants inside it become parameters.

    Parameters
    ----------
    origins, notes
        As in `ForwardModel`; roles of tensors that go are left out.
    """
    source, constants = lift_constants(read_forward_ops(mod["main"]).live())
    values = {**values, **constants}
    _require_known_indices(source, {k: v for k, v in values.items() if k not in trainable})
    readers = source.consumers()
    replaced = {*running_statistics(source), *(param for param, _ in source.writes)}
    statistics = {var.name for var in replaced}
    inputs = [param for param in source.params if param.name not in values]
    state = [param for param in source.params if param.name in values and param in readers]
    origins = tuple(origins)
    called = {role.variable: role.name for role in origins}
    if unread := set(trainable) - {param.name for param in state}:
        said = some(sorted(called.get(one, one) for one in unread))
        logger.warning("%s: the output does not depend on %s: left out", name, said)
    groups: dict[str, list[str]] = {"parameter": [], "statistic": [], "constant": []}
    for param in state:
        if param.name in statistics:
            groups["statistic"].append(param.name)
        else:
            groups["parameter" if param.name in trainable else "constant"].append(param.name)
    ordered = [*groups["parameter"], *groups["statistic"], *groups["constant"]]
    by_name = {param.name: param for param in state}
    params = [*inputs, *(by_name[one] for one in ordered)]
    renamed = _without_step_names(params)
    new = {old.name: made.name for old, made in renamed.items()}
    mod = tvm.IRModule({"main": forward_function(source, params, renamed)})
    kept = [role for role in origins if role.variable in by_name]
    unnamed = new.keys() & by_name.keys() - {role.variable for role in kept}
    parameters, averages, constants = (
        {new.get(one, one): values[one] for one in group} for group in groups.values()
    )
    return ForwardModel(
        name,
        mod,
        tuple(new.get(param.name, param.name) for param in inputs),
        parameters,
        averages,
        constants,
        (
            *(replace(role, variable=new.get(role.variable, role.variable)) for role in kept),
            *(TensorRole(new[one], one, Use.TRAINED) for one in sorted(unnamed)),
        ),
        tuple(notes),
    )


def _require_known_indices(source: ForwardOps, values: Mapping[str, Array]) -> None:
    """Refuse indices that the model holds itself and that name no place of what they index."""
    for read in index_values(source, (), values).reads:
        if (wrong := read.first_outside()) is not None:
            place, extent = wrong
            raise UnsupportedModelError(
                f"{read.op.name} ({read.op.op.removeprefix('relax.')}) has a constant index that is"
                f" {place}, counted from 0, where there are {extent} places: correct the model"
            )


def with_output(model: ForwardModel, position: int) -> ForwardModel:
    """The model that returns only one of the tensors that `model` returns."""
    source = read_forward_ops(model.main)
    if not 0 <= position < len(source.outputs):
        raise UnsupportedModelError(
            f"{model.name} returns {len(source.outputs)} tensors, there is none at {position}"
        )
    one = replace(source, outputs=(source.outputs[position],)).live()
    return with_main(model, forward_function(one, list(source.params)))


def without_final_softmax(model: ForwardModel) -> ForwardModel:
    """The model that returns logits where it returned their softmax; others as they are.

    Files made for inference often end in a softmax, which cross-entropy brings along itself.
    """
    source = read_forward_ops(model.main)
    maker = {result: op for op in source.ops for result in op.results}
    last = maker.get(source.outputs[0])
    while last is not None and last.op == "relax.reshape":
        last = maker.get(last.operands[0])
    if len(source.outputs) > 1 or last is None or last.op != "relax.nn.softmax":
        return model
    softmax, (logits,) = last.results[0], last.operands
    ops = tuple(
        replace(op, operands=tuple(logits if x is softmax else x for x in op.operands))
        for op in source.ops
        if op is not last
    )
    returned = [logits if value is softmax else value for value in source.returned]
    bare = replace(source, ops=ops).returning(returned)
    return with_main(model, forward_function(bare, list(bare.params)))


def without_writes(model: ForwardModel) -> ForwardModel:
    """The model that leaves the buffers as they are which it writes itself."""
    source = read_forward_ops(model.main)
    if not source.writes:
        return model
    pure = replace(source, writes=()).live()
    return with_main(model, forward_function(pure, list(pure.params)))


def with_main(
    model: ForwardModel,
    main: relax.Function,
    *,
    constants: Mapping[str, Array] | None = None,
    replaced: Collection[str] = (),
    notes: Iterable[str] = (),
) -> ForwardModel:
    """`model` with another function of the same inputs, of its tensors and of further constants.

    Tensors that the function does not read go.

    Parameters
    ----------
    constants
        Values of the further constants, by name.
    replaced
        Tensors that these stand for, so that nobody misses them.
    notes
        Sentences about the new model.
    """
    again = assemble(
        model.name,
        tvm.IRModule({"main": main}),
        {**model.state, **(constants or {})},
        set(model.parameters) - set(replaced),
        origins=model.origins,
        notes=(*model.notes, *notes),
    )
    return replace(
        again,
        places=model.places,
        counters=model.counters,
        folded=model.folded,
        own=model.own,
        weight_scales=model.weight_scales,
    )


def _without_step_names(params: Iterable[relax.Var]) -> dict[relax.Var, relax.Var]:
    """New variables for the parameters that are called like something that a step brings along."""
    taken = UniqueNames()
    params = list(params)
    for param in params:
        taken.fresh(param.name)
    return {
        param: relax.Var(taken.fresh(f"{OF_MODEL}{param.name}"), param.ty)
        for param in params
        if is_of_step(param.name)
    }


def forward_function(
    source: ForwardOps,
    params: list[relax.Var],
    renamed: Mapping[relax.Var, relax.Var] | None = None,
) -> relax.Function:
    """A Relax function of these ops, whose parameters are those of `params`, some by another name."""
    builder = relax.BlockBuilder()
    made: dict[relax.Expr, relax.Expr] = dict(renamed or {})
    with builder.function("main", params=[made.get(param, param) for param in params]):
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
            returned = [made.get(value, value) for value in source.returned]
            result = returned[0] if len(returned) == 1 else relax.Tuple(returned)
            output = builder.emit_output(result, "output")
        builder.emit_func_output(output)
    return replace(source, params=tuple(params)).written(builder.get()["main"])
