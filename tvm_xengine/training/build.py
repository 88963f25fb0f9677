"""From a forward function to the training step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.checks.names import some
from tvm_xengine.errors import MissingGradientError, UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.lower.hidden_indices import HideIndices
from tvm_xengine.relax_ir.constants import lift_constants
from tvm_xengine.relax_ir.forward_ops import ForwardOps, read_forward_ops
from tvm_xengine.relax_ir.kernel_calls import write_origins
from tvm_xengine.relax_ir.signature import TRAIN_STEP, StepSignature
from tvm_xengine.relax_ir.types import SHORT_FLOATS, Array, is_static
from tvm_xengine.training.body.assembly import Assembly
from tvm_xengine.training.body.declaration import SEED
from tvm_xengine.training.composites import expand_composites
from tvm_xengine.training.differentiate import active_variables, blocking_ops
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.forward.input_ranges import value_ranges
from tvm_xengine.training.forward.precision import (
    in_mixed_precision,
    with_sensitive_ops_widened,
)
from tvm_xengine.training.forward.simplify import simplified
from tvm_xengine.training.losses import Loss
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep, zeros_like_type

logger = logging.getLogger(__name__)


def build_training_step(
    model: ForwardModel,
    *,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    trainable: Iterable[str] | None = None,
    seed: int = 0,
) -> TrainingStep:
    """The training step of a model, with the state it starts from.

    Parameters
    ----------
    trainable
        Names of the parameters to train; None trains ``model.trained``.
    seed
        Start of the random numbers that dropout draws.
    """
    usual = Recipe()
    recipe = Recipe(loss or usual.loss, optimizer or usual.optimizer)
    return build_step_by_recipe(model, recipe, trainable=trainable, seed=seed)


def build_step_by_recipe(
    model: ForwardModel,
    recipe: Recipe,
    *,
    trainable: Iterable[str] | None = None,
    seed: int = 0,
) -> TrainingStep:
    """The training step of a model after a full recipe, not only loss and optimizer."""
    names = list(model.trained) if trainable is None else list(trainable)
    if unknown := [name for name in names if name not in model.parameters]:
        raise ValueError(
            f"{model.name} has no parameters {unknown}; it has {', '.join(model.parameters)}"
        )
    source, constants = lift_constants(prepare(model.main, recipe))
    known = {**model.constants, **constants}
    called = {role.variable: role.name for role in model.roles}
    mod, slots = _assembled(source, len(model.input_names), names, recipe, known, called)
    initial: dict[str, Array] = {}
    roles = StepSignature.read(mod[TRAIN_STEP]).roles
    given = {**model.state, **constants, SEED: np.array(seed, "int32")}
    slot_values = {
        state: recipe.optimizers[recipe.group_of(name)].initial_slot
        for name, by_slot in slots.items()
        for state in by_slot.values()
    }
    for param, role in zip(mod[TRAIN_STEP].params, roles, strict=True):
        if not role.is_persistent:
            continue
        value = given.get(param.name)
        if value is None or param.name in slot_values:
            zeros = zeros_like_type(param.ty)
            value = np.full_like(zeros, slot_values.get(param.name, 0))
        initial[param.name] = value
    return TrainingStep(model.name, mod, initial, slots)


def build_training_module(
    forward: relax.Function, num_inputs: int, trainable: Sequence[str], recipe: Recipe
) -> tvm.IRModule:
    """A module with ``train_step`` and its kernels.

    Parameters
    ----------
    num_inputs
        How many leading parameters of `forward` come from a batch; the others are state.
    trainable
        Names of the parameters that are trained.
    """
    return assemble_step(prepare(forward, recipe), num_inputs, trainable, recipe)


def assemble_step(
    source: ForwardOps, num_inputs: int, trainable: Sequence[str], recipe: Recipe
) -> tvm.IRModule:
    """The same for a forward function that `prepare` has read."""
    return _assembled(source, num_inputs, trainable, recipe, {}, {})[0]


def _assembled(
    source: ForwardOps,
    num_inputs: int,
    trainable: Sequence[str],
    recipe: Recipe,
    constants: Mapping[str, Array],
    called: Mapping[str, str],
) -> tuple[tvm.IRModule, dict[str, dict[str, str]]]:
    """The module, and the names of the optimizer's state by parameter and slot.

    Parameters
    ----------
    called
        The model's own names of parameters, for messages.
    """
    names = set(trainable)
    state = _used_state(source, num_inputs, called)
    trained = [param for param in state if param.name in names]
    _check_trained(source, trained, names, called)
    builder = relax.BlockBuilder()
    assembly = Assembly(Emitter(builder), source, recipe, num_inputs, trained)
    with builder.function(TRAIN_STEP):
        with builder.dataflow():
            results, replaced = assembly.emit()
            fields = [*results.values(), *(new for _, new in replaced)]
            output = builder.emit_output(relax.Tuple(fields), "step_results")
        order = [param for param, _ in assembly.params]
        builder.emit_func_output(output, params=order)
    mod = builder.get()
    signature = StepSignature(
        roles=tuple(role for _, role in assembly.params),
        num_results=len(results),
        results=tuple(results),
        updates=tuple(order.index(old) for old, _ in replaced),
        ranges=value_ranges(
            source, source.params[:num_inputs], recipe.loss, assembly.labels, constants
        ),
    )
    func = signature.write(mod[TRAIN_STEP].with_attr("global_symbol", TRAIN_STEP))
    mod[TRAIN_STEP] = write_origins(func, assembly.origins) if assembly.origins else func
    last = [relax.transform.DeadCodeElimination([TRAIN_STEP]), HideIndices()]
    return tvm.transform.Sequential(last)(mod), assembly.slots


def read_supported_ops(forward: relax.Function) -> ForwardOps:
    """The live ops of a forward function, all with known shapes.

    Raises
    ------
    UnsupportedModelError
        Names what has no fixed shape, or is no operator of Relax.
    """
    if dynamic := [param for param in forward.params if not is_static(param.ty)]:
        places = ", ".join(f"{param.name}: {param.ty}" for param in dynamic)
        raise UnsupportedModelError(
            f"the model has dynamic shapes ({places}); every dimension must be a number"
        )
    source = read_forward_ops(forward).live()
    _check_ops(source)
    return source


def prepare(forward: relax.Function, recipe: Recipe) -> ForwardOps:
    """The live ops of a forward function in the form that is differentiated."""
    source = read_supported_ops(forward)
    if len(source.outputs) != 1:
        raise UnsupportedModelError(
            f"the model returns {len(source.outputs)} tensors, a loss is made of one; "
            "choose it with --output-index, or with output= in Python"
        )
    if "float" not in str(source.outputs[0].ty.dtype):
        raise UnsupportedModelError(
            f"the model returns {source.outputs[0].ty}; a loss needs a floating-point tensor"
        )
    if recipe.precision is not None:
        source = in_mixed_precision(expand_composites(source), recipe.precision.dtype)
    else:
        source = with_sensitive_ops_widened(source)
    return simplified(source, residuals_apart=recipe.residuals_apart)


def _check_ops(source: ForwardOps) -> None:
    """Every op must be one of Relax and have results of known shape."""
    if kernels := [op for op in source.ops if op.op.startswith("relax.call_")]:
        places = ", ".join(f"{op.call.args[0]} (in {op.name})" for op in kernels)
        raise MissingGradientError(
            f"{len(kernels)} ops of the model are kernels or external functions, which have no"
            f" gradient: {places}; write them with operators of Relax"
        )
    results = ((op, result) for op in source.ops for result in op.results)
    if dynamic := [(op, result) for op, result in results if not is_static(result.ty)]:
        places = ", ".join(f"{op.op} (in {op.name}) makes {result.ty}" for op, result in dynamic)
        raise UnsupportedModelError(
            f"shapes of the model are known at run time only: {places}; "
            "every dimension must be a number"
        )


def _used_state(source: ForwardOps, num_inputs: int, called: Mapping[str, str]) -> list[relax.Var]:
    readers = source.consumers()
    inputs, state = source.params[:num_inputs], source.params[num_inputs:]
    if unread := [param for param in inputs if param not in readers]:
        for param in unread:
            if 0 in shape_of(param):
                raise UnsupportedModelError(
                    f"the input {param.name} of shape {shape_of(param)} has no elements; give an"
                    " example with at least one sample"
                )
        names = [param.name for param in unread]
        raise UnsupportedModelError(
            f"the output does not depend on the values of the inputs {some(names)}; take these out of the"
            " model's inputs, or compute with them (their shapes, and numbers that were read from them"
            " before the export, are constants)"
        )
    if unread := [called.get(p.name, p.name) for p in state if p not in readers]:
        logger.warning("the output does not depend on %s: left out of the step", some(unread))
    return [param for param in state if param in readers]


def _check_trained(
    source: ForwardOps,
    trained: Sequence[relax.Var],
    names: Iterable[str],
    called: Mapping[str, str],
) -> None:
    if not trained:
        wanted = sorted(called.get(name, name) for name in names)
        raise UnsupportedModelError(
            f"nothing to train: the output depends on none of {some(wanted)}"
            if wanted
            else "nothing to train: the model has no parameter that is not frozen"
        )
    for param in trained:
        if (dtype := str(param.ty.dtype)) in SHORT_FLOATS:
            raise UnsupportedModelError(
                f"expected trained parameters of float32 or float64, found {dtype} in"
                f" {called.get(param.name, param.name)};"
                f" store them as float32, and ask for the precision {dtype} to compute in it, or"
                " freeze them"
            )
    active = active_variables(source, trained)
    if source.outputs[0] not in active:
        places = ", ".join(f"{op.op} (in {op.name})" for op in blocking_ops(source, active))
        raise MissingGradientError(
            "the output depends on the trained parameters only through ops without derivative:"
            f" {places}"
        )
