"""Optimizers of PyTorch, read as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tvm_xengine.errors import InvalidStateError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.kind_of_model import is_module
from tvm_xengine.training.adam import Adam, Adamax, AdamW, NAdam, RAdam
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD, Adadelta, Adagrad, RMSprop
from tvm_xengine.training.recipe import ParameterGroup

if TYPE_CHECKING:
    import torch

OF_LOSS = "loss."
"""Before the names of tensors of a loss that is a module, beside those of the model."""

COUNTERPARTS: dict[str, tuple[type, tuple[str, ...]]] = {
    "SGD": (SGD, ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")),
    "Adam": (Adam, ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")),
    "AdamW": (AdamW, ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")),
    "NAdam": (
        NAdam,
        (
            *("lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay"),
            "maximize",
        ),
    ),
    "RAdam": (
        RAdam,
        ("lr", "betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize"),
    ),
    "Adamax": (Adamax, ("lr", "betas", "eps", "weight_decay", "maximize")),
    "Adadelta": (Adadelta, ("lr", "rho", "eps", "weight_decay", "maximize")),
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


def kind_in_torch(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> str:
    """Which of PyTorch's optimizers one does the same as for a group of its parameters.

    Raises
    ------
    InvalidStateError
        If it is none of PyTorch's own classes: a class of the same name, or one that is derived from
        it, may take another step.
    """
    from torch import optim

    kind = type(optimizer)
    if kind.__name__ not in COUNTERPARTS or kind is not getattr(optim, kind.__name__):
        raise InvalidStateError(
            f"there is no counterpart of {_full_name(kind)}; there are those of torch.optim's"
            f" {', '.join(COUNTERPARTS)}"
        )
    is_decoupled = kind is optim.Adam and group.get("decoupled_weight_decay", False)
    return "AdamW" if is_decoupled else kind.__name__


def _full_name(kind: type) -> str:
    inside = kind.__module__.startswith("torch.optim")
    return f"{'torch.optim' if inside else kind.__module__}.{kind.__qualname__}"


def parameters_by_name(
    module: torch.nn.Module, loss: object = None
) -> dict[str, torch.nn.Parameter]:
    """Parameters of a module under all their names, and of a loss that has some of its own."""
    of_loss = cast(Any, loss).named_parameters() if is_module(loss) else ()
    return {
        **{f"{OF_LOSS}{name}": one for name, one in of_loss},
        **dict(module.named_parameters(remove_duplicate=False)),
    }


def names_held(
    group: Mapping[str, Any], named: Mapping[str, torch.nn.Parameter]
) -> tuple[str, ...]:
    """The names of the parameters of a group of an optimizer, in its order.

    Raises
    ------
    InvalidStateError
        If it holds another tensor, which a step would not train.
    """
    names = {id(one): name for name, one in reversed([*named.items()])}
    for one in group["params"]:
        if id(one) not in names:
            raise InvalidStateError(
                f"the optimizer holds a tensor of shape {tuple(one.shape)} that is no parameter of"
                " the module; make it from the module's parameters, and from those of the loss if it is"
                " a module, too"
            )
    return tuple(names[id(one)] for one in group["params"])


def from_torch_optimizer(
    optimizer: torch.optim.Optimizer,
    named: Mapping[str, torch.nn.Parameter],
    model: ForwardModel,
) -> tuple[Optimizer, tuple[ParameterGroup, ...]]:
    """The optimizer of ours, and its groups of parameters, that do what PyTorch's does.

    Parameters
    ----------
    named
        As `parameters_by_name` gives them.

    Raises
    ------
    InvalidStateError
        If there is none of that kind, or it holds a tensor that is no parameter.
    """
    variable_of = {name: role.variable for role in model.roles for name in role.names}
    groups = []
    for group in optimizer.param_groups:
        ours, options = COUNTERPARTS[kind_in_torch(optimizer, group)]
        made = ours(**{option: _plain(group[option]) for option in options if option in group})
        variables = map(variable_of.get, names_held(group, named))
        known = frozenset(v for v in variables if v is not None)
        groups.append(ParameterGroup(known, made, _ratio(group, optimizer.param_groups[0])))
    first, *others = groups
    return first.optimizer, tuple(others)


def _ratio(group: Mapping[str, Any], first: Mapping[str, Any]) -> float | None:
    """What the rates of two groups begin with, by what a scheduler noted before it set them to 0."""
    initial = float(first.get("initial_lr", 0.0))
    return float(group["initial_lr"]) / initial if initial and "initial_lr" in group else None


def not_held(
    optimizer: torch.optim.Optimizer,
    named: Mapping[str, torch.nn.Parameter],
    model: ForwardModel,
) -> tuple[str, ...]:
    """The parameters that are in no group of the optimizer, which leaves them as they are."""
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    known = {name for name, one in named.items() if id(one) in held}
    return tuple(
        role.name for role in model.roles if role.is_parameter and known.isdisjoint(role.names)
    )


def lost_of_optimizer(optimizer: torch.optim.Optimizer) -> list[str]:
    """A sentence for each thing that an optimizer does or has, and a step made of it does not."""
    lost = []
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        lost.append("the hooks on the steps of the optimizer are not called")
    if any(optimizer.state.values()):
        lost.append(
            "the optimizer has taken steps, and the step begins without its state;"
            " step.load_from(module, optimizer) loads both"
        )
    return lost


def _plain(value: Any) -> Any:
    """An option without tensors, which PyTorch accepts as learning rates."""
    if isinstance(value, tuple):
        return tuple(_plain(one) for one in value)
    return float(value) if hasattr(value, "item") else value
