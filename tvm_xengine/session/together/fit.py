"""Train several steps in turns."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from tvm_xengine.checks.arguments import checked
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.random_state import read_random_state, set_random_state
from tvm_xengine.session.loop.fit import taking_steps
from tvm_xengine.session.loop.workload import FitResult, Workload


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
        self._taking = taking_steps(self.workload)
        self._random = None if isinstance(self.workload.data, Data) else read_random_state()

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
