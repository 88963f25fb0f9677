"""The figures of one network: what its step costs, and how exact it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import tvm

from tests.networks.compare import (
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
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_training_step

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
        Of the gradients against differences of our own loss; None where PyTorch's word is enough.
    """

    gradient: float
    loss: float
    change: float
    directional: float | None


@dataclass(frozen=True)
class SingleErrors:
    """In float32: of the first gradients against PyTorch's in float64, and PyTorch's own."""

    gradient: float
    torch_gradient: float


def count(network: Network) -> Sizes:
    """Sizes at the full setting; nothing is compiled."""
    model = network.published(network.full)
    training = build_training_step(model)
    platform = Platform((Device("cpu", "llvm -mcpu=native", kernels=("tir",)),))
    unfused = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP, fuse=False)])(training.mod)
    lowered = lower_step(training.mod, platform)
    problem = make_problem(lowered, lambda kernels: {k.symbol: OpCost(1) for k in kernels})
    plan = plan_keep_all(problem, "cpu")
    return Sizes(
        parameters=sum(value.size for value in model.parameters.values()),
        ops_unfused=len(extract_graph(unfused, TRAIN_STEP).graph.ops),
        ops=len(problem.graph.ops),
        keep_all_bytes=plan.arenas.arena_bytes["cpu"],
    )


def compared(network: Network) -> Errors:
    """Errors in float64 at the reduced setting."""
    subject = network.subject(network.checked, torch.float64)
    training, executable = build_executable(subject)
    data = batches(training, subject, network.vocabulary, STEPS)
    initial = {name: training.initial_state[name].copy() for name in subject.model.parameters}
    ours = run_ours(training, executable, data)
    numeric = None
    if network.is_imported_twice:
        numeric = directional_error(training, executable, ours.gradients, data[0])
    del training, executable
    theirs = run_torch(subject, data)
    return Errors(
        gradient=gradient_error(ours.gradients, theirs.gradients, least_share=ZERO_SHARE),
        loss=loss_error(ours, theirs),
        change=change_error(ours, theirs, initial, least_share=ZERO_SHARE),
        directional=numeric,
    )


def compared_in_float32(network: Network) -> SingleErrors:
    """Errors in float32 at the reduced setting, from the same parameters and batch."""
    subject = network.subject(network.checked, torch.float32)
    training, executable = build_executable(subject)
    (batch,) = batches(training, subject, network.vocabulary, 1)
    ours = run_ours(training, executable, [batch]).gradients
    del training, executable
    theirs = run_torch(subject, [batch]).gradients
    double = network.subject(network.checked, torch.float64)
    x, labels = batch
    exact = run_torch(double, [(x.double() if x.is_floating_point() else x, labels)]).gradients
    return SingleErrors(_nonzero_error(ours, exact), _nonzero_error(theirs, exact))


def _nonzero_error(found: Values, expected: Values) -> float:
    """The error over tensors whose gradients are not zero in exact arithmetic."""
    largest = {name: float(np.abs(value).max()) for name, value in expected.items()}
    floor = ZERO_SHARE * max(largest.values())
    kept = [name for name, value in largest.items() if value > floor]
    return gradient_error(_only(found, kept), _only(expected, kept), least_share=0.0)


def _only(values: Values, names: list[str]) -> Mapping[str, np.ndarray]:
    return {name: values[name] for name in names}
