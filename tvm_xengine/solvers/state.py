"""What is where while a schedule is written: the rules of a schedule, step by step."""

from __future__ import annotations

import numpy as np

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.indexed import NONE, IndexedProblem


class ScheduleState:
    """A schedule while it is being written, and what its steps so far have left behind.

    A step that does not find what it needs raises `InvalidScheduleError`. Budgets are not checked:
    `free_units` says what is left of them.

    Attributes
    ----------
    steps
        The computations and copies so far.
    on
        Whether tensor j is on device d, shape (D, J).
    overwritten
        Whether an update has taken over the bytes of state j on device d, shape (D, J).
    copies
        On how many devices each tensor is.
    has_run
        For each op.
    last_made_on
        For each tensor the device to which it came last, `NONE` for what has not been made.
    free_units
        For each device its budget less all that is there; may be negative.
    """

    def __init__(self, indexed: IndexedProblem) -> None:
        self.problem = indexed
        self.steps: list[Step] = []
        self.on = indexed.at_home.copy()
        self.overwritten = np.zeros_like(self.on)
        self.copies: list[int] = self.on.sum(axis=0).tolist()
        self.has_run = [False] * indexed.op_count
        self.last_made_on = [NONE] * indexed.tensor_count
        self.free_units: list[int] = (indexed.budget - self.on @ indexed.size).tolist()
        self._size: list[int] = indexed.size.tolist()
        self._home: list[int] = indexed.home.tolist()
        self._update_of: list[int] = indexed.update_of.tolist()

    def holders(self, j: int) -> list[int]:
        """The devices on which tensor j is."""
        column: list[int] = np.flatnonzero(self.on[:, j]).tolist()
        return column

    def missing(self, i: int, d: int) -> list[int]:
        """What op i reads and is not on device d."""
        return [j for j in self.problem.reads[i] if not self.on[d, j]]

    def fresh(self, i: int, d: int) -> list[int]:
        """What op i makes in new memory of device d: not updates, nor what is there."""
        return [
            j for j in self.problem.makes[i] if self._update_of[j] == NONE and not self.on[d, j]
        ]

    def landings(self, i: int, d: int) -> list[tuple[int, int]]:
        """(result, state) of the updates that op i makes elsewhere than at the state's home."""
        return [
            (j, self._update_of[j])
            for j in self.problem.makes[i]
            if self._update_of[j] != NONE and self._home[self._update_of[j]] != d
        ]

    def needed_units(self, i: int, d: int) -> int:
        """Memory that running op i on device d takes in addition to what is there."""
        fresh = sum(self._size[j] for j in self.fresh(i, d))
        return fresh + int(self.problem.workspace[i, d])

    def compute(self, i: int, d: int) -> None:
        """Run op i on device d; what it updates there is gone."""
        step = self.problem.compute(i, d)
        if missing := self.missing(i, d):
            raise InvalidScheduleError(
                f"{step}: {self.problem.tensor_names[missing[0]]} is not there"
            )
        if self.has_run[i] and not self.problem.recomputable[i]:
            raise InvalidScheduleError(f"{step}: it ran before and must not be repeated")
        self.steps.append(step)
        self.has_run[i] = True
        for j in self.problem.makes[i]:
            if self._update_of[j] != NONE:
                self._take_over(self._update_of[j], j, d)
            else:
                self._arrive(j, d)
            self.last_made_on[j] = d

    def transfer(self, j: int, a: int, b: int) -> None:
        """Copy tensor j from device a to b; an update's result takes the place of its state at home."""
        step = self.problem.transfer(j, a, b)
        if not self.on[a, j] or self.on[b, j] or self.overwritten[b, j]:
            raise InvalidScheduleError(f"{step}: it is not at the source, or is or was at the end")
        state = self._update_of[j]
        if state != NONE and self._home[state] == b:
            if not self.on[b, state]:
                raise InvalidScheduleError(f"{step}: the state that it replaces is not there")
            self._take_over(state, j, b)
        else:
            self._arrive(j, b)
        self.steps.append(step)
        self.last_made_on[j] = b

    def free(self, j: int, d: int) -> None:
        """Give up tensor j on device d; the step itself is derived when the schedule is complete."""
        self.on[d, j] = False
        self.copies[j] -= 1
        self.free_units[d] += self._size[j]

    def schedule(self) -> Schedule:
        """The steps so far, with the earliest frees."""
        return with_frees(self.problem.problem, self.steps)

    def _arrive(self, j: int, d: int) -> None:
        if not self.on[d, j]:
            self.on[d, j] = True
            self.copies[j] += 1
            self.free_units[d] -= self._size[j]

    def _take_over(self, state: int, result: int, d: int) -> None:
        """Record that the result of an update takes the place of the state."""
        self.on[d, state] = False
        self.copies[state] -= 1
        self.on[d, result] = True
        self.copies[result] += 1
        self.overwritten[d, state] = True
