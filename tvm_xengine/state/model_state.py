"""The state of a model by its author's names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm

from tvm_xengine.checks.names import some
from tvm_xengine.errors import InvalidInputError, InvalidStateError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.roles import Use
from tvm_xengine.model.source import Source
from tvm_xengine.relax_ir.types import SHORT_FLOATS, Array
from tvm_xengine.runtime.executable import StepExecutable

if TYPE_CHECKING:
    import torch


class ModelState:
    """Reads and writes the tensors of a model in the arenas of its step.

    Parameters
    ----------
    source
        Where the names come from.
    executable
        Where the tensors are.
    """

    def __init__(self, source: Source, executable: StepExecutable) -> None:
        self._source = source
        self._executable = executable
        self._counted = 0
        present = set(executable.interface.inputs)
        self._variables = {
            name: role.variable
            for role in source.training.roles
            if role.variable in present
            for name in role.names
        }
        self._unused = {
            name: np.array(value)
            for name, value in source.unused.items()
            if name not in self._variables
        }
        unread = {
            name: source.training.state[role.variable]
            for role in source.training.roles
            if role.variable not in present
            for name in role.names
        }
        self._unused |= {name: np.array(value) for name, value in unread.items()}
        self._order = source.order or (*self._variables, *unread)
        self.hidden = tuple(
            name
            for role in source.training.roles
            if role.use in (Use.STATISTIC, Use.TRAINED) and role.variable in present
            for name in role.names
            if name not in self._order
        )
        """What steps write and the model's state dict leaves out: buffers that are not persistent, and
        the tensors of a loss that is a module."""
        folded = {*source.training.folded, *source.evaluation.folded}
        self._folded = {
            name: np.array(source.training.state[role.variable])
            for role in source.training.roles
            for name in role.names
            if name in folded
        }
        self._folded |= {name: value for name, value in self._unused.items() if name in folded}

    def read(self, batches_seen: int) -> dict[str, Array]:
        """A copy of every tensor by name; the names of a tied tensor share one copy.

        Counters of batches have advanced by what was trained.
        """
        state = self._executable.read_state(set(self._variables.values()))
        return {
            name: state[self._variables[name]]
            if name in self._variables
            else self._outside(name, batches_seen)
            for name in self._order
        }

    def read_hidden(self) -> dict[str, Array]:
        """A copy of every tensor of `hidden` by name."""
        state = self._executable.read_state({self._variables[name] for name in self.hidden})
        return {name: state[self._variables[name]] for name in self.hidden}

    def views(self, batches_seen: int) -> dict[str, tvm.runtime.Tensor]:
        """As `read`, with every tensor that the step reads in its place in the arenas."""
        state = self._executable.state_views
        return {
            name: state[self._variables[name]]
            if name in self._variables
            else tvm.runtime.tensor(self._outside(name, batches_seen))
            for name in self._order
        }

    def _outside(self, name: str, batches_seen: int) -> Array:
        """A copy of a tensor that the step does not read."""
        value = np.array(self._unused[name])
        calls = self._source.counters.get(name)
        counted = batches_seen - self._counted
        return value if calls is None else np.asarray(value + calls * counted)

    def start_counting_at(self, batches_seen: int) -> None:
        """The counters that were written are those after so many batches."""
        self._counted = batches_seen

    def write(self, state: Mapping[str, Array]) -> None:
        """Write every tensor, or change nothing; those of `hidden` may be missing.

        Raises
        ------
        InvalidStateError
            If a name is missing or unknown, a shape or type differs, or the step was made with another
        value of a tensor that it does not read any more.
        """
        names = (*self._order, *(name for name in self.hidden if name in state))
        _check_names(state, names)
        for name in names:
            expected = self._shape(name)
            if state[name].shape != expected:
                raise InvalidStateError(
                    f"{name} must have shape {expected}, the state has {state[name].shape}"
                )
        for name, value in self._folded.items():
            if name in state and not np.array_equal(value, np.asarray(state[name]), equal_nan=True):
                raise InvalidStateError(
                    f"the step was compiled with the value of {name}, and the state has another one; load"
                    " the state into the module, and compile that"
                )
        here = {self._variables[name]: name for name in names if name in self._variables}
        inputs = self._executable.interface.inputs
        values = {
            variable: _narrowed(state[name], str(inputs[variable].dtype))
            for variable, name in here.items()
        }
        try:
            self._executable.write(values)
        except InvalidInputError as error:
            variable, space, rest = str(error).partition(" ")
            raise InvalidStateError(f"{here.get(variable, variable)}{space}{rest}") from None
        self._unused |= {name: np.array(state[name]) for name in self._unused}

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self._variables:
            return tuple(self._executable.interface.inputs[self._variables[name]].shape)
        return self._unused[name].shape


def _narrowed(value: Array, dtype: str) -> Array:
    """Values in the type of a frozen tensor, where it holds them all: a ``.npz`` file has no bfloat16."""
    if dtype not in SHORT_FLOATS or str(value.dtype) not in ("float32", "float64"):
        return value
    narrow = np.asarray(value).astype(np.dtype(dtype))
    is_exact = np.array_equal(narrow.astype(value.dtype), value, equal_nan=True)
    return narrow if is_exact else value


def values_of(
    model: ForwardModel, state: Mapping[str, Array], wanted: Collection[str]
) -> dict[str, Array]:
    """The values of parameters of another function of the same model, from its state by name."""
    values = dict(model.state)
    for role in model.roles:
        found = next((state[name] for name in role.names if name in state), None)
        if found is not None:
            values[role.variable] = found
    return {name: values[name] for name in wanted}


def check_fits_module(state: Mapping[str, Any], module: torch.nn.Module) -> None:
    """Refuse a module that a state is not of, before PyTorch has loaded what does fit.

    Raises
    ------
    InvalidStateError
        If a name is missing or unknown, or a shape differs.
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidStateError(f"expected a PyTorch module, got {type(module).__name__}")
    wanted = module.state_dict()
    _check_names(state, list(wanted))
    for name, tensor in wanted.items():
        if tuple(state[name].shape) != tuple(tensor.shape):
            raise InvalidStateError(
                f"{name} has shape {tuple(tensor.shape)} in the module, and"
                f" {tuple(state[name].shape)} in the step"
            )


def _check_names(state: Mapping[str, Any], wanted: Collection[str]) -> None:
    refuse_names(
        [name for name in wanted if name not in state],
        [name for name in state if name not in wanted],
    )


def refuse_names(missing: Sequence[str], unknown: Sequence[str]) -> None:
    """Refuse a state that lacks tensors, or has some that the model does not have.

    Raises
    ------
    InvalidStateError
        If there are any.
    """
    if missing or unknown:
        raise InvalidStateError(f"the state does not fit the model: {unlike(missing, unknown)}")


def unlike(missing: Sequence[str], unknown: Sequence[str]) -> str:
    """How the names of a state differ from those that were expected, as the end of a sentence."""
    lacks = [f"it lacks {some(missing)}"] if missing else []
    has = [f"it has {some(unknown)}, which the model does not have"] if unknown else []
    return " and ".join([*lacks, *has])
