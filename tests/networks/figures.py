"""The figures of one network: what its step costs, and how exact it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
import tvm

from tests.networks.compare import (
    Batch,
    Values,
    batches,
    build_executable,
    change_error,
    gradient_error,
    loss_error,
    run_ours,
    run_torch,
)
from tests.networks.directional import directional_error
from tests.networks.network import Network
from tvm_xengine.compiler import lower_step, make_problem, plan_keep_everything
from tvm_xengine.extract import extract_graph
from tvm_xengine.passes.lower_to_kernels import LowerToKernels
from tvm_xengine.platform import Device, Platform
from tvm_xengine.problem import OpCost
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TRAIN_STEP

STEPS = 5
ZERO_SHARE = 1e-6
"""A tensor with all gradients below this share of the largest one is zero but for rounding."""


@dataclass(frozen=True)
class Sizes:
    """Of the whole training step, optimizer included, at full size in float32.

    Attributes
    ----------
    ops_unfused, ops
        Kernel calls before and after fusion.
    keep_all_bytes
        Arena that keeps everything, parameters and optimizer state included.
    """

    parameters: int
    ops_unfused: int
    ops: int
    keep_all_bytes: int


@dataclass(frozen=True)
class Errors:
    """In float64, against PyTorch.

    Attributes
    ----------
    gradient, loss, change
        Of the first gradients, of the losses of five steps, of what the steps changed.
    directional
        Of the gradients against differences of our own loss.
    """

    gradient: float
    loss: float
    change: float
    directional: float


@dataclass(frozen=True)
class Figures:
    """One row of the table.

    Attributes
    ----------
    full, checked
        Setting of the sizes, and of the errors: (batch, size).
    float32, torch_float32
        Errors of the first gradients in float32 against PyTorch's in float64: ours, and PyTorch's
        own.
    """

    name: str
    source: str
    full: tuple[int, int | None]
    checked: tuple[int, int | None]
    sizes: Sizes
    float64: Errors
    float32: float
    torch_float32: float

    def as_document(self) -> dict[str, object]:
        """The row for a JSON file."""
        return asdict(self)


def measure(network: Network) -> Figures:
    """Count the network at full size, compare it at the reduced one."""
    errors, gradients, batch = _compared(network)
    ours, theirs = _float32_gradients(network, batch)
    return Figures(
        name=network.name,
        source=network.source,
        full=(network.full.batch, network.full.size),
        checked=(network.checked.batch, network.checked.size),
        sizes=count(network),
        float64=errors,
        float32=_nonzero_error(ours, gradients),
        torch_float32=_nonzero_error(theirs, gradients),
    )


def count(network: Network) -> Sizes:
    """Sizes at the full setting; nothing is compiled."""
    model = network.published(network.full)
    training = build_training_step(model)
    platform = Platform((Device("cpu", "llvm -mcpu=native"),))
    unfused = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP, fuse=False)])(training.mod)
    lowered = lower_step(training.mod, platform)
    problem = make_problem(
        lowered, platform, lambda kernels: {k.symbol: OpCost(1) for k in kernels}
    )
    plan = plan_keep_everything(problem, "cpu")
    return Sizes(
        parameters=sum(value.size for value in model.parameters.values()),
        ops_unfused=len(extract_graph(unfused, TRAIN_STEP).graph.ops),
        ops=len(problem.graph.ops),
        keep_all_bytes=plan.arenas.arena_bytes["cpu"],
    )


def compared(network: Network) -> Errors:
    """Errors in float64 at the reduced setting."""
    return _compared(network)[0]


def _compared(network: Network) -> tuple[Errors, Values, Batch]:
    """The errors, PyTorch's first gradients and the batch that they belong to."""
    subject = network.subject(network.checked, torch.float64)
    training, executable = build_executable(subject)
    data = batches(training, subject, network.vocabulary, STEPS)
    initial = {name: training.initial_state[name].copy() for name in subject.model.parameters}
    ours = run_ours(training, executable, data)
    numeric = directional_error(training, executable, ours.gradients, data[0])
    del training, executable
    theirs = run_torch(subject, data)
    errors = Errors(
        gradient=gradient_error(ours.gradients, theirs.gradients, least_share=ZERO_SHARE),
        loss=loss_error(ours, theirs),
        change=change_error(ours, theirs, initial, least_share=ZERO_SHARE),
        directional=numeric,
    )
    return errors, theirs.gradients, data[0]


def _float32_gradients(network: Network, batch: Batch) -> tuple[Values, Values]:
    """Gradients of a step in float32, ours and PyTorch's, from the same parameters."""
    x, labels = batch
    single = (x.float() if x.is_floating_point() else x, labels)
    subject = network.subject(network.checked, torch.float32)
    training, executable = build_executable(subject)
    ours = run_ours(training, executable, [single]).gradients
    del training, executable
    return ours, run_torch(subject, [single]).gradients


def _nonzero_error(found: Values, expected: Values) -> float:
    """The error over tensors whose gradients are not zero in exact arithmetic."""
    largest = {name: float(np.abs(value).max()) for name, value in expected.items()}
    floor = ZERO_SHARE * max(largest.values())
    kept = [name for name, value in largest.items() if value > floor]
    return gradient_error(_only(found, kept), _only(expected, kept), least_share=0.0)


def _only(values: Values, names: list[str]) -> Mapping[str, np.ndarray]:
    return {name: values[name] for name in names}
