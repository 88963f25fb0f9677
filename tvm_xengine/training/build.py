"""From a forward function to the training step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import Array, ForwardModel, is_static
from tvm_xengine.training.composites import expand_composites
from tvm_xengine.training.constants import lift_constants
from tvm_xengine.training.differentiate import Randomness, active_variables, emit_forward
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.forward_ops import ForwardOps, read_forward_ops
from tvm_xengine.training.gradients.linear import merge_transposed_matmul
from tvm_xengine.training.gradients.normalisation import (
    merge_batch_norm_relu,
    running_statistics,
)
from tvm_xengine.training.gradients.randomness import draws_random_numbers
from tvm_xengine.training.kernels.optimizer import advance_step, clipping_scale, squared_norm
from tvm_xengine.training.losses import CrossEntropy, EmittedLoss, Loss
from tvm_xengine.training.optimizers import SGD, Optimizer, Update
from tvm_xengine.training.step import (
    BATCH,
    CONSTANT,
    HYPER,
    NUM_RESULTS_ATTR,
    OPTIMIZER_STATE,
    PARAMETER,
    RESULTS_ATTR,
    ROLES_ATTR,
    STATISTIC,
    TRAIN_STEP,
    UPDATES_ATTR,
    TrainingStep,
    zeros_like_type,
)

logger = logging.getLogger(__name__)

LABELS = "labels"
LEARNING_RATE = "lr"
SEED = "seed"
STEP = "step"


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes
    ----------
    loss, optimizer
        What is minimised, and how.
    max_gradient_norm
        Limit for the norm of all gradients together; None does not clip.
    micro_batches
        Into how many equal parts the batch is cut; their gradients are averaged.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    optimizer: Optimizer = field(default_factory=lambda: SGD(momentum=0.9))
    max_gradient_norm: float | None = None
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.max_gradient_norm is not None and self.max_gradient_norm <= 0:
            raise ValueError(f"max_gradient_norm must be > 0, got {self.max_gradient_norm}")
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be >= 1, got {self.micro_batches}")


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
        Names of the parameters to train; None trains all of ``model.parameters``.
    seed
        Start of the random numbers that dropout draws.
    """
    recipe = Recipe(loss or CrossEntropy(), optimizer or SGD(momentum=0.9))
    return build_step_by_recipe(model, recipe, trainable=trainable, seed=seed)


def build_step_by_recipe(
    model: ForwardModel,
    recipe: Recipe,
    *,
    trainable: Iterable[str] | None = None,
    seed: int = 0,
) -> TrainingStep:
    """The training step of a model after a recipe that says more than loss and optimizer."""
    names = list(model.parameters) if trainable is None else list(trainable)
    if unknown := [name for name in names if name not in model.parameters]:
        raise ValueError(
            f"{model.name} has no parameters {unknown}; it has {', '.join(model.parameters)}"
        )
    source, constants = lift_constants(prepare(model.main))
    mod = assemble_step(source, len(model.input_names), names, recipe)
    initial: dict[str, Array] = {}
    roles = [str(role) for role in mod[TRAIN_STEP].attrs[ROLES_ATTR]]
    given = {**model.state, **constants, SEED: np.array(seed, "int32")}
    for param, role in zip(mod[TRAIN_STEP].params, roles, strict=True):
        if role not in (BATCH, HYPER):
            initial[param.name] = (
                given[param.name] if param.name in given else zeros_like_type(param.ty)
            )
    return TrainingStep(model.name, mod, initial)


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
    return assemble_step(prepare(forward), num_inputs, trainable, recipe)


