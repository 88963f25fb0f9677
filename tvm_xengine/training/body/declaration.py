"""The parameters of a training step: batch, learning rates, state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.naming_builder import UniqueNames
from tvm_xengine.relax_ir.batch_norms import updated_statistics
from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.gradients.elements.randomness import draws_random_numbers
from tvm_xengine.training.recipe import Recipe

LABELS = "labels"
SEED = "seed"
STEP = "step"


def learning_rate_name(group: int) -> str:
    """Name of the learning rate of a group of parameters; group 0 has all parameters without a group."""
    return f"lr_{group}" if group else "lr"


@dataclass(frozen=True)
class Declaration:
    """The parameters of a training step, by those of the forward function.

    Attributes
    ----------
    inputs
        Parameters of the forward function that come from a batch.
    trained
        Those that are trained.
    values
        The parameter of the step for each of the forward function.
    labels
        None where the model brings its own loss.
    groups
        The group of each trained parameter, whose learning rate is in `rates`.
    slots
        The optimizer's state of each trained parameter, by slot.
    step
        The number of earlier steps; None where nothing reads it.
    seed
        Of random numbers; None where none are drawn.
    """

    inputs: tuple[relax.Var, ...]
    trained: tuple[relax.Var, ...]
    values: Mapping[relax.Var, relax.Var]
    labels: relax.Var | None
    groups: Mapping[relax.Var, int]
    rates: Mapping[int, relax.Var]
    slots: Mapping[relax.Var, Mapping[str, relax.Var]]
    step: relax.Var | None
    seed: relax.Var | None

    def params(self, source: ForwardOps) -> list[tuple[relax.Var, Role]]:
        """The parameters that the step reads, in order, with their roles."""
        written = {param for param, _ in source.writes}
        statistics = updated_statistics(source) | written
        readers = source.consumers()
        read = [p for p in source.params if p not in self.inputs and p in readers]
        counters = [var for var in (self.step, self.seed) if var is not None]
        fixed = [p for p in read if p not in statistics and p not in self.trained]
        by_role = {
            Role.BATCH: [
                *(self.values[param] for param in self.inputs),
                *(() if self.labels is None else (self.labels,)),
            ],
            Role.HYPER: list(self.rates.values()),
            Role.PARAMETER: [self.values[param] for param in read if param in self.trained],
            Role.OPTIMIZER_STATE: [
                *(var for slots in self.slots.values() for var in slots.values()),
                *counters,
            ],
            Role.STATISTIC: [self.values[param] for param in read if param in statistics],
            Role.CONSTANT: [self.values[param] for param in fixed],
        }
        return [(var, role) for role, variables in by_role.items() for var in variables]


def declare(
    source: ForwardOps, recipe: Recipe, num_inputs: int, trained: Sequence[relax.Var]
) -> Declaration:
    """Declare the parameters of a step, each under a name of its own.

    Raises
    ------
    UnsupportedModelError
        If the labels have no elements, or micro-batches are asked for, and an input is a scalar.
    """
    names = UniqueNames()
    for param in source.params:
        names.fresh(param.name)
    inputs = tuple(source.params[:num_inputs])
    labels = recipe.loss.labels_type(source.outputs[0].ty)
    if labels is not None and 0 in static_shape(labels):
        raise UnsupportedModelError(
            f"the labels have the shape {static_shape(labels)}, and the loss has nothing to average; give"
            " a batch of at least 1"
        )
    labels_var = (
        None if labels is None else relax.Var(names.fresh(LABELS), _widened(labels, recipe))
    )
    groups = {param: recipe.group_of(param.name) for param in trained}
    used = sorted(set(groups.values()))
    draws = recipe.draws_in_updates or draws_random_numbers(source)
    counts = draws or any(recipe.optimizers[group].needs_step for group in used)
    return Declaration(
        inputs=inputs,
        trained=tuple(trained),
        values={
            param: relax.Var(
                param.name, _widened(param.ty, recipe) if param in inputs else param.ty
            )
            for param in source.params
        },
        labels=labels_var,
        groups=groups,
        rates={
            group: relax.Var(learning_rate_name(group), relax.TensorType((), "float32"))
            for group in used
        },
        slots={
            param: {
                slot: relax.Var(names.fresh(f"{param.name}_{slot}"), param.ty)
                for slot in recipe.optimizers[group].slots
            }
            for param, group in groups.items()
        },
        step=relax.Var(STEP, relax.TensorType((), "int32")) if counts else None,
        seed=relax.Var(SEED, relax.TensorType((), "int32")) if draws else None,
    )


def _widened(ty: relax.TensorType, recipe: Recipe) -> relax.TensorType:
    """The type of all micro-batches of one step together."""
    if recipe.micro_batches == 1:
        return ty
    if not ty.ndim:
        raise UnsupportedModelError(
            "micro-batches are cut along the first axis, but an input of the model is a scalar"
        )
    leading, *rest = static_shape(ty)
    return relax.TensorType([leading * recipe.micro_batches, *rest], ty.dtype)
