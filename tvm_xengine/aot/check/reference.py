"""Expected results of a package: the same step as its kernels are defined, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import tvm
from numpy.typing import DTypeLike
from threadpoolctl import threadpool_limits

from tvm_xengine.aot.check.batches import BatchInput, seeded_batches
from tvm_xengine.aot.check.definitions.expressions import Errors
from tvm_xengine.aot.check.definitions.functions import defined_function, in_kernels
from tvm_xengine.aot.check.updates import State, Update, expected_updates
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lean.short_storage import (
    ShortStorage,
    short_evaluation,
    short_parameters,
    with_short_storage,
)
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.step import TrainingStep

_PLAIN = "llvm -opt-level=1"
"""Most of an export is compiling what runs for twenty steps; the results are those of level 3."""
PLATFORM = Platform((Device("cpu", f"{_PLAIN} -mcpu=native", kernels=("tir",)),))
"""This machine, with generated kernels only, as a package has them."""

LOSS_TOLERANCE = 1e-5
"""Allowed difference of a loss, relative to one plus its size, where rounding is not amplified."""
OUTPUT_TOLERANCE = 1e-3
"""Least allowed difference of the evaluation's output, which follows twenty steps of rounding."""


@dataclass(frozen=True)
class Expected:
    """Expected results of a self-test run.

    Attributes
    ----------
    losses
        Of every step.
    outputs
        Of the evaluation of the last batch after the last step, flat, by the names of its results.
    rounding_errors
        For each step, the larger difference of its loss from two runs in float32 whose sums are off as
        those of plain loops are, relative to one plus its size. Deep networks with batch norms amplify it.
        What a sum is off in one run it is in the other with the other sign, so that a kink that is near
        (such as ReLU's) is crossed in one of them.
    storage_error
        Largest difference of a loss from the same run with everything in float32, relative to one
        plus its size; None where nothing is stored short.
    updates
        Of the first step, by the names of state tensors. The losses of later steps hardly tell of gradients
        where training amplifies errors.
    """

    losses: tuple[float, ...]
    outputs: Mapping[str, tuple[float, ...]]
    rounding_errors: tuple[float, ...]
    storage_error: float | None = None
    updates: Mapping[str, Update] = field(default_factory=dict)

    @property
    def rounding_error(self) -> float:
        """The largest of all steps."""
        return max(self.rounding_errors, default=0.0)

    @property
    def tolerances(self) -> tuple[float, ...]:
        """Allowed difference of each loss on another machine, relative to one plus its size.

        Training amplifies errors, so early losses tell more. Another machine may cross a kink earlier: of
        step n counts what is seen until step 2 n.
        """
        until = (self.rounding_errors[: 2 * n + 1] for n in range(len(self.rounding_errors)))
        return tuple(max(LOSS_TOLERANCE, 10 * max(errors)) for errors in until)

    @property
    def output_tolerance(self) -> float:
        """Allowed difference of the output, to which all steps contribute."""
        return max(OUTPUT_TOLERANCE, 100 * self.rounding_error)


def host_step(training: TrainingStep) -> StepExecutable:
    """The training step on this machine, with all tensors kept."""
    return kept_step(lower_step(training.mod, PLATFORM))


def kept_step(step: LoweredStep) -> StepExecutable:
    """A lowered function on this machine, with all tensors kept."""
    problem = make_problem(step, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels})
    return build_step(step, plan_keep_all(problem, "cpu"))


@dataclass(frozen=True)
class Trial:
    """The run that a self-test repeats.

    Attributes
    ----------
    settings
        Value of each setting, such as the learning rate.
    """

    inputs: Sequence[BatchInput]
    settings: Mapping[str, float]
    steps: int


def expected_results(
    model: ForwardModel,
    training: TrainingStep,
    trial: Trial,
    storage: ShortStorage | None = None,
) -> Expected:
    """Losses of a run on seeded batches, and the output after it, without the loops that are tested.

    On one core: products of matrices are small, threads wait for one another wherever others work, and they
    add in another order where there are more of them.

    Parameters
    ----------
    training
        Of `model`, everything in float32.
    storage
        What is stored in a short type.
    """
    with threadpool_limits(1, "blas"):
        return _expected_results(model, training, trial, storage)


def _expected_results(
    model: ForwardModel, training: TrainingStep, trial: Trial, storage: ShortStorage | None
) -> Expected:
    stored = training if storage is None else with_short_storage(training, storage)
    kernels = in_kernels(stored.mod, TRAIN_STEP)
    run = _run(stored, kernels, trial, np.float64)
    short = () if storage is None else short_parameters(training, storage)
    outputs = _outputs(model, {**stored.initial_state, **run.state}, trial, storage, short)
    rounded = [
        _run(stored, kernels, trial, np.float32, errors) for errors in (_drawn(1), _drawn(-1))
    ]
    both = zip(*(_differences(run.losses, other.losses) for other in rounded), strict=True)
    expected = Expected(
        run.losses,
        outputs,
        tuple(max(pair) for pair in both),
        updates=expected_updates(stored.initial_state, run.first, [one.first for one in rounded]),
    )
    if storage is None:
        return expected
    exact = _run(training, in_kernels(training.mod, TRAIN_STEP), trial, np.float64).losses
    return replace(expected, storage_error=max(_differences(run.losses, exact), default=0.0))


def _drawn(sign: int) -> Errors:
    """Errors that with the other sign are opposite."""
    generator = np.random.default_rng(0)
    return lambda shape: sign * generator.standard_normal(shape)


def _differences(losses: Sequence[float], others: Sequence[float]) -> list[float]:
    return [abs(a - b) / (1 + abs(b)) for a, b in zip(losses, others, strict=True)]


@dataclass(frozen=True)
class _Run:
    """A run; `first` and `state` are what its first step, and all steps, have made of the state."""

    losses: tuple[float, ...]
    first: State
    state: State


def _run(
    training: TrainingStep,
    kernels: tvm.IRModule,
    trial: Trial,
    wide: DTypeLike,
    errors: Errors | None = None,
) -> _Run:
    hyper = {name: np.asarray(value, "float32") for name, value in trial.settings.items()}
    losses: list[float] = []
    first: State = {}
    state: State = {}
    step = defined_function(kernels, TRAIN_STEP, wide, errors)
    for batch in islice(seeded_batches(trial.inputs), trial.steps):
        results, new = step({**training.initial_state, **state, **batch, **hyper})
        state = {**state, **new}
        first = first or state
        losses.append(float(results["loss"]))
    return _Run(tuple(losses), first, state)


def _outputs(
    model: ForwardModel,
    trained: Mapping[str, Array],
    trial: Trial,
    storage: ShortStorage | None,
    short: Sequence[str],
) -> dict[str, tuple[float, ...]]:
    """What the evaluation makes of the last batch."""
    last = max(trial.steps - 1, 0)
    (batch,) = islice(seeded_batches(trial.inputs), last, last + 1)
    mod, constants = short_evaluation(model, storage, short)
    evaluation = defined_function(in_kernels(mod, "main"), "main", np.float64)
    results, _ = evaluation({**model.state, **constants, **trained, **batch})
    return {
        name: tuple(value.astype(np.float64).reshape(-1).tolist())
        for name, value in results.items()
    }