def assemble_step(
    source: ForwardOps, num_inputs: int, trainable: Sequence[str], recipe: Recipe
) -> tvm.IRModule:
    """The same for a forward function that `prepare` has read."""
    names = set(trainable)
    state = _used_state(source, num_inputs)
    trained = [param for param in state if param.name in names]
    _check_trained(source, trained, names)
    builder = relax.BlockBuilder()
    assembly = _Assembly(Emitter(builder), source, recipe, num_inputs, trained)
    with builder.function(TRAIN_STEP):
        with builder.dataflow():
            results, replaced = assembly.emit()
            fields = [*results.values(), *(new for _, new in replaced)]
            output = builder.emit_output(relax.Tuple(fields), "step_results")
        order = [param for param, _ in assembly.params]
        builder.emit_func_output(output, params=order)
    mod = builder.get()
    mod[TRAIN_STEP] = mod[TRAIN_STEP].with_attrs(
        {
            "global_symbol": TRAIN_STEP,
            ROLES_ATTR: [role for _, role in assembly.params],
            NUM_RESULTS_ATTR: len(results),
            RESULTS_ATTR: list(results),
            UPDATES_ATTR: [order.index(old) for old, _ in replaced],
        }
    )
    return relax.transform.DeadCodeElimination([TRAIN_STEP])(mod)


def prepare(forward: relax.Function) -> ForwardOps:
    """The live ops of a forward function in the form that is differentiated."""
    for param in forward.params:
        if not is_static(param.ty):
            raise UnsupportedModelError(
                f"{param.name} has the dynamic type {param.ty}; every dimension must be a number"
            )
    source = read_forward_ops(forward).live()
    if len(source.outputs) != 1:
        raise UnsupportedModelError(
            f"the model returns {len(source.outputs)} tensors, a loss is made of one; "
            "choose it with frontends.model.with_output"
        )
    if "float" not in str(source.outputs[0].ty.dtype):
        raise UnsupportedModelError(
            f"the model returns {source.outputs[0].ty}; a loss needs a floating-point tensor"
        )
    return simplified(source)


def simplified(source: ForwardOps) -> ForwardOps:
    """Composite ops taken apart, patterns put together that have a kernel of their own."""
    return merge_batch_norm_relu(merge_transposed_matmul(expand_composites(source)))


def _used_state(source: ForwardOps, num_inputs: int) -> list[relax.Var]:
    readers = source.consumers()
    inputs, state = source.params[:num_inputs], source.params[num_inputs:]
    if unread := [param.name for param in inputs if param not in readers]:
        raise UnsupportedModelError(f"the output does not depend on the inputs {unread}")
    if unread := [param.name for param in state if param not in readers]:
        logger.warning("the output does not depend on %s: left out of the step", unread)
    return [param for param in state if param in readers]


def _check_trained(source: ForwardOps, trained: Sequence[relax.Var], names: Iterable[str]) -> None:
    if not trained:
        raise UnsupportedModelError(
            f"nothing to train: the output depends on none of {sorted(names)}"
        )
    if source.outputs[0] not in active_variables(source, trained):
        raise UnsupportedModelError(
            "the output depends on the trained parameters only through ops without derivative"
        )


