"""What a package must compute: the same step on this machine's virtual machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.batches import BatchInput, seeded_batches
from tvm_xengine.compiler import (
    build_forward,
    build_step,
    lower_step,
    make_problem,
    plan_keep_everything,
)
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.graph import Role
from tvm_xengine.platform import Device, Platform
from tvm_xengine.problem import OpCost
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.training.evaluation import evaluation_module
from tvm_xengine.training.step import TrainingStep

Array = NDArray[np.generic]

_PLATFORM = Platform((Device("cpu", "llvm -mcpu=native"),))


@dataclass(frozen=True)
class Expected:
    """What a run of the self-test must give.

    Attributes
    ----------
    losses
        Of every step.
    output
        Of the evaluation of the last batch after the last step, flat.
    """

    losses: tuple[float, ...]
    output: tuple[float, ...]


def host_step(training: TrainingStep) -> StepExecutable:
    """The training step on this machine, everything kept."""
    step = lower_step(training.mod, _PLATFORM)
    problem = make_problem(
        step, _PLATFORM, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels}
    )
    return build_step(step, plan_keep_everything(problem, "cpu"))


def expected_results(
    model: ForwardModel,
    training: TrainingStep,
    inputs: Sequence[BatchInput],
    settings: Mapping[str, float],
    steps: int,
) -> Expected:
    """Losses of `steps` steps on seeded batches, and the output after them."""
    executable = host_step(training)
    executable.poison()
    executable.write(training.initial_state)
    hyper = {name: np.float32(value) for name, value in settings.items()}
    losses = []
    batches = seeded_batches(inputs)
    batch: Mapping[str, Array] = {}
    for _ in range(steps):
        batch = next(batches)
        results = executable.step({**batch, **{k: np.asarray(v) for k, v in hyper.items()}})
        losses.append(float(results["loss"]))
    forward = build_forward(evaluation_module(model), len(model.input_names), _PLATFORM)
    state = {**model.state, **executable.read_state()}
    forward.write({name: state[name] for name in forward.names(Role.PARAMETER)})
    given = {name: batch[name] for name in model.input_names}
    output = np.asarray(forward.step(given)["output"], np.float64)
    return Expected(tuple(losses), tuple(output.reshape(-1).tolist()))
