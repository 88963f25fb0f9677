"""The training loop: epochs over data, validation, checkpoints, and resuming."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.random_state import read_random_state, set_random_state
from tvm_xengine.errors import InvalidDataError, InvalidStateError, NotFiniteError, StorageError
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.session.loop.batches import arguments_of, batch_size_of
from tvm_xengine.session.loop.validation import check_validation, validated
from tvm_xengine.session.loop.workload import (
    Batches,
    CheckpointOptions,
    FitProgress,
    FitResult,
    Metric,
    Workload,
)
from tvm_xengine.session.plans.replan import Replanning
from tvm_xengine.session.step import Step
from tvm_xengine.state.checkpoint import Position, load_step, save_step


@checked
def fit(
    step: Step,
    data: Batches,
    *,
    epochs: int = 1,
    max_steps: int | None = None,
    validation: Batches | None = None,
    metrics: Mapping[str, Metric] | None = None,
    checkpoint: CheckpointOptions | str | Path | None = None,
    on_progress: Callable[[FitProgress], None] | None = None,
    guard: bool = True,
    replan: bool = False,
    seed: int = 0,
) -> FitResult:
    """Train for some epochs; a resumed run takes the same steps as an uninterrupted one.

    Parameters
    ----------
    step
        What `compile` or `build` returned.
    data
        Of a `Data` the order depends on `seed` and the epoch. Another iterable is repeated for
        each epoch; where it shuffles with the global generator of PyTorch, numpy or Python, their
        state at the beginning of the epoch is part of the checkpoint.
    epochs
        Total number of passes over the data, including those before a resumed checkpoint.
    max_steps
        Total number of steps after which the run ends.
    validation
        Evaluated after each epoch; of a `Data` its validation samples are by default.
    metrics
        By name; None computes the loss, and the accuracy where targets are classes.
    checkpoint
        A path writes one checkpoint per epoch. One is also written at the end, and when the run is
        interrupted (KeyboardInterrupt), which takes effect between two steps; not where the devices
        are on several ranks, since the others may have begun the next step. Guarded, a run that is
        ended by a file of a device that cannot be read or written writes one, too.
    on_progress
        Called after each step, and after the validation of each epoch.
    guard
        Undoes a step that makes a NaN or an infinity; see `Step.guard` for what it costs.
    replan
        Time the calls of some steps in place, plan again with these times, and go on with the
        better plan; see `Replanning`.
    seed
        Of the order of a `Data`.

    Raises
    ------
    NotFiniteError
        When a loss or the state is not finite; guarded, the state before that step is in place.
        Guarded, also when the loss of a validation is not finite.
    StorageError
        If a file of a device could not be read or written; guarded, the state is that of the last
        completed step.
    """
    workload = Workload(
        step,
        data,
        epochs=epochs,
        max_steps=max_steps,
        validation=validation,
        metrics=metrics,
        checkpoint=checkpoint,
        on_progress=on_progress,
        guard=guard,
        seed=seed,
    )
    taking = taking_steps(workload, replan=replan)
    while True:
        try:
            next(taking)
        except StopIteration as end:
            result: FitResult = end.value
            return result


def taking_steps(of: Workload, *, replan: bool = False) -> Generator[None, None, FitResult]:
    """The loop of `fit`, which pauses after each step; an interrupt thrown into it is taken as there."""
    step, data, checkpoint = of.step, of.data, of.checkpoint
    for name, count in (("epochs", of.epochs), ("max_steps", of.max_steps)):
        if count is not None and count < 0:
            raise ValueError(f"{name} must not be negative, got {count}")
    saving = (
        CheckpointOptions(Path(checkpoint)) if isinstance(checkpoint, str | Path) else checkpoint
    )
    position = _resumed(step, saving)
    shuffles = not isinstance(data, Data)
    if shuffles:
        _restore_generators(position)
    if of.guard:
        step.guard()
    run = _Run(step, saving, of.on_progress, of.max_steps, position, shuffles, of.guard)
    run.replanning = Replanning(step) if replan else None
    try:
        for epoch in range(position.epoch, of.epochs):
            start = position.batch if epoch == position.epoch else 0
            random = run.random_state()
            batches = _epoch(step, data, epoch, start, of.seed)
            if not (yield from run.epoch(epoch, start, batches, random)):
                break
            run.end_epoch(epoch, validated(step, data, of.validation, of.metrics))
    except (KeyboardInterrupt, StorageError) as error:
        # A step whose storage failed was undone where it is guarded: the state is that of the last one.
        is_whole = isinstance(error, KeyboardInterrupt) or of.guard
        if saving is not None and is_whole and step.lowered.platform.ranks == 1:
            save_step(step, saving.path, run.position)
        raise
    finally:
        if run.replanning is not None:
            run.replanning.stop()
    if saving is not None:
        save_step(step, saving.path, run.position)
    replanned = None if run.replanning is None else run.replanning.result
    return FitResult(tuple(run.losses), tuple(run.validation), step.steps_taken, replanned)


def _resumed(step: Step, saving: CheckpointOptions | None) -> Position:
    """Where the loop begins: where its checkpoint ended, whose state is read, else where the step is."""
    if saving is not None and isinstance(saving.resume, str | Path):
        return load_step(step, Path(saving.resume))
    if saving is not None and saving.resume and saving.path.exists():
        return load_step(step, saving.path)
    return Position(step.steps_taken, step.lr)


@dataclass
class _Run:
    """A run of the loop: its losses and metrics, and its position."""

    step: Step
    saving: CheckpointOptions | None
    on_progress: Callable[[FitProgress], None] | None
    max_steps: int | None
    position: Position
    shuffles: bool
    guard: bool
    losses: list[float] = field(default_factory=list)
    validation: list[Mapping[str, float]] = field(default_factory=list)
    replanning: Replanning | None = None
    _last: FitProgress | None = None

    def random_state(self) -> Mapping[str, Any]:
        """State of the generators that order the data of an epoch which begins now."""
        return read_random_state() if self.shuffles else {}

    def epoch(
        self, epoch: int, start: int, batches: Iterable[Any], random: Mapping[str, Any]
    ) -> Generator[None, None, bool]:
        """Take the steps of an epoch from batch `start`; returns whether the epoch was completed."""
        step, saving, batch = self.step, self.saving, start - 1
        for batch, given in enumerate(batches, start=start):
            if self.max_steps is not None and step.steps_taken >= self.max_steps:
                return False
            arguments = arguments_of(given)
            with interrupts_held():
                loss = float(step.step(*arguments))
                if not np.isfinite(loss):
                    raise NotFiniteError(
                        f"the loss of step {step.steps_taken} is {loss}; try a smaller learning rate",
                        "loss",
                    )
                self.losses.append(loss)
                self.position = Position(step.steps_taken, step.lr, epoch, batch + 1, random)
            if saving and saving.every_steps and step.steps_taken % saving.every_steps == 0:
                save_step(step, saving.path, self.position)
            self._tell(FitProgress(step.steps_taken, epoch, batch, loss))
            if self.replanning is not None:
                self.replanning.after_step()
            yield
        if batch < 0:
            raise InvalidDataError("the data gave no batch; an iterator can be used only once")
        return True

    def end_epoch(self, epoch: int, found: Mapping[str, float]) -> None:
        """Record the metrics of the validation, and write the checkpoint of the epoch."""
        self.validation.append(found)
        if self._last is not None and found:
            self._tell(replace(self._last, validation=found))
        if self.guard:
            check_validation(found, self.step.steps_taken)
        step = self.step
        self.position = Position(step.steps_taken, step.lr, epoch + 1, 0, self.random_state())
        if self.saving is not None and self.saving.every_steps is None:
            save_step(self.step, self.saving.path, self.position)

    def _tell(self, progress: FitProgress) -> None:
        self._last = progress
        if self.on_progress is not None:
            self.on_progress(progress)


def _epoch(step: Step, data: Batches, epoch: int, start: int, seed: int) -> Iterator[Any]:
    """The batches of an epoch from `start` on."""
    if isinstance(data, Data):
        return data.epoch(epoch, batch_size_of(step), seed, start)
    return islice(iter(data(epoch) if callable(data) else data), start, None)


def _restore_generators(position: Position) -> None:
    """Set the generators that shuffle data as they were when the epoch of a position began."""
    try:
        set_random_state(position.random)
    except ValueError as error:
        raise InvalidStateError(f"the checkpoint cannot be resumed: {error}") from error