class _Assembly:
    """Puts one training step together inside an open function."""

    def __init__(
        self,
        emitter: Emitter,
        source: ForwardOps,
        recipe: Recipe,
        num_inputs: int,
        trained: Sequence[relax.Var],
    ) -> None:
        self._emitter = emitter
        self._source = source
        self._recipe = recipe
        self._trained = list(trained)
        self._inputs = list(source.params[:num_inputs])
        self._declare()

    def _declare(self) -> None:
        """The parameters of the step: batch, learning rate, state."""
        recipe, optimizer = self._recipe, self._recipe.optimizer
        prediction = self._source.outputs[0].ty
        self._labels = relax.Var(LABELS, recipe.loss.labels_type(prediction))
        self._lr = relax.Var(LEARNING_RATE, relax.TensorType((), "float32"))
        self._values = {param: relax.Var(param.name, param.ty) for param in self._source.params}
        self._slots = {
            param: {slot: relax.Var(f"{param.name}_{slot}", param.ty) for slot in optimizer.slots}
            for param in self._trained
        }
        draws = draws_random_numbers(self._source)
        self._step = (
            relax.Var(STEP, relax.TensorType((), "int32"))
            if draws or optimizer.needs_step
            else None
        )
        self._seed = relax.Var(SEED, relax.TensorType((), "int32")) if draws else None

        statistics = running_statistics(self._source)
        readers = self._source.consumers()
        state = [param for param in self._source.params if param not in self._inputs]
        used = [param for param in state if param in readers]
        batch = [*(self._values[param] for param in self._inputs), self._labels]
        counters = [var for var in (self._step, self._seed) if var is not None]
        self.params: list[tuple[relax.Var, str]] = [
            *((var, BATCH) for var in batch),
            (self._lr, HYPER),
            *((self._values[param], PARAMETER) for param in used if param in self._trained),
            *((var, OPTIMIZER_STATE) for slots in self._slots.values() for var in slots.values()),
            *((var, OPTIMIZER_STATE) for var in counters),
            *((self._values[param], STATISTIC) for param in used if param in statistics),
            *(
                (self._values[param], CONSTANT)
                for param in used
                if param not in statistics and param not in self._trained
            ),
        ]
        for var, _ in self.params:
            self._emitter.reserve(var.name)

    def emit(self) -> tuple[dict[str, relax.Expr], list[tuple[relax.Var, relax.Expr]]]:
        """Emit the step; returns its results by name, and pairs (old state, new state)."""
        if self._recipe.micro_batches == 1:
            batch = {param: self._values[param] for param in self._inputs}
            results, replaced, gradients = self._pass(batch, self._labels, {})
            updated = self._updates(gradients)
        else:
            results, replaced, summed = self._micro_batches()
            updated = self._updates(iter(summed))
        pairs = [*replaced.items(), *updated]
        if self._step is not None:
            pairs.append(
                (
                    self._step,
                    self._emitter.call(advance_step, [self._step], "next_step"),
                )
            )
        order = {var: position for position, (var, _) in enumerate(self.params)}
        return results, sorted(pairs, key=lambda pair: order[pair[0]])

    def _pass(
        self,
        batch: Mapping[relax.Var, relax.Expr],
        labels: relax.Expr,
        replaced: Mapping[relax.Var, relax.Expr],
    ) -> tuple[
        dict[str, relax.Expr],
        dict[relax.Var, relax.Expr],
        Iterator[tuple[relax.Var, relax.Expr]],
    ]:
        """Forward and loss of one (micro) batch; the backward ops come as they are drawn."""
        state = {param: replaced.get(var, var) for param, var in self._values.items()}
        randomness = None
        if self._seed is not None and self._step is not None:
            randomness = Randomness(self._seed, self._step)
        tape = emit_forward(
            self._emitter, self._source, {**state, **batch}, self._trained, randomness
        )
        loss: EmittedLoss = self._recipe.loss.emit(self._emitter, tape.outputs[0], labels)
        owner = {value: self._values[param] for param, value in state.items()}
        now = {**replaced, **{owner[old]: new for old, new in tape.updates}}

        def gradients() -> Iterator[tuple[relax.Var, relax.Expr]]:
            seed = loss.gradient()
            if self._recipe.micro_batches > 1:
                share = relax.const(1 / self._recipe.micro_batches, str(seed.ty.dtype))
                seed = self._emitter.bind(relax.op.multiply(seed, share), "micro_batch_share")
            yield from tape.pull_back(self._emitter, {0: seed})

        return loss.results, now, gradients()

    def _micro_batches(
        self,
    ) -> tuple[
        dict[str, relax.Expr],
        dict[relax.Var, relax.Expr],
        list[tuple[relax.Var, relax.Expr]],
    ]:
        raise NotImplementedError

    def _updates(
        self, gradients: Iterator[tuple[relax.Var, relax.Expr]]
    ) -> list[tuple[relax.Var, relax.Expr]]:
        """One update per parameter, each as soon as its gradient is there unless all are clipped."""
        scale: list[relax.Expr] = []
        if self._recipe.max_gradient_norm is not None:
            gradients = iter(collected := list(gradients))
            norms = [
                self._emitter.call(squared_norm, [gradient], f"{param.name}_squared_norm")
                for param, gradient in collected
            ]
            limit = self._recipe.max_gradient_norm
            scale = [self._emitter.call(clipping_scale, norms, "clipping_scale", max_norm=limit)]
        replaced: list[tuple[relax.Var, relax.Expr]] = []
        for param, gradient in gradients:
            slots = self._slots[param]
            update = Update(
                param.name, self._values[param], gradient, slots, self._lr, self._step, scale
            )
            new = self._recipe.optimizer.emit(self._emitter, update)
            replaced += zip([self._values[param], *slots.values()], new, strict=True)
        return replaced
