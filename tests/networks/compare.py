"""Loss, gradients and five steps of a network, ours against PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tests.networks.network import Subject
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TrainingStep

MOMENTUM = 0.9
LEARNING_RATE = 2**-12
"""So small that five steps of a deep network with random weights are not chaos."""

Values = Mapping[str, NDArray[np.floating]]
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Trace:
    """What some training steps did: losses, the first gradients, the parameters at the end."""

    losses: tuple[float, ...]
    gradients: Values
    parameters: Values


def build_executable(subject: Subject) -> tuple[TrainingStep, StepExecutable]:
    """The network's step on one CPU device, through the same pipeline as every plan."""
    training = build_training_step(subject.model)
    # Most of the time goes into LLVM; its first level halves that and leaves the schedules alone.
    platform = Platform((Device("cpu", "llvm -mcpu=native -opt-level=1", kernels=("tir",)),))
    lowered = lower_step(training.mod, platform)
    # With one device and nothing dropped there is nothing to choose, so costs play no part.
    problem = make_problem(lowered, lambda kernels: {k.symbol: OpCost(1) for k in kernels})
    return training, build_step(lowered, plan_keep_all(problem, "cpu"))


def batches(
    training: TrainingStep, subject: Subject, vocabulary: int | None, count: int
) -> list[Batch]:
    """Random batches that the network reads: normal numbers or tokens, and classes."""
    random = torch.Generator().manual_seed(1)
    types = {param.name: param.ty for param in training.function.params}
    x_type, labels_type = (types[name] for name in training.batch_names)
    classes = static_shape(subject.model.main.ret_ty)[1]
    made = []
    for _ in range(count):
        shape = static_shape(x_type)
        if vocabulary is None:
            dtype = getattr(torch, str(x_type.dtype))
            x = torch.randn(shape, generator=random, dtype=dtype)
        else:
            x = torch.randint(0, vocabulary, shape, generator=random)
        labels = torch.randint(0, classes, static_shape(labels_type), generator=random)
        made.append((x, labels))
    return made


def run_ours(
    training: TrainingStep,
    executable: StepExecutable,
    data: Iterable[Batch],
) -> Trace:
    """Steps of momentum, whose slots hold the gradients after the first one."""
    executable.write(training.initial_state)
    losses: list[float] = []
    gradients: dict[str, NDArray[np.floating]] = {}
    for batch in data:
        values = dict(zip(training.batch_names, (part.numpy() for part in batch), strict=True))
        results = executable.step({**values, "lr": np.asarray(LEARNING_RATE)})
        losses.append(float(results["loss"]))
        if not gradients:
            slots = executable.read_state().items()
            gradients = {
                name.removesuffix("_velocity"): value
                for name, value in slots
                if name.endswith("_velocity")
            }
    state = executable.read_state()
    return Trace(tuple(losses), gradients, {name: state[name] for name in gradients})


def run_torch(subject: Subject, data: Iterable[Batch]) -> Trace:
    """The same steps by autograd and torch.optim."""
    leaves = subject.parameters
    optimizer = torch.optim.SGD(leaves.values(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses: list[float] = []
    gradients: dict[str, NDArray[np.floating]] = {}
    for x, labels in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(subject.forward(x), labels)
        loss.backward()
        losses.append(loss.item())
        if not gradients:
            gradients = {
                name: leaf.grad.numpy().copy()
                for name, leaf in leaves.items()
                if leaf.grad is not None
            }
        optimizer.step()
    return Trace(
        tuple(losses), gradients, {name: leaves[name].detach().numpy() for name in gradients}
    )


def gradient_error(found: Values, expected: Values, *, least_share: float) -> float:
    """Largest error, relative to the tensor's largest gradient.

    A bias in front of a batch norm has a gradient that is zero but for rounding. Tensors whose
    largest gradient is below `least_share` of the largest of all count relative to that.
    """
    if set(found) != set(expected):
        raise AssertionError(f"gradients differ in {sorted(set(found) ^ set(expected))}")
    largest = {name: np.abs(value).max() for name, value in expected.items()}
    floor = least_share * max(largest.values())
    errors = {
        name: float(np.abs(found[name] - value).max() / max(largest[name], floor))
        for name, value in expected.items()
    }
    return max(errors.values())


def loss_error(found: Trace, expected: Trace) -> float:
    """Largest relative error of a loss."""
    pairs = zip(found.losses, expected.losses, strict=True)
    return max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs)


def change_error(found: Trace, expected: Trace, initial: Values, *, least_share: float) -> float:
    """Largest error of a parameter after the steps, relative to the tensor's largest change."""
    return gradient_error(
        {name: value - initial[name] for name, value in found.parameters.items()},
        {name: value - initial[name] for name, value in expected.parameters.items()},
        least_share=least_share,
    )
