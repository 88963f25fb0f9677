"""The training loop: epochs over data, validation, checkpoints, and resuming."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.checks.arguments import checked, checked_fields
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.random_state import read_random_state, set_random_state
from tvm_xengine.errors import InvalidDataError, InvalidStateError, NotFiniteError, StorageError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.step_names import step_name
from tvm_xengine.model.metrics import metrics_of_loss, returns_scalar
from tvm_xengine.model.source import as_array, leaves
from tvm_xengine.planning.plan_again import Replanned
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.session.plans.replan import Replanning
from tvm_xengine.session.step import Step
from tvm_xengine.state.checkpoint import Position, load_step, save_step

_logger = logging.getLogger(__name__)

Batches = Data | Iterable[Any] | Callable[[int], Iterable[Any]]
"""Arrays, any iterable of batches that can be repeated, or a function of the epoch that gives one."""

Metric = Callable[..., float]
"""``metric(outputs, *targets) -> number``, averaged over the batches of the validation."""


@dataclass(frozen=True)
class FitProgress:
    """The position of the loop after a step or an epoch.

    Attributes
    ----------
    step, epoch, batch
        Steps taken in all; epoch and batch of the last one, counted from 0.
    loss
        Of the last step.
    validation
        Metrics by name, after the last batch of an epoch; else empty.
    """

    step: int
    epoch: int
    batch: int
    loss: float
    validation: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FitResult:
    """The result of a run of the loop.

    Attributes
    ----------
    losses
        Of every step of this run.
    validation
        Metrics of every epoch of this run.
    steps_taken
        Steps of the training step in all, those of earlier runs included.
    replanned
        What measuring in place has changed; None where that was not asked for, or the run was
        too short.
    """

    losses: tuple[float, ...]
    validation: tuple[Mapping[str, float], ...]
    steps_taken: int
    replanned: Replanned | None = None

    def as_document(self) -> dict[str, object]:
        """The history in numbers, lists and mappings, for ``json.dumps``."""
        validation = [dict(one) for one in self.validation]
        return {
            "losses": list(self.losses),
            "validation": validation,
            "steps_taken": self.steps_taken,
        }


@checked_fields
@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often the state is written.

    Attributes
    ----------
    path
        One file, which each checkpoint replaces.
    every_steps
        Steps between two of them; None writes one per epoch. One is written at the end.
    resume
        True continues from the file if it exists; a path continues from that checkpoint.
    """

    path: Path
    every_steps: int | None = None
    resume: bool | str | Path = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps must be >= 1, got {self.every_steps}")


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
    position = Position(step.steps_taken, step.lr)
    if saving is not None and isinstance(saving.resume, str | Path):
        position = load_step(step, Path(saving.resume))
    elif saving is not None and saving.resume and saving.path.exists():
        position = load_step(step, saving.path)
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
            run.end_epoch(epoch, _validated(step, data, of.validation, of.metrics))
    except KeyboardInterrupt:
        if saving is not None and step.lowered.platform.ranks == 1:
            save_step(step, saving.path, run.position)
        raise
    except StorageError:
        # The failed step was undone, so that the state is that of the last completed one.
        if saving is not None and of.guard and step.lowered.platform.ranks == 1:
            save_step(step, saving.path, run.position)
        raise
    finally:
        if run.replanning is not None:
            run.replanning.stop()
    if saving is not None:
        save_step(step, saving.path, run.position)
    replanned = None if run.replanning is None else run.replanning.result
    return FitResult(tuple(run.losses), tuple(run.validation), step.steps_taken, replanned)


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
            arguments = _arguments(given)
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


def check_validation(found: Mapping[str, float], steps_taken: int) -> None:
    """Refuse a loss of the validation that is not finite: no step of a state that diverged shows it.

    Raises
    ------
    NotFiniteError
        Says after how many steps.
    """
    if not np.isfinite(loss := found.get("loss", 0.0)):
        raise NotFiniteError(
            f"the validation loss after step {steps_taken} is {loss}; try a smaller learning rate",
            "loss",
        )


