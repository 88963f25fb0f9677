"""Train several steps in turns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_xengine.checks.arguments import checked, checked_fields
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.random_state import read_random_state, set_random_state
from tvm_xengine.session.fit import (
    Batches,
    CheckpointOptions,
    FitProgress,
    FitResult,
    Metric,
    taking_steps,
)
from tvm_xengine.session.step import Step


@checked_fields
@dataclass(frozen=True)
class Workload:
    """What one of several steps learns from, for how long, and how often it has its turn.

    Attributes
    ----------
    step
        One of `build_together`.
    data
        As in `fit`.
    share
        Steps that it takes in each turn.
    epochs, max_steps, validation, metrics, checkpoint, on_progress, guard, seed
        As in `fit`.
    """

    step: Step
    data: Batches
    share: int = 1
    epochs: int = 1
    max_steps: int | None = None
    validation: Batches | None = None
    metrics: Mapping[str, Metric] | None = None
    checkpoint: CheckpointOptions | str | Path | None = None
    on_progress: Callable[[FitProgress], None] | None = None
    guard: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"share must be >= 1, got {self.share}")


@checked
def fit_together(workloads: Mapping[str, Workload]) -> dict[str, FitResult]:
    """Train several steps in turns; each takes the steps that `fit` alone would take.

    In the order of the mapping each takes its share of steps, again and again. A share counts steps, not
    time. One that has come to its end leaves its turns to the others. Where data is shuffled by a
    global generator (of PyTorch, numpy or Python), each workload has a state of it to itself.

    Parameters
    ----------
    workloads
        By names of your choice.

    Raises
    ------
    NotFiniteError, StorageError
        When a step fails: it is as in `fit`, and the others have written their checkpoints.
    KeyboardInterrupt
        When interrupted: all have written their checkpoints.
    """
    runs = {name: _Turns(workload) for name, workload in workloads.items()}
    try:
        while any(run.result is None for run in runs.values()):
            for run in runs.values():
                run.take_turn()
    except BaseException:
        with ExitStack() as stack:
            for run in runs.values():
                stack.callback(run.stop)
        raise
    return {name: run.result for name, run in runs.items() if run.result is not None}


@dataclass
class _Turns:
    """A loop that goes on for a turn at a time."""

    workload: Workload
    result: FitResult | None = None
    _taking: Generator[None, None, FitResult] = field(init=False)
    _random: Mapping[str, Any] | None = field(init=False)

    def __post_init__(self) -> None:
        of = self.workload
        self._taking = taking_steps(
            of.step,
            of.data,
            epochs=of.epochs,
            max_steps=of.max_steps,
            validation=of.validation,
            metrics=of.metrics,
            checkpoint=of.checkpoint,
            on_progress=of.on_progress,
            guard=of.guard,
            seed=of.seed,
        )
        self._random = None if isinstance(of.data, Data) else read_random_state()

    def take_turn(self) -> None:
        """Take as many steps as the share says; none if the loop has ended."""
        if self.result is not None:
            return
        if self._random is not None:
            set_random_state(self._random)
        try:
            for _ in range(self.workload.share):
                next(self._taking)
        except StopIteration as end:
            self.result = end.value
        if self._random is not None:
            self._random = read_random_state()

    def stop(self) -> None:
        """Write the checkpoint of a loop that is paused; one that failed or ended has no more to write."""
        with suppress(KeyboardInterrupt, StopIteration):
            self._taking.throw(KeyboardInterrupt())
