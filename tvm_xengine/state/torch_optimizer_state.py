"""The state of optimizers in the form that ``torch.optim`` gives it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm_xengine.checks.names import some
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.frontends.torch.arrays import as_tensor, to_array
from tvm_xengine.model.torch_optimizer import (
    COUNTERPARTS,
    names_held,
    parameters_by_name,
    torch_kind,
)
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.adam import Adam, Adamax, NAdam, RAdam
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD, Adadelta, Adagrad, Lion, RMSprop

if TYPE_CHECKING:
    import torch

    from tvm_xengine.model.training import Training

Groups = Sequence[Sequence[str]]
"""Names of the parameters of each group of an optimizer of PyTorch, in its order."""

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
    NAdam: {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"},
    RAdam: {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"},
    Adamax: {"first_moment": "exp_avg", "largest_gradient": "exp_inf"},
    Adadelta: {"square_average": "square_avg", "delta_average": "acc_delta"},
    Lion: {"first_moment": "exp_avg"},
}
"""What PyTorch calls our slots."""

_COUNTING = (Adam, RMSprop, Adagrad, NAdam, RAdam, Adamax, Adadelta)
"""Optimizers that keep the number of steps for each parameter in PyTorch."""


def groups_of_module(training: Training) -> Groups:
    """Names of all parameters in the order of the module, by the groups of the recipe."""
    recipe, variable_of = training.known_recipe, _variables(training)
    order = _parameter_order(training)
    groups = [
        tuple(name for name in order if recipe.group_of(variable_of[name]) == position)
        for position in range(len(recipe.optimizers))
    ]
    return tuple(names for names in groups if names)


def groups_of_optimizer(
    optimizer: torch.optim.Optimizer,
    module: torch.nn.Module,
    loss: torch.nn.Module | None,
    training: Training,
) -> Groups:
    """Names of the parameters of each group of an optimizer, in its order.

    Raises
    ------
    InvalidStateError
        If it does something else than the step's, holds a tensor that is no parameter of the
        module, lacks one that is trained, or has parameters of different options in a group.
    """
    _check_is_counterpart(optimizer, training)
    variable_of, recipe = _variables(training), training.known_recipe
    named = parameters_by_name(module, loss)
    groups = [names_held(group, named) for group in optimizer.param_groups]
    held = {variable_of.get(name) for names_ in groups for name in names_}
    if missing := [r.name for r in training.roles if r.variable in set(training.step.slots) - held]:
        raise InvalidStateError(
            f"the optimizer does not hold {some(missing)}, which the step trains"
        )
    for names_ in groups:
        if len({recipe.group_of(variable_of[name]) for name in names_ if name in variable_of}) > 1:
            raise InvalidStateError(
                f"the step trains the parameters {some(list(names_))} with different options, and"
                " the optimizer holds them in one group; give it the groups of the step"
            )
    return tuple(groups)


def as_torch_optimizer(
    training: Training,
    state: Mapping[str, Array],
    groups: Groups,
    steps_taken: int,
    rates: Sequence[float],
) -> dict[str, Any]:
    """``state_dict()`` of the optimizer in PyTorch.

    Parameters
    ----------
    state
        The optimizer's tensors by our names; the result keeps their memory.
    groups
        Names of the parameters of each group.
    rates
        Learning rate of each optimizer of the recipe.
    """
    recipe, variable_of = training.known_recipe, _variables(training)
    made: dict[int, dict[str, Any]] = {}
    written: list[dict[str, Any]] = []
    place = 0
    for names in groups:
        known = [variable_of[name] for name in names if name in variable_of]
        position = recipe.group_of(known[0]) if known else 0
        optimizer = recipe.optimizers[position]
        for index, name in enumerate(names, start=place):
            slots = training.step.slots.get(variable_of.get(name, ""))
            if slots is not None and steps_taken:
                made[index] = _entry(optimizer, slots, state, steps_taken)
        options = {**_torch_defaults(optimizer), "lr": rates[position]}
        written.append({**options, "params": [*range(place, place + len(names))]})
        place += len(names)
    return {"state": made, "param_groups": written}


def _entry(
    optimizer: Optimizer, slots: Mapping[str, str], state: Mapping[str, Array], steps_taken: int
) -> dict[str, Any]:
    """What PyTorch's optimizer keeps of a parameter."""
    import torch

    called = _slots_of(optimizer)
    entry: dict[str, Any] = {called[slot]: as_tensor(state[name]) for slot, name in slots.items()}
    if isinstance(optimizer, _COUNTING):
        entry["step"] = torch.tensor(float(steps_taken))
    if isinstance(optimizer, NAdam):
        entry["mu_product"] = torch.tensor(optimizer.momentum_product(steps_taken))
    if isinstance(optimizer, SGD) and not slots:
        entry["momentum_buffer"] = None
    return entry


