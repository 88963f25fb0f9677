"""The forward model that every front end returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.call_structure import Structure
from tvm_xengine.frontends.place import Place
from tvm_xengine.frontends.roles import TensorRole, Use, chosen_roles
from tvm_xengine.relax_ir.types import Array, is_static, static_shape


@dataclass(frozen=True)
class ForwardModel:
    """A network before training: its forward function and the values it starts from.

    Attributes
    ----------
    name
        What the user calls the model.
    mod
        Module with a Relax function ``main``: one dataflow block, one result. Its parameters are
        the inputs, then the trainable parameters, then the statistics, then the constants.
    input_names
        Names of the leading parameters of ``main`` that a batch provides.
    parameters
        Initial values of the trainable parameters, by name.
    statistics
        Initial values of what ``main`` writes, by name: running means and variances of batch norms,
        and other buffers.
    constants
        Everything else that ``main`` reads and that never changes, by name.
    origins
        Roles and names of tensors in the file or module that the model comes from; tensors that
        are not listed are called as in ``main``, and parameters among them are trained.
    notes
        Sentences about the model that its user must know.
    counters
        Integer buffers that nothing reads and that each batch adds a number to, by the model's own
        names; ``main`` does not have them.
    arguments
        What the model's source was called with, in order: tensors and constants in structures.
    folded
        Names of tensors from which values were computed when the model was read: with other values
        of them ``main`` is another function.
    places
        Places in the model's source, by the variables of ``main`` that they compute.
    own
        The state dict of the module that a program was exported from; empty where there is none.
    weight_scales
        Scales that weights were quantized with in the file, by name, as arrays that broadcast to them.
    """

    name: str
    mod: tvm.IRModule
    input_names: tuple[str, ...]
    parameters: Mapping[str, Array]
    statistics: Mapping[str, Array] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    origins: tuple[TensorRole, ...] = ()
    notes: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    arguments: tuple[Structure, ...] = ()
    folded: tuple[str, ...] = ()
    own: Mapping[str, Array] = field(default_factory=dict)
    weight_scales: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = [param.name for param in self.main.params]
        provided = [*self.input_names, *self.parameters, *self.statistics, *self.constants]
        if declared != provided:
            raise UnsupportedModelError(
                f"{self.name}: main takes {declared}, but the model provides {provided}"
            )
        for param in self.main.params:
            if not is_static(param.ty):
                raise UnsupportedModelError(
                    f"{self.name}: {param.name} has the dynamic type {param.ty}; "
                    "every dimension must be a number, export the model with fixed shapes"
                )

    @property
    def main(self) -> relax.Function:
        """The forward function."""
        return self.mod["main"]

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the batch inputs."""
        leading = self.main.params[: len(self.input_names)]
        return tuple(static_shape(param.ty) for param in leading)

    @property
    def batch_size(self) -> int:
        """The leading dimension of the first input; 1 if it has none."""
        return next((shape[0] for shape in self.input_shapes[:1] if shape), 1)

    @property
    def roles(self) -> tuple[TensorRole, ...]:
        """The role of every parameter of ``main`` after the inputs, in order."""
        known = {role.variable: role for role in self.origins}
        uses = {
            **dict.fromkeys(self.parameters, Use.TRAINED),
            **dict.fromkeys(self.statistics, Use.STATISTIC),
            **dict.fromkeys(self.constants, Use.CONSTANT),
        }
        return tuple(
            _in_place(known.get(variable, TensorRole(variable, variable, use)), use)
            for variable, use in uses.items()
        )

    @property
    def trained(self) -> tuple[str, ...]:
        """Names in ``main`` of the parameters that are trained unless others are chosen."""
        return tuple(role.variable for role in self.roles if role.use is Use.TRAINED)

    def with_trained(
        self, train: Sequence[str] | None = None, freeze: Sequence[str] = ()
    ) -> ForwardModel:
        """The same model that trains what patterns say; see `chosen_roles`."""
        return replace(self, origins=chosen_roles(self.roles, train, freeze))

    @property
    def state(self) -> dict[str, Array]:
        """Values of all parameters of ``main`` after the inputs, in order."""
        return {**self.parameters, **self.statistics, **self.constants}


def _in_place(role: TensorRole, use: Use) -> TensorRole:
    """A role that agrees with the group of ``main`` that the tensor stands in."""
    if role.use is use or (use is Use.TRAINED and role.is_parameter):
        return role
    return replace(role, use=use)
