"""Trains one or several executables of the same step on the same batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.runtime.executable import StepExecutable

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
        return statistics.median(self.step_us[1:] or self.step_us)


def train(
    executables: Mapping[str, StepExecutable],
    initial_state: Mapping[str, Array],
    batches: Iterator[Mapping[str, Array]],
    steps: int,
    on_step: Callable[[int, float], None] | None = None,
) -> Mapping[str, Trace]:
    """Train every executable for `steps` steps; each batch goes through all of them in turn.

    Taking turns makes their step times comparable on a machine whose speed drifts. Before
    the first step everything but the state is poisoned, so that a read of something stale
    shows in the losses.

    Parameters
    ----------
    batches
        Yields the batch and hyper inputs of a step by name.
    on_step
        Called with the number of finished steps and the first executable's loss.
    """
    losses: dict[str, list[float]] = {name: [] for name in executables}
    step_us: dict[str, list[float]] = {name: [] for name in executables}
    for executable in executables.values():
        executable.poison()
        executable.write(initial_state)
    for done in range(1, steps + 1):
        batch = next(batches)
        for name, executable in executables.items():
            executable.write(batch)
            start = time.perf_counter()
            executable.run()
            step_us[name].append((time.perf_counter() - start) * 1e6)
            losses[name].append(float(executable.read_results()["loss"]))
        if on_step is not None:
            on_step(done, next(iter(losses.values()))[-1])
    return {
        name: Trace(tuple(losses[name]), tuple(step_us[name]), executable.read_state())
        for name, executable in executables.items()
    }


def largest_relative_difference(a: Trace, b: Trace) -> float:
    """Largest difference of losses and state, relative to the largest entry of each tensor."""
    pairs = [(np.asarray(a.losses), np.asarray(b.losses))]
    pairs += [(np.asarray(a.state[name]), np.asarray(b.state[name])) for name in a.state]
    worst = 0.0
    for x, y in pairs:
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        scale = float(np.max(np.abs(wide_y), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(np.abs(wide_x - wide_y), initial=0.0)) / scale)
    return worst


def are_identical(a: Trace, b: Trace) -> bool:
    """Whether all losses and the final state agree bit by bit."""
    return a.losses == b.losses and all(
        np.asarray(a.state[name]).tobytes() == np.asarray(b.state[name]).tobytes()
        for name in a.state
    )
