"""The state of optimizers in the form that ``torch.optim`` gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm_xengine.errors import InvalidStateError
from tvm_xengine.frontends.torch.arrays import as_tensor, to_array
from tvm_xengine.model.torch_optimizer import COUNTERPARTS, torch_kind
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.optimizers import (
    SGD,
    Adagrad,
    Adam,
    Lion,
    Optimizer,
    RMSprop,
)

if TYPE_CHECKING:
    import torch

    from tvm_xengine.session.stages import Training

_SLOTS: dict[type, dict[str, str]] = {
    SGD: {"velocity": "momentum_buffer"},
    Adam: {
        "first_moment": "exp_avg",
        "second_moment": "exp_avg_sq",
        "largest_moment": "max_exp_avg_sq",
    },
    RMSprop: {
        "square_average": "square_avg",
        "gradient_average": "grad_avg",
        "velocity": "momentum_buffer",
    },
    Adagrad: {"square_sum": "sum"},
    Lion: {"first_moment": "exp_avg"},
}
"""What PyTorch calls our slots."""

_COUNTING = (Adam, RMSprop, Adagrad)
"""Optimizers that keep the number of steps for each parameter in PyTorch."""


def slots_by_name(training: Training) -> dict[str, str]:
    """For each state tensor of the optimizer, a name that does not depend on the plan."""
    named = {role.variable: role.name for role in training.roles}
    return {
        state: f"optimizer/{named.get(variable, variable)}/{slot}"
        for variable, slots in training.step.slots.items()
        for slot, state in slots.items()
    }


def as_torch_optimizer(
    training: Training,
    state: Mapping[str, Array],
    order: Sequence[str],
    steps_taken: int,
    rates: Sequence[float],
) -> dict[str, Any]:
    """``state_dict()`` of the optimizer in PyTorch, its parameters grouped as in the recipe.

    Parameters
    ----------
    state
        The optimizer's tensors by our names; the result keeps their memory.
    order
        Names of all parameters, in the order of the module.
    rates
        Learning rate of each group.
    """
    import torch

    recipe, variable_of = training.known_recipe, _variables(training)
    groups: list[list[str]] = [[] for _ in recipe.optimizers]
    for name in order:
        groups[recipe.group_of(variable_of[name])].append(name)
    made: dict[int, dict[str, Any]] = {}
    written: list[dict[str, Any]] = []
    for optimizer, names, rate in zip(recipe.optimizers, groups, rates, strict=True):
        first = sum(len(group["params"]) for group in written)
        for position, name in enumerate(names, start=first):
            slots = training.step.slots.get(variable_of[name])
            if slots is None or not steps_taken:
                continue
            called = _slots_of(optimizer)
            entry: dict[str, Any] = {
                called[slot]: as_tensor(state[tensor]) for slot, tensor in slots.items()
            }
            if isinstance(optimizer, _COUNTING):
                entry["step"] = torch.tensor(float(steps_taken))
            if isinstance(optimizer, SGD) and not slots:
                entry["momentum_buffer"] = None
            made[position] = entry
        if names or optimizer is recipe.optimizer:
            options = {**_torch_defaults(optimizer), "lr": rate}
            written.append({**options, "params": [*range(first, first + len(names))]})
    return {"state": made, "param_groups": [group for group in written if group["params"]]}


def read_torch_optimizer(
    training: Training, state: Mapping[str, Any], order: Sequence[str]
) -> tuple[dict[str, Array], int]:
    """The optimizer's tensors by our names, and the number of steps, of PyTorch's state dict.

    Parameters
    ----------
    order
        As in `as_torch_optimizer`. PyTorch's optimizer holds these parameters, or those of them
        that are trained.

    Raises
    ------
    InvalidStateError
        If it is the state of another optimizer or of other parameters.
    """
    recipe, variable_of = training.known_recipe, _variables(training)
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
        raise InvalidStateError(
            "expected the state_dict of an optimizer of PyTorch, with `state` and `param_groups`"
        )
    given = [index for group in state["param_groups"] for index in group["params"]]
    trained = [name for name in order if variable_of[name] in training.step.slots]
    if len(given) not in (len(order), len(trained)):
        raise InvalidStateError(
            f"the optimizer's state is of {len(given)} parameters; the model has {len(order)}, of"
            f" which {len(trained)} are trained"
        )
    kept = order if len(given) == len(order) else trained
    groups = [
        [n for n in kept if recipe.group_of(variable_of[n]) == k] for k, _ in _numbered(recipe)
    ]
    flat = [name for names in groups for name in names]
    arrays: dict[str, Array] = {}
    steps: set[int] = set()
    for name, index in zip(flat, given, strict=True):
        slots = training.step.slots.get(variable_of[name])
        entry = state["state"].get(index)
        if not slots or entry is None:
            continue
        called = _slots_of(recipe.optimizers[recipe.group_of(variable_of[name])])
        for slot, tensor in slots.items():
            if entry.get(called[slot]) is None:
                raise InvalidStateError(
                    f"the optimizer's state of {name} has no {called[slot]}; it has"
                    f" {', '.join(entry)}"
                )
            arrays[tensor] = to_array(entry[called[slot]])
        steps.add(int(entry["step"]) if "step" in entry else 1)
    return arrays, max(steps, default=0)


def check_is_counterpart(optimizer: torch.optim.Optimizer, training: Training) -> None:
    """Refuse an optimizer of PyTorch that does something else than the step's.

    Raises
    ------
    InvalidStateError
        If it is of another kind.
    """
    wanted = torch_kind(training.known_recipe.optimizer)
    known = (kind.__name__ for kind in type(optimizer).__mro__ if kind.__name__ in COUNTERPARTS)
    if wanted in COUNTERPARTS and next(known, None) != wanted:
        raise InvalidStateError(
            f"the step's optimizer is {wanted}, the one given is {type(optimizer).__name__}"
        )


def _numbered(recipe: Any) -> list[tuple[int, Optimizer]]:
    return list(enumerate(recipe.optimizers))


def _variables(training: Training) -> dict[str, str]:
    return {name: role.variable for role in training.roles for name in role.names}


def _slots_of(optimizer: Optimizer) -> dict[str, str]:
    return next(names for kind, names in _SLOTS.items() if isinstance(optimizer, kind))


def _torch_defaults(optimizer: Optimizer) -> dict[str, Any]:
    """The options of a group of parameters in PyTorch."""
    import torch

    kind = torch_kind(optimizer)
    if kind not in COUNTERPARTS:
        return {"lr": optimizer.lr, "weight_decay": getattr(optimizer, "weight_decay", 0.0)}
    options = {name: getattr(optimizer, name) for name in COUNTERPARTS[kind][1]}
    parameter = torch.nn.Parameter(torch.zeros(()))
    group = getattr(torch.optim, kind)([parameter], **options).param_groups[0]
    return {name: value for name, value in group.items() if name != "params"}
