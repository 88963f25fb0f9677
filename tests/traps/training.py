"""Steps of a module by this project and by PyTorch, from the same state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import tvm_xengine as xe
from tests.databases.step import PLATFORM
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.scheduling.problem import OpCost

Loss = Callable[..., torch.Tensor]

STEPS = 3


def mean_square(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss whose gradient depends on every element."""
    return ((outputs - targets) ** 2).mean()


@dataclass(frozen=True)
class Trap:
    """A module, what it is called with, and how it is trained.

    Attributes
    ----------
    inputs
        Example inputs; every step takes the same.
    targets
        None draws numbers of the shape of the output.
    optimizer
        Of a module.
    """

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    targets: torch.Tensor | None = None
    loss: Loss = mean_square
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = lambda module: torch.optim.SGD(
        module.parameters(), 0.05, momentum=0.9, weight_decay=0.01
    )


Made = Callable[[Trap, nn.Module, torch.Tensor], xe.Training]
"""The training of a trap's module for targets."""


def of_module(trap: Trap, module: nn.Module, targets: torch.Tensor) -> xe.Training:
    """The training that the module is given to directly."""
    return xe.training_step(
        module,
        trap.inputs,
        loss=trap.loss,
        optimizer=trap.optimizer(module),
        example_targets=targets,
    )


def differences(trap: Trap, made: Made = of_module) -> list[str]:
    """How the steps differ from those of PyTorch: losses, and all tensors of the state at the end."""
    module = copy.deepcopy(trap.module).train()
    targets = trap.targets
    if targets is None:
        with torch.no_grad():
            shape = copy.deepcopy(module)(*trap.inputs).shape
        targets = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    wanted = copy.deepcopy(module)
    losses, found, state = _ours(made(trap, module, targets), [*trap.inputs, targets])
    expected = _pytorch(trap, wanted, targets)
    wrong = [
        f"loss of step {k}: {ours} instead of {theirs}"
        for k, (ours, theirs) in enumerate(zip(losses, expected, strict=True))
        if not np.allclose(ours, theirs, rtol=1e-4, atol=1e-6, equal_nan=True)
    ]
    for name, value in wanted.state_dict().items():
        if name not in found:
            continue
        ours, theirs = state[found[name]], value.detach().numpy()
        if not np.allclose(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append(f"{name}: {ours.ravel()[:4]} instead of {theirs.ravel()[:4]}")
    return wrong


def _ours(
    training: xe.Training, tensors: Sequence[torch.Tensor]
) -> tuple[list[float], dict[str, str], dict[str, np.ndarray]]:
    lowered = lower_step(training.step.mod, PLATFORM)
    costs = {kernel.symbol: OpCost(1.0) for kernel in lowered.kernels.values()}
    executable = build_step(
        lowered, plan_keep_all(make_problem(lowered, lambda _: costs), PLATFORM.home)
    )
    executable.write(training.step.initial_state)
    executable.poison()
    given: Sequence[np.ndarray] = [one.numpy() for one in tensors]
    names = training.step.batch_names
    batch = dict(
        zip(names, given[-len(names) :] if len(names) < len(given) else given, strict=True)
    )
    values = training.arguments(batch)
    arguments = dict(zip((*names, *training.step.hyper_names), values, strict=True))
    losses = [float(executable.step(arguments)["loss"]) for _ in range(STEPS)]
    found = {name: role.variable for role in training.roles for name in (role.name, *role.also)}
    return losses, found, executable.read_state()


def _pytorch(trap: Trap, module: nn.Module, targets: torch.Tensor) -> list[float]:
    optimizer = trap.optimizer(module)
    losses = []
    for _ in range(STEPS):
        loss = trap.loss(module(*trap.inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
