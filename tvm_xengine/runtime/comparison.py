"""Compares each training step with a reference step from the same state."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.graph import Role

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Comparison:
    """The differences between a run and its reference.

    Attributes
    ----------
    is_identical
        Whether every loss and every updated tensor agreed bit by bit in every step.
    max_rel_diff
        Largest difference after any step: of the loss, relative to the largest loss of the run,
        and of all parameters and running statistics together, relative in the Euclidean norm.
        (Entry by entry there is no bound: an activation within rounding of zero may pass a ReLU
        on one device and not on the other.)
    reference_step_us
        Wall clock of every reference step.
    """

    is_identical: bool
    max_rel_diff: float
    reference_step_us: tuple[float, ...]

    @property
    def median_reference_step_us(self) -> float:
        """Median over the reference steps but the first."""
        return median_but_first(self.reference_step_us)


class ReferenceRun:
    """The same steps with another executable.

    Training is chaotic: where an op moved to a device with other kernels, rounding differs in
    the last bit, and after hundreds of steps two free runs have little in common. So every
    reference step starts from the state that the step itself started from. Where all are
    bit-identical, free runs would be so too. Taking turns also makes the times comparable on a
    machine whose speed drifts.

    Everything but the state of both is poisoned first, so that reads of stale bytes show in
    the losses. Each step costs a copy of the state and the reference step.
    """

    def __init__(self, executable: StepExecutable, reference: StepExecutable) -> None:
        self._executable = executable
        self._reference = reference
        self._before: Mapping[str, Array] = {}
        self._largest_loss = 0.0
        self._is_identical, self._max_rel_diff = True, 0.0
        self._times_us: list[float] = []
        executable.poison()
        reference.poison()

    def follow(self, executable: StepExecutable) -> None:
        """Compare this executable of the same step from now on."""
        self._executable = executable
        executable.poison()

    def begin(self) -> None:
        """The step is about to be taken."""
        self._before = self._executable.read_state()

    def end(self, batch: Mapping[str, Array]) -> None:
        """The step was taken on `batch`: take it with the reference, and compare."""
        executable, reference = self._executable, self._reference
        reference.write(self._before)
        reference.write(batch)
        self._times_us.append(timed_run(reference))
        mine, other = _comparable(executable), _comparable(reference)
        self._is_identical &= all(mine[name].tobytes() == other[name].tobytes() for name in mine)
        learned = executable.names(Role.PARAMETER, Role.STATISTIC)
        loss = float(mine["loss"])
        self._largest_loss = max(self._largest_loss, abs(loss))
        self._max_rel_diff = max(
            self._max_rel_diff,
            abs(loss - float(other["loss"])) / (self._largest_loss or 1.0),
            relative_difference([mine[n] for n in learned], [other[n] for n in learned]),
        )

    @property
    def result(self) -> Comparison:
        """The differences over the steps so far."""
        return Comparison(self._is_identical, self._max_rel_diff, tuple(self._times_us))


def relative_difference(a: Sequence[Array], b: Sequence[Array]) -> float:
    """``|a - b| / |b|`` in the Euclidean norm over all tensors together."""
    difference = _norm(
        [x.astype(np.float64) - y.astype(np.float64) for x, y in zip(a, b, strict=True)]
    )
    return difference / (_norm(b) or 1.0)


def timed_run(executable: StepExecutable) -> float:
    """Run one step on the batch that was written; its wall clock in microseconds."""
    start = time.perf_counter()
    executable.run()
    return (time.perf_counter() - start) * 1e6


def median_but_first(times_us: Sequence[float]) -> float:
    """Median over the steps but the first, which warms caches up; 0 without steps."""
    return statistics.median(times_us[1:] or times_us) if times_us else 0.0


def _norm(tensors: Sequence[Array]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(t.astype(np.float64)))) for t in tensors)))


def _comparable(executable: StepExecutable) -> dict[str, Array]:
    """Results and persistent state after a step."""
    return {**executable.read_results(), **executable.read_state()}
