"""A training step as a model, a loss and an optimizer make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.checks.names import some
from tvm_xengine.errors import (
    InvalidInputError,
    UnsupportedModelError,
)
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.model.learning_rates import as_inputs, current_rates
from tvm_xengine.model.source import Source
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.model_loss import ModelLoss
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class Training:
    """A training step before it is lowered.

    Attributes
    ----------
    source
        What it was made from.
    recipe
        Loss, optimizer and their options; None where the step brings its own.
    step
        The Relax function and its initial state.
    """

    source: Source
    recipe: Recipe | None
    step: TrainingStep

    @property
    def roles(self) -> tuple[TensorRole, ...]:
        """Which tensors are trained, frozen, statistics and constants, and their names."""
        return self.source.training.roles

    @property
    def known_recipe(self) -> Recipe:
        """Loss, optimizer and their options.

        Raises
        ------
        UnsupportedModelError
            If the step brings its own.
        """
        if self.recipe is None:
            raise UnsupportedModelError(
                f"{self.step.name} is a training step with its own loss and optimizer, of which only"
                " the state is known; this needs a step made by training_step"
            )
        return self.recipe

    @property
    def loss_name(self) -> str:
        """What is minimised."""
        if self.recipe is None:
            return "of the step itself"
        if isinstance(self.recipe.loss, ModelLoss):
            return self.recipe.loss.name
        return _name_of(self.recipe.loss)

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the model."""
        return self.source.training.notes

    def arguments(self, batch: Mapping[str, Array], lr: float | None = None) -> list[Array]:
        """What a call of the step's Relax function takes before its state.

        Parameters
        ----------
        batch
            Arrays of the inputs and labels by name; of a step of one's own, of all that is given
            for each step.
        lr
            Learning rate; None takes that of the optimizer. Groups of parameters keep the ratio of
            their rates to it.

        Raises
        ------
        InvalidInputError
            If an array is missing.
        """
        rates: dict[str, Array] = {}
        if self.recipe is not None:
            rate = self.recipe.optimizer.lr if lr is None else lr
            rates = as_inputs(current_rates(self.recipe, None, rate, 0), self.step.hyper_names)
        given = {**batch, **rates}
        names = (*self.step.batch_names, *self.step.hyper_names)
        if missing := [name for name in names if name not in given]:
            raise InvalidInputError(f"a step takes {some(names)}; {some(missing)} is missing")
        return [given[name] for name in names]

    def report(self, *, most: int | None = None) -> str:
        """What is trained, frozen and shared, in lines.

        Parameters
        ----------
        most
            So many names stand in a line, with the number of the others; None names all.
        """
        lines = [f"loss: {self.loss_name}"]
        for use in Use:
            found = [role for role in self.roles if role.use is use]
            if found:
                more = f" and {len(found) - most} more" if most and len(found) > most else ""
                named = ", ".join(_described(role) for role in found[:most])
                lines.append(f"{use.value}: {named}{more}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def _described(role: TensorRole) -> str:
    shared = f" (shared with {', '.join(role.also)})" if role.also else ""
    reason = f" ({role.reason})" if role.reason else ""
    return f"{role.name}{shared}{reason}"


def _name_of(value: object) -> str:
    return getattr(value, "__name__", type(value).__name__)