@checked
def evaluate(
    step: Step, data: Batches, metrics: Mapping[str, Metric] | None = None
) -> dict[str, float]:
    """Metrics of the predictions for every batch, averaged by the samples that count.

    Parameters
    ----------
    step
        Predicts in evaluation mode.
    data
        As in `fit`; of a `Data` the validation samples count.
    metrics
        Functions of outputs and targets by name; None computes the loss, and the accuracy where
        targets are classes.

    Raises
    ------
    InvalidDataError
        If the data gave no batch.
    """
    totals: dict[str, float] = {}
    samples = 0
    inputs = step.training.source.inputs
    for batch, counted, size in _validation_batches(step, data):
        names = step.batch_names
        if isinstance(batch, Mapping):
            values = {step_name(name, names): value for name, value in batch.items()}
        else:
            values = dict(zip(names, leaves(_arguments(batch)), strict=False))
        outputs = step.predict({name: values[name] for name in inputs})
        targets = [values[name] for name in names if name not in inputs]
        found = _metrics(step, metrics)
        for name, metric in found.items():
            value = float(
                metric(
                    leading(outputs, counted, size), *(leading(t, counted, size) for t in targets)
                )
            )
            totals[name] = totals.get(name, 0.0) + value * counted
        samples += counted
    if not samples:
        raise InvalidDataError("the validation data gave no batch")
    return {name: total / samples for name, total in totals.items()}


def _metrics(step: Step, metrics: Mapping[str, Metric] | None) -> Mapping[str, Metric]:
    recipe = step.training.recipe
    evaluation = step.training.source.evaluation
    own = {} if recipe is None else metrics_of_loss(recipe.loss, evaluation)
    return own if metrics is None else metrics


def _validated(
    step: Step, data: Batches, validation: Batches | None, metrics: Mapping[str, Metric] | None
) -> Mapping[str, float]:
    if validation is None:
        validation = data if isinstance(data, Data) and data.validation else None
    if validation is None or not _metrics(step, metrics):
        return {}
    return evaluate(step, validation, metrics)


def _validation_batches(step: Step, data: Batches) -> Iterator[tuple[Any, int, int]]:
    """Batches with the number of samples that count, and of all."""
    if isinstance(data, Data):
        # Of micro-batches a step takes several, the evaluation takes one.
        evaluation = step.training.source.evaluation
        size = evaluation.batch_size
        for batch, counted in whole_batches(data.validation_batches(size), evaluation):
            yield batch, counted, size
        return
    size = _batch_size(step)
    for batch in data(0) if callable(data) else data:
        yield batch, size, size


def whole_batches(
    batches: Iterable[tuple[Any, int]], evaluation: ForwardModel
) -> Iterator[tuple[Any, int]]:
    """All batches, but for a last one that is filled up, where the model returns one loss for a batch.

    Raises
    ------
    InvalidDataError
        If no batch is left.
    """
    if not returns_scalar(evaluation):
        yield from batches
        return
    size, are_none = evaluation.batch_size, True
    for batch, counted in batches:
        if counted == size:
            are_none = False
            yield batch, counted
        elif are_none:
            raise InvalidDataError(
                f"the model returns the loss of a batch of {size}, and there are {counted} samples to"
                " evaluate; give more, or export it for a smaller batch"
            )
        else:
            _logger.warning(
                "the last %d samples are not evaluated: the model returns the loss of a batch of %d",
                *(counted, size),
            )


def _epoch(step: Step, data: Batches, epoch: int, start: int, seed: int) -> Iterator[Any]:
    """The batches of an epoch from `start` on."""
    if isinstance(data, Data):
        return data.epoch(epoch, _batch_size(step), seed, start)
    return islice(iter(data(epoch) if callable(data) else data), start, None)


def _batch_size(step: Step) -> int:
    """The leading dimension of the step's first input."""
    return int(step.executable.interface.given[step.batch_names[0]].shape[0])


def _arguments(batch: Any) -> Sequence[Any]:
    """What a step is called with for a batch of a loader."""
    return tuple(batch) if isinstance(batch, list | tuple) else (batch,)


def leading(value: Any, count: int, size: int) -> Any:
    """What belongs to the first `count` of `size` samples, of tensors in a structure.

    Several entries of the first axis may belong to a sample, such as one for each of its tokens.
    """
    if isinstance(value, Mapping):
        return {name: leading(one, count, size) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(leading(one, count, size) for one in value)
    array = as_array(value)
    if not array.ndim:
        return array
    return array[: len(array) * count // size]


def _restore_generators(position: Position) -> None:
    """Set the generators that shuffle data as they were when the epoch of a position began."""
    try:
        set_random_state(position.random)
    except ValueError as error:
        raise InvalidStateError(f"the checkpoint cannot be resumed: {error}") from error
