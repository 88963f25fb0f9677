"""Trains with an executable, and compares each step with a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.runtime.comparison import (
    Comparison,
    ReferenceRun,
    timed_run,
)
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.transactions import Transactions

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Trace:
    """Losses and times of a run of training steps.

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
    """Train for `steps` steps; `reference` takes each one, too, from the same state.

    See `ReferenceRun` for what the comparison means. Before the first step everything but the
    state is poisoned, so that reads of stale bytes show in the losses.

    Parameters
    ----------
    batches
        Yields the batch and hyper inputs of a step by name.
    guard
        Whether a step that makes values that are not finite is undone and ends the training, at
        the cost that `Transactions` states.
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
    executable.poison()
    executable.write(initial_state)
    compared = None if reference is None else ReferenceRun(executable, reference)
    transaction = Transactions(executable) if guard else None
    for done in range(1, steps + 1):
        batch = next(batches)
        if compared is not None:
            compared.begin()
        if transaction is None:
            executable.write(executable.check(batch))
            step_us.append(timed_run(executable))
            results = executable.read_results()
        else:
            results, took_us = transaction.take(batch)
            step_us.append(took_us)
        losses.append(float(results["loss"]))
        if compared is not None:
            compared.end(batch)
        if on_step is not None:
            on_step(done, losses[-1])
    trace = Trace(tuple(losses), tuple(step_us), executable.read_state())
    return trace, None if compared is None else compared.result
