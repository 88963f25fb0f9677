"""What a training loop is given and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.data.arrays import Data
from tvm_xengine.planning.plan_again import Replanned
from tvm_xengine.session.step import Step

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
