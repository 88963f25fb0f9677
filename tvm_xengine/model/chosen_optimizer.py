"""The optimizer that a user names, makes, or brings from PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from tvm_xengine.checks.names import closest_first, some
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.roles import matches
from tvm_xengine.model.kind_of_model import is_module
from tvm_xengine.model.torch_optimizer import (
    from_torch_optimizer,
    lost_of_optimizer,
    not_held,
    parameters_by_name,
)
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD, optimizer_called
from tvm_xengine.training.recipe import ParameterGroup

if TYPE_CHECKING:
    import torch

OptimizerLike = Union[str, Optimizer, "torch.optim.Optimizer", None]
"""A name, an optimizer of ours, or one of PyTorch's over the module's parameters."""


def chosen_optimizer(
    optimizer: Any, model: object, loss: object, forward: ForwardModel
) -> tuple[Optimizer, tuple[ParameterGroup, ...]]:
    """The optimizer of all parameters, those of the loss included, and the groups that have another."""
    if optimizer is None:
        return SGD(0.01, momentum=0.9), ()
    if hasattr(optimizer, "param_groups"):
        if not is_module(model):
            raise ValueError("an optimizer of PyTorch needs the module whose parameters it holds")
        return from_torch_optimizer(optimizer, parameters_by_name(model, loss), forward)
    return _one_optimizer(optimizer), ()


def limits_of(
    optimizer: Any, model: object, loss: object, forward: ForwardModel
) -> tuple[tuple[str, ...], list[str]]:
    """The parameters that an optimizer of PyTorch does not hold, and what it has that a step has not.

    Ours hold all parameters.
    """
    if not hasattr(optimizer, "param_groups") or not is_module(model):
        return (), []
    held = parameters_by_name(model, loss)
    return not_held(optimizer, held, forward), lost_of_optimizer(optimizer)


def groups_by_pattern(
    groups: Mapping[str, Optimizer], forward: ForwardModel
) -> tuple[ParameterGroup, ...]:
    """Groups of parameters by pattern; a pattern without match is refused."""
    made = []
    for pattern, optimizer in groups.items():
        found = [r.variable for r in forward.roles if r.is_parameter and matches(r, pattern)]
        if not found:
            every = (role.name for role in forward.roles if role.is_parameter)
            names = some(closest_first(every, pattern))
            raise UnsupportedModelError(
                f"the group {pattern!r} matches no parameter; the parameters are {names}"
            )
        made.append(ParameterGroup(frozenset(found), _one_optimizer(optimizer)))
    return tuple(made)


def _one_optimizer(optimizer: Any) -> Optimizer:
    """An optimizer of ours, also by its name."""
    if isinstance(optimizer, str):
        return optimizer_called(optimizer)
    if isinstance(optimizer, type):
        name = optimizer.__name__
        raise TypeError(
            f"expected an optimizer, got the class {name}; give an instance: {name}(...)"
        )
    if not hasattr(optimizer, "initial_slot"):
        raise TypeError(
            f"expected the name of an optimizer, or one such as SGD(0.01), got {optimizer!r}"
        )
    return optimizer  # type: ignore[no-any-return]