def read_torch_optimizer(
    training: Training, state: Mapping[str, Any], groups: Groups | None = None
) -> tuple[dict[str, Array], int]:
    """The optimizer's tensors by our names, and the number of steps, of PyTorch's state dict.

    Parameters
    ----------
    groups
        As in `as_torch_optimizer`; None takes all parameters, or those that are trained, in the
        order of the module and the groups of the recipe.

    Raises
    ------
    InvalidStateError
        If it is the state of another optimizer or of other parameters, or of parameters with which
        it has taken different numbers of steps and these change the result.
    """
    recipe, variable_of = training.known_recipe, _variables(training)
    arrays: dict[str, Array] = {}
    steps: dict[str, int] = {}
    counted: dict[int, str] = {}
    for name, index in _given(training, state, groups):
        slots = training.step.slots.get(variable_of.get(name, ""))
        if slots is None:
            continue
        optimizer = recipe.optimizers[recipe.group_of(variable_of[name])]
        entry = state["state"].get(index) or {}
        called = _slots_of(optimizer)
        for slot, tensor in slots.items():
            if not entry:
                arrays[tensor] = training.step.initial_state[tensor]
            elif entry.get(called[slot]) is None:
                raise InvalidStateError(
                    f"the optimizer's state of {name} has no {called[slot]}; it has"
                    f" {', '.join(entry)}"
                )
            else:
                arrays[tensor] = to_array(entry[called[slot]])
        steps[name] = int(entry.get("step", 1)) if entry and slots else 0
        if isinstance(optimizer, NAdam) and entry:
            _check_momenta(optimizer, float(entry["mu_product"]), steps[name])
        if optimizer.needs_step:
            counted[steps[name]] = name
    if len(counted) > 1:
        (least, first), (most, last) = min(counted.items()), max(counted.items())
        raise InvalidStateError(
            f"the optimizer has taken {most} steps with {last} and {least} with {first}, and a step"
            " here counts the same for all; load_state_dict of the model alone begins with a new"
            " state of the optimizer"
        )
    return arrays, max(steps.values(), default=0)


def _check_momenta(optimizer: NAdam, product: float, steps: int) -> None:
    """Refuse a state whose momenta were others than those of the step.

    Raises
    ------
    InvalidStateError
        If the product of the momenta is not that of the optimizer's options.
    """
    expected = optimizer.momentum_product(steps)
    if not math.isclose(product, expected, rel_tol=1e-3, abs_tol=1e-6):
        raise InvalidStateError(
            f"the optimizer's state has a product of momenta of {product:.6g} after {steps} steps, and"
            f" the step's betas and momentum_decay make {expected:.6g}"
        )


def _given(
    training: Training, state: Mapping[str, Any], groups: Groups | None
) -> Iterable[tuple[str, int]]:
    """Names of parameters with their numbers in PyTorch's state dict."""
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
        raise InvalidStateError(
            "expected the state_dict of an optimizer of PyTorch, with `state` and `param_groups`"
        )
    given = [index for group in state["param_groups"] for index in group["params"]]
    every = [name for names in groups or groups_of_module(training) for name in names]
    variable_of = _variables(training)
    trained = [name for name in every if variable_of.get(name) in training.step.slots]
    if len(given) not in (len(every), len(trained)):
        raise InvalidStateError(
            f"the optimizer's state is of {len(given)} parameters; the model has {len(every)}, of"
            f" which {len(trained)} are trained"
        )
    return zip(every if len(given) == len(every) else trained, given, strict=True)


def load_torch_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Write a state dict into an optimizer; options that ours do not have stay as they are.

    Schedulers keep the rates that they begin from among the options of groups.
    """
    groups = [
        {**{key: value for key, value in old.items() if key != "params"}, **new}
        for old, new in zip(optimizer.param_groups, state["param_groups"], strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})


def _check_is_counterpart(optimizer: torch.optim.Optimizer, training: Training) -> None:
    """Refuse an optimizer of PyTorch that does something else than the step's.

    Raises
    ------
    InvalidStateError
        If it is of another kind.
    """
    wanted = torch_kind(training.known_recipe.optimizer)
    if wanted not in COUNTERPARTS:
        return
    known = [kind.__name__ for kind in type(optimizer).__mro__ if kind.__name__ in COUNTERPARTS][:1]
    if known == ["Adam"] and optimizer.param_groups[0].get("decoupled_weight_decay"):
        known = ["AdamW"]
    if known != [wanted]:
        raise InvalidStateError(
            f"the step's optimizer is {wanted}, the one given is {type(optimizer).__name__}"
        )


def _parameter_order(training: Training) -> list[str]:
    """Names of all parameters in the order of the module, each tensor once."""
    first = {role.name: role for role in training.roles if role.is_parameter}
    return [name for name in training.source.order or tuple(first) if name in first]


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
