"""Everything of a training step that outlives a step: read, written and exchanged with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm

from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.state.model_state import ModelState
from tvm_xengine.state.torch_optimizer_state import (
    Groups,
    as_torch_optimizer,
    groups_of_module,
    read_torch_optimizer,
)
from tvm_xengine.training.body.declaration import SEED, STEP
from tvm_xengine.training.saved_names import OF_MODEL, OF_STEP, slot_names

if TYPE_CHECKING:
    from tvm_xengine.model.training import Training


class StepState:
    """The tensors of model and optimizer in the arenas of a step.

    Parameters
    ----------
    training
        Where the names come from.
    executable
        Where the tensors are.
    """

    def __init__(self, training: Training, executable: StepExecutable) -> None:
        self._training = training
        self._executable = executable
        self.model = ModelState(training.source, executable)

    def batches_seen(self, steps_taken: int) -> int:
        """Batches of the model's size in so many steps."""
        recipe = self._training.recipe
        return steps_taken * (1 if recipe is None else recipe.micro_batches)

    def tensors(self, steps_taken: int) -> dict[str, Array]:
        """A copy of every tensor of the model by its own name."""
        return self.model.read(self.batches_seen(steps_taken))

    def all_tensors(self, steps_taken: int) -> dict[str, Array]:
        """As `tensors`, with the buffers that a state dict leaves out."""
        return {**self.tensors(steps_taken), **self.model.read_hidden()}

    def views(self, steps_taken: int) -> dict[str, tvm.runtime.Tensor]:
        """As `tensors`, in the arenas."""
        return self.model.views(self.batches_seen(steps_taken))

    def saved(self, steps_taken: int) -> dict[str, Array]:
        """All tensors, those of the optimizer included, by names that do not depend on the plan."""
        state = self._executable.read_state()
        tensors = {
            f"{OF_MODEL}{name}": np.asarray(value)
            for name, value in self.all_tensors(steps_taken).items()
        }
        keys = {variable: key for variable, key in self._keys().items() if variable in state}
        return {**tensors, **{key: np.asarray(state[variable]) for variable, key in keys.items()}}

    def restore(self, tensors: Mapping[str, Array], steps_taken: int) -> None:
        """Write what `saved` returned."""
        keys = self._keys()
        self.model.write(
            {
                name.removeprefix(OF_MODEL): value
                for name, value in tensors.items()
                if name.startswith(OF_MODEL)
            }
        )
        state = self._executable.names(Role.OPTIMIZER_STATE)
        self._executable.write({name: tensors[keys[name]] for name in state})
        self.model.start_counting_at(self.batches_seen(steps_taken))

    def as_torch_optimizer(
        self, steps_taken: int, rates: Sequence[float], groups: Groups | None = None
    ) -> dict[str, Any]:
        """The state of the optimizer as ``torch.optim`` keeps it, see `as_torch_optimizer`."""
        state = self._executable.read_state()
        groups = groups_of_module(self._training) if groups is None else groups
        return as_torch_optimizer(self._training, state, groups, steps_taken, rates)

    def write_torch_optimizer(self, state: Mapping[str, Any], groups: Groups | None = None) -> int:
        """Write the state of the same optimizer in PyTorch; the number of its steps."""
        arrays, steps = read_torch_optimizer(self._training, state, groups)
        if STEP in self._executable.names(Role.OPTIMIZER_STATE):
            arrays[STEP] = np.array(steps, "int32")
        self._executable.write(arrays)
        self.model.start_counting_at(self.batches_seen(steps))
        return steps

    def _keys(self) -> dict[str, str]:
        """Names that do not depend on the plan, by tensors that are no tensors of the model."""
        slots = slot_names(self._training.roles, self._training.step.slots)
        return {**slots, **{name: f"{OF_STEP}{name}" for name in (SEED, STEP)}}
