"""Trains with an executable, each step held against a reference that does the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.guard import FiniteGuard
from tvm_xengine.scheduling.graph import Role

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Trace:
    """What a run of training steps left behind.

    Attributes
    ----------
    losses
        Of every step.
    step_us
        Wall clock of every step, without copying the batch in.
    state
        Persistent tensors after the last step.
    """

    losses: tuple[float, ...]
    step_us: tuple[float, ...]
    state: Mapping[str, Array]

    @property
    def median_step_us(self) -> float:
        """Median over the steps but the first, which warms caches up."""
        return _median_but_first(self.step_us)


@dataclass(frozen=True)
class Comparison:
    """A step held against a reference that does the same.

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
        return _median_but_first(self.reference_step_us)


def train(
    executable: StepExecutable,
    initial_state: Mapping[str, Array],
    batches: Iterator[Mapping[str, Array]],
    steps: int,
    *,
    reference: StepExecutable | None = None,
    guard: bool = True,
    on_step: Callable[[int, float], None] | None = None,
) -> tuple[Trace, Comparison | None]:
    """Train for `steps` steps; each one is also taken by `reference`, from the same state.

    Training is chaotic: where an op moved to a device with other kernels, rounding differs in
    the last bit, and after hundreds of steps two free runs have little in common. So every
    reference step starts from the state that the step itself started from. Where all are
    bit-identical, free runs would be so too. Taking turns also makes the times comparable on a
    machine whose speed drifts.

    Before the first step everything but the state is poisoned, so that a read of something
    stale shows in the losses.

    Parameters
    ----------
    batches
        Yields the batch and hyper inputs of a step by name.
    guard
        Whether a step that makes values that are not finite is undone and ends the training, at
        the cost that `FiniteGuard` states.
    on_step
        Called with the number of finished steps and the loss.

    Returns
    -------
    trace, comparison
        The comparison is None without a reference.

    Raises
    ------
    InvalidInputError
        If a batch is not what the step reads; the state is that of the last step.
    NotFiniteError
        If the guard stopped a step; the executable holds the state before it.
    """
    losses: list[float] = []
    step_us: list[float] = []
    reference_us: list[float] = []
    is_identical, max_rel_diff = True, 0.0
    executable.poison()
    executable.write(initial_state)
    if reference is not None:
        reference.poison()
    transaction = FiniteGuard(executable) if guard else None
    for done in range(1, steps + 1):
        batch = next(batches)
        before = executable.read_state() if reference is not None else {}
        if transaction is None:
            executable.write(executable.check(batch))
        else:
            transaction.write(batch)
        step_us.append(_timed_run(executable))
        results = executable.read_results() if transaction is None else transaction.settle()
        losses.append(float(results["loss"]))
        if reference is not None:
            reference.write(before)
            reference.write(batch)
            reference_us.append(_timed_run(reference))
            mine, other = _comparable(executable), _comparable(reference)
            is_identical = is_identical and all(
                mine[name].tobytes() == other[name].tobytes() for name in mine
            )
            learned = executable.names(Role.PARAMETER, Role.STATISTIC)
            max_rel_diff = max(
                max_rel_diff,
                abs(losses[-1] - float(other["loss"])) / (max(map(abs, losses)) or 1.0),
                relative_difference([mine[n] for n in learned], [other[n] for n in learned]),
            )
        if on_step is not None:
            on_step(done, losses[-1])
    comparison = (
        Comparison(is_identical, max_rel_diff, tuple(reference_us))
        if reference is not None
        else None
    )
    return Trace(tuple(losses), tuple(step_us), executable.read_state()), comparison


def relative_difference(a: Sequence[Array], b: Sequence[Array]) -> float:
    """``|a - b| / |b|`` in the Euclidean norm over all tensors together."""
    difference = _norm(
        [x.astype(np.float64) - y.astype(np.float64) for x, y in zip(a, b, strict=True)]
    )
    return difference / (_norm(b) or 1.0)


def _norm(tensors: Sequence[Array]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(t.astype(np.float64)))) for t in tensors)))


def _timed_run(executable: StepExecutable) -> float:
    """Run one step on the batch that was written; its wall clock in microseconds."""
    start = time.perf_counter()
    executable.run()
    return (time.perf_counter() - start) * 1e6


def _comparable(executable: StepExecutable) -> dict[str, Array]:
    """Results and persistent state after a step."""
    return {**executable.read_results(), **executable.read_state()}


def _median_but_first(times_us: tuple[float, ...]) -> float:
    return statistics.median(times_us[1:] or times_us)
