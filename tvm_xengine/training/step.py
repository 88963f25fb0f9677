"""One training step as a Relax function, with the state that it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.relax_ir.signature import TRAIN_STEP, StepSignature
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role


@dataclass(frozen=True)
class TrainingStep:
    """A pure function ``train_step(batch..., hyper..., state...) -> (results..., new state...)``.

    Attributes
    ----------
    name
        What the user calls the model.
    mod
        Module with the Relax function ``train_step`` and its kernels.
    initial_state
        Value of every state parameter before the first step, by name, in order.
    slots
        For each trained parameter, the names of its optimizer's state tensors by slot.
    """

    name: str
    mod: tvm.IRModule
    initial_state: Mapping[str, Array]
    slots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if list(self.initial_state) != list(self.state_names):
            raise ValueError(
                f"initial_state must have the keys {list(self.state_names)}, "
                f"got {list(self.initial_state)}"
            )

    @property
    def function(self) -> relax.Function:
        """The Relax function."""
        return self.mod[TRAIN_STEP]

    @cached_property
    def signature(self) -> StepSignature:
        """What the function's parameters and results are."""
        return StepSignature.read(self.function)

    @property
    def roles(self) -> Mapping[str, Role]:
        """Role of every parameter, by name, in order."""
        names = (param.name for param in self.function.params)
        return dict(zip(names, self.signature.roles, strict=True))

    @property
    def batch_names(self) -> tuple[str, ...]:
        """Names of the inputs and labels."""
        return tuple(name for name, role in self.roles.items() if role is Role.BATCH)

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """Names of the run-time settings, such as the learning rate."""
        return tuple(name for name, role in self.roles.items() if role is Role.HYPER)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the tensors that outlive the step."""
        return tuple(name for name, role in self.roles.items() if role.is_persistent)

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the leading results; the first one is the loss."""
        return self.signature.results or ()

    @property
    def updates(self) -> tuple[int, ...]:
        """For each result after the leading ones, the position of the parameter it replaces."""
        return self.signature.updates

    @property
    def updated_names(self) -> tuple[str, ...]:
        """Names of the state tensors that the step replaces, in the order of its results."""
        return tuple(self.function.params[position].name for position in self.updates)


def zeros_like_type(ty: relax.TensorType) -> Array:
    """Zeros of a static tensor type."""
    return np.zeros([int(extent) for extent in ty.shape], str(ty.dtype))
