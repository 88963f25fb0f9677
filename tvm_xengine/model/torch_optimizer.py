"""Optimizers of PyTorch, read as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_xengine.errors import InvalidStateError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.training.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from tvm_xengine.training.recipe import ParameterGroup

if TYPE_CHECKING:
    import torch

COUNTERPARTS: dict[str, tuple[type, tuple[str, ...]]] = {
    "SGD": (SGD, ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")),
    "Adam": (Adam, ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")),
    "AdamW": (AdamW, ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")),
    "RMSprop": (
        RMSprop,
        ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
    ),
    "Adagrad": (
        Adagrad,
        ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"),
    ),
}
"""Optimizers of PyTorch that have one of ours, and their options that change results."""


def torch_kind(optimizer: Optimizer) -> str:
    """The name of its class in PyTorch."""
    return "AdamW" if getattr(optimizer, "decoupled", False) else type(optimizer).__name__


def from_torch_optimizer(
    optimizer: torch.optim.Optimizer, module: torch.nn.Module, model: ForwardModel
) -> tuple[Optimizer, tuple[ParameterGroup, ...]]:
    """The optimizer of ours, and its groups of parameters, that do what PyTorch's does.

    Raises
    ------
    InvalidStateError
        If there is none of that kind, or it holds none of the module's parameters.
    """
    kind = type(optimizer).__name__
    if kind not in COUNTERPARTS:
        raise InvalidStateError(
            f"there is no counterpart of torch.optim.{kind}; there are those of"
            f" {', '.join(COUNTERPARTS)}"
        )
    ours, options = COUNTERPARTS[kind]
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    variable_of = {name: role.variable for role in model.roles for name in role.names}
    groups = []
    for group in optimizer.param_groups:
        made = ours(**{option: _plain(group[option]) for option in options if option in group})
        variables = [variable_of.get(names.get(id(p), "")) for p in group["params"]]
        groups.append(ParameterGroup(frozenset(v for v in variables if v is not None), made))
    if not any(group.parameters for group in groups):
        raise InvalidStateError(
            f"the optimizer {kind} holds no parameter of the module; make it of module.parameters()"
        )
    first, *others = groups
    return first.optimizer, tuple(others)


def not_held(
    optimizer: torch.optim.Optimizer, module: torch.nn.Module, model: ForwardModel
) -> tuple[str, ...]:
    """The parameters that are in no group of the optimizer, which leaves them as they are."""
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    named = dict(module.named_parameters(remove_duplicate=False))
    known = {name for name, one in named.items() if id(one) in held}
    return tuple(
        role.name for role in model.roles if role.is_parameter and known.isdisjoint(role.names)
    )


def _plain(value: Any) -> Any:
    """An option without tensors, which PyTorch accepts as learning rates."""
    if isinstance(value, tuple):
        return tuple(_plain(one) for one in value)
    return float(value) if hasattr(value, "item") else value
