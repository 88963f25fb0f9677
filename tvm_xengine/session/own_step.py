"""Training steps that were written in Relax, with their own gradient and optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.checks.arguments import checked
from tvm_xengine.errors import InvalidStateError, UnsupportedModuleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.relax import Values, values_by_name
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.model.source import Source
from tvm_xengine.model.training import Training
from tvm_xengine.relax_ir.dataflow import (
    returned_fields,
    single_block,
    step_function,
    with_results,
)
from tvm_xengine.relax_ir.signature import TRAIN_STEP, StepSignature, is_step
from tvm_xengine.relax_ir.types import Array, is_static, static_shape
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.step import TrainingStep


@checked
def with_step_signature(
    mod: tvm.IRModule,
    func_name: str,
    *,
    batch: Sequence[str],
    hyper: Sequence[str] = (),
    updates: Mapping[str, str | int] | None = None,
) -> tvm.IRModule:
    """The module with a training step that was written elsewhere marked as such.

    It may hold its own gradient and optimizer. The result can be compiled with `compile`, and
    scheduled with ``relax.get_pipeline("tvm_xengine")``. State that `updates` names is replaced
    when the step ends, in its own bytes where the kernel allows it.

    Parameters
    ----------
    mod
        Is not changed.
    func_name
        A pure function.
    batch, hyper
        Parameters that are given for each step; all others are state.
    updates
        For each state tensor that the step replaces, the result that is its new value: the name of
        the variable, or the position among the results. These results come last in the function
        that is returned. Others stay in front; the first of them is the loss.

    Raises
    ------
    UnsupportedModuleError
        If the function has no such parameter or result, or a type does not fit.
    """
    mod = relax.transform.ConvertToDataflow()(mod)
    func = step_function(mod, func_name)
    names = [param.name for param in func.params]
    updates = updates or {}
    if unknown := [name for name in (*batch, *hyper, *updates) if name not in names]:
        raise UnsupportedModuleError(
            f"{func_name} has no parameters {unknown}; it has {', '.join(names)}"
        )
    if given := [name for name in updates if name in (*batch, *hyper)]:
        raise UnsupportedModuleError(f"{given} are given for each step, and cannot be updated")
    new = {state: _result(func, func_name, state, result) for state, result in updates.items()}
    fields = returned_fields(func)
    first = [position for position in range(len(fields)) if position not in new.values()]
    if updates:
        results = [fields[position] for position in (*first, *new.values())]
        func = with_results(func, single_block(func).bindings, results)
    given_roles = {**dict.fromkeys(batch, Role.BATCH), **dict.fromkeys(hyper, Role.HYPER)}
    signature = StepSignature(
        tuple(given_roles.get(name, Role.PARAMETER) for name in names),
        len(first),
        _result_names([fields[position] for position in first]),
        tuple(names.index(state) for state in new),
    )
    mod = mod.clone()
    mod[func_name] = signature.write(func)
    return relax.transform.Normalize()(mod)


def is_own_step(mod: tvm.IRModule) -> bool:
    """Whether a function of a module says that it is a training step."""
    return any(is_step(func) for func in mod.functions.values())


def own_training(mod: tvm.IRModule, params: Values | None = None) -> Training:
    """The training step that a module holds.

    Parameters
    ----------
    mod
        One of its functions is marked as a training step (`with_step_signature`).
    params
        Values of its state before the first step.

    Raises
    ------
    UnsupportedModuleError
        If several functions are marked, or the step returns no loss.
    InvalidStateError
        If a value is missing, unknown, or of another shape.
    """
    marked = [symbol.name_hint for symbol, func in mod.functions.items() if is_step(func)]
    if len(marked) != 1:
        raise UnsupportedModuleError(f"expected one training step, the module has {marked}")
    func = step_function(mod, marked[0])
    signature = StepSignature.read(func)
    fields = returned_fields(func)
    if not signature.num_results or not _is_scalar(fields[0]):
        raise UnsupportedModuleError(
            f"{marked[0]} must return its loss first, a scalar; name those results that are new"
            " state with `updates` of with_step_signature"
        )
    roles = _roles(func, signature)
    values = _initial(func, signature, values_by_name(func, params))
    by_role = list(zip(signature.roles, (param.name for param in func.params), strict=True))
    order = [
        *(name for wanted in (Role.BATCH, Role.HYPER) for role, name in by_role if role is wanted),
        *(name for use in Use for name, role in roles.items() if role.use is use),
    ]
    func, signature = _reordered(func, signature, order)
    mod = mod.clone()
    del mod[marked[0]]
    mod[TRAIN_STEP] = signature.write(func).with_attr("global_symbol", TRAIN_STEP)
    mod = relax.transform.DeadCodeElimination([TRAIN_STEP])(mod)
    state = {name: values[name] for name in order if name in roles}
    step = TrainingStep(marked[0], mod, state)
    model = _as_model(step, roles)
    return Training(Source(model, model, signature.num_results, tuple), None, step)


def _result(func: relax.Function, func_name: str, state: str, result: str | int) -> int:
    """Position of the result that replaces a state tensor."""
    fields = returned_fields(func)
    names = [getattr(field, "name", "") for field in fields]
    position = result if isinstance(result, int) else names.index(result) if result in names else -1
    if not 0 <= position < len(fields):
        raise UnsupportedModuleError(
            f"{func_name} returns no {result!r}; its {len(fields)} results are {', '.join(names)}"
        )
    old = next(param.ty for param in func.params if param.name == state)
    new = fields[position].ty
    if isinstance(new, relax.TupleType):
        raise UnsupportedModuleError(
            f"result {position} of {func_name} is a tuple itself; return its tensors side by side"
            " with the others"
        )
    if not (is_static(old) and is_static(new)):
        raise UnsupportedModuleError(
            f"{state} and its new value need shapes of numbers: {old}, {new}"
        )
    if (static_shape(old), str(old.dtype)) != (static_shape(new), str(new.dtype)):
        raise UnsupportedModuleError(f"{state} is {old}, but what replaces it is {new}")
    return position


def _result_names(fields: Sequence[relax.Expr]) -> tuple[str, ...]:
    """Names of results: ``loss``, then those of their variables."""
    names: list[str] = []
    for position, field in enumerate(fields):
        name = "loss" if not position else getattr(field, "name", "")
        names.append(name if name and name not in names else f"result_{position}")
    return tuple(names)


def _is_scalar(value: relax.Expr) -> bool:
    return is_static(value.ty) and static_shape(value.ty) == ()


def _roles(func: relax.Function, signature: StepSignature) -> dict[str, TensorRole]:
    """What the step does with each state tensor: numbers that it replaces are trained."""
    roles = {}
    for position, (param, role) in enumerate(zip(func.params, signature.roles, strict=True)):
        if not role.is_persistent:
            continue
        is_updated = position in signature.updates
        if "float" in str(param.ty.dtype):
            use = Use.TRAINED if is_updated else Use.FROZEN
        else:
            use = Use.STATISTIC if is_updated else Use.CONSTANT
        roles[param.name] = TensorRole(param.name, param.name, use)
    return roles


def _initial(
    func: relax.Function, signature: StepSignature, values: Mapping[str, Array]
) -> dict[str, Array]:
    """The values of all state, in the types of the function."""
    pairs = zip(func.params, signature.roles, strict=True)
    state = {param.name: param.ty for param, role in pairs if role.is_persistent}
    missing = [name for name in state if name not in values]
    unknown = [name for name in values if name not in state]
    if missing or unknown:
        wrong = f"{missing} are missing" if missing else f"{unknown} are no state"
        raise InvalidStateError(f"expected `params` for {', '.join(state)}; {wrong}")
    for name, ty in state.items():
        if values[name].shape != static_shape(ty):
            raise InvalidStateError(
                f"{name} must have shape {static_shape(ty)}, its value has {values[name].shape}"
            )
    return {name: np.array(values[name], str(ty.dtype)) for name, ty in state.items()}


def _reordered(
    func: relax.Function, signature: StepSignature, order: Sequence[str]
) -> tuple[relax.Function, StepSignature]:
    """The function with its parameters in another order."""
    names = [param.name for param in func.params]
    place = [names.index(name) for name in order]
    params = [func.params[position] for position in place]
    made = StepSignature(
        tuple(signature.roles[position] for position in place),
        signature.num_results,
        signature.results or _result_names(returned_fields(func)[: signature.num_results]),
        tuple(order.index(names[position]) for position in signature.updates),
        signature.ranges,
    )
    return relax.Function(params, func.body, func.ret_ty, func.is_pure, func.attrs), made


def _as_model(step: TrainingStep, roles: Mapping[str, TensorRole]) -> ForwardModel:
    """The step with its tensors as a model describes them."""

    def of(*uses: Use) -> dict[str, Array]:
        return {name: v for name, v in step.initial_state.items() if roles[name].use in uses}

    return ForwardModel(
        step.name,
        tvm.IRModule({"main": step.function}),
        (*step.batch_names, *step.hyper_names),
        of(Use.TRAINED, Use.FROZEN),
        of(Use.STATISTIC),
        of(Use.CONSTANT),
        tuple(roles.values()),
    )
