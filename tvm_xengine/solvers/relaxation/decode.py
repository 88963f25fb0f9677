"""Carries out a solution of a time point relaxation to the letter.

The relaxation says what runs and what is copied in each period and what is there at each time point.
Within a period first runs follow a given order, and what is repeated or copied comes when it is
first asked for. The steps cost what the solution does, and little more for neglected tensors;
whether they fit the budgets between the time points the relaxation does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.schedule import Step
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, values_of
from tvm_xengine.solvers.state import ScheduleState

_Flags = NDArray[np.bool_]


class CannotCarryOutError(Exception):
    """A solution runs an op nowhere, or asks for a tensor that is nowhere or that no link brings."""


def decode_time_points(
    model: TimePointModel, x: NDArray[np.float64], order: Sequence[int]
) -> list[tuple[Step, int]]:
    """Steps that follow the solution `x`, each with the op whose first run it serves.

    Parameters
    ----------
    order
        All ops; first runs of a period, other than time points, are made in this order.

    Raises
    ------
    CannotCarryOutError
        When the solution is not that of a schedule, or repeats too long a chain of ops at once.
    """
    try:
        return _Walk(model, x).steps(order)
    except RecursionError as error:
        raise CannotCarryOutError("too long a chain of repeated runs") from error
    except InvalidScheduleError as error:
        raise CannotCarryOutError(str(error)) from error


class _Walk:
    """A schedule while it is being written, period after period."""

    def __init__(self, model: TimePointModel, x: NDArray[np.float64]) -> None:
        self.model, self.p, self.x = model, model.indexed, x
        self.run, self.at = _is_one(model.run, x), _is_one(model.at, x)
        self.keep, self.copy = _is_one(model.keep, x), _is_one(model.copy, x)
        is_home = self.p.home[self.p.update_of] == np.arange(self.p.device_count)[:, None]
        self.told = np.asarray((model.keep >= 0).any(axis=(0, 1)), np.bool_)
        self.remains = ~self.told | ((self.p.update_of >= 0) & is_home)
        self.state = ScheduleState(self.p)
        self.there = self.state.on
        self.has_run = self.state.has_run
        self.serves: list[int] = []
        self.serving = 0
        self.period = 0

    def steps(self, order: Sequence[int]) -> list[tuple[Step, int]]:
        """All steps, in order."""
        time_points = self.model.time_points(self.x).tolist()
        first = self._first_periods()
        for self.period in range(len(time_points) + 1):
            self._evict_what_returns()
            here = [i for i in order if first[i] == self.period and i not in time_points]
            late = [i for i in here if self._must_wait(i)]
            for i in [*(i for i in here if i not in late), *late]:
                self.serving = i
                if not self.has_run[i]:
                    self._compute(i, self._device(i))
            is_last = self.period == len(time_points)
            is_empty = is_last or time_points[self.period] < 0
            self.serving = order[-1] if is_empty else time_points[self.period]
            for d, j in np.argwhere(self.keep[self.period] & ~self.there).tolist():
                if not self._is_overwritten(j):
                    self._bring(j, d)
            if is_last:
                break
            for d, j in np.argwhere(self.there & ~(self.keep[self.period] | self.remains)).tolist():
                self.state.free(j, d)
            for d in range(0 if is_empty else self.p.device_count):
                if self.at[self.period, d, self.serving]:
                    self._compute(self.serving, d)
        return list(zip(self.state.steps, self.serves, strict=True))

    def _first_periods(self) -> NDArray[np.int64]:
        periods = self.model.periods
        first = np.empty(self.p.op_count, np.int64)
        for i in range(self.p.op_count):
            begin, end = periods.earliest[i], periods.latest[i]
            runs = self.run[begin : end + 1, :, i].any(axis=1)
            first[i] = begin + int(runs.argmax())
        return first

    def _is_overwritten(self, j: int) -> bool:
        updater = int(self.p.updated_by[j])
        return updater >= 0 and bool(self.has_run[updater])

    def _evict_what_returns(self) -> None:
        """Drop what this period makes or copies again where it is already, after copies from there."""
        p, k = self.p, self.period
        for d, j in np.argwhere(self.there).tolist():
            u = int(p.producer[j])
            is_made = u >= 0 and bool(self.run[k, d, u]) and bool(self.has_run[u])
            is_copied = any(b == d and self.copy[k, e, j] for e, (_, b) in enumerate(p.links))
            if p.update_of[j] >= 0 or not (is_made or is_copied):
                continue
            for e, (a, b) in enumerate(p.links):
                if a == d and self.copy[k, e, j] and not self.there[b, j]:
                    self.copy[k, e, j] = False
                    self._copy(j, d, b)
            if is_made or self.there[:, j].sum() > 1:
                self.state.free(j, d)

    def _device(self, i: int) -> int:
        devices = np.flatnonzero(self.run[self.period, :, i])
        if not len(devices):
            raise CannotCarryOutError(self.p.op_names[i])
        return int(devices[0])

    def _must_wait(self, i: int) -> bool:
        """Whether op i overwrites state that a repeated run in this period still reads."""
        return any(self.has_run[r] for r, _ in self._runs_before(i))

    def _runs_before(self, i: int) -> list[tuple[int, int]]:
        """(op, device) of the runs to come in this period that read what op i overwrites."""
        states = [int(self.p.update_of[j]) for j in self.p.makes[i] if self.p.update_of[j] >= 0]
        readers = sorted({r for w in states for r in self.p.consumers[w]} - {i})
        runs = self.run[self.period]
        return [(r, int(d)) for r in readers for d in np.flatnonzero(runs[:, r])]

    def _compute(self, i: int, d: int) -> None:
        p = self.p
        updates = [(j, int(p.update_of[j])) for j in p.makes[i] if p.update_of[j] >= 0]
        for r, e in self._runs_before(i):
            if self.run[self.period, e, r]:
                self._compute(r, e)
        for j in p.reads[i]:
            self._bring(j, d)
        for _, state in updates:
            self._bring(state, int(p.home[state]))
        self.state.compute(i, d)
        self.serves.append(self.serving)
        self.run[self.period, d, i] = False
        for j, state in updates:
            home = int(p.home[state])
            if d != home and np.isfinite(p.transfer_value[d, home, j]):
                self._copy(j, d, home)

    def _bring(self, j: int, d: int) -> None:
        """Make tensor j be on device d, as this period of the solution says."""
        if self.there[d, j]:
            return
        p, k, u = self.p, self.period, int(self.p.producer[j])
        copies = [a for e, (a, b) in enumerate(p.links) if b == d and self.copy[k, e, j] and a != d]
        here_first = [a for a in copies if self.there[a, j]]
        if u >= 0 and self.run[k, d, u] and not here_first:
            self.run[k, d, u] = False
            self._compute(u, d)
        elif copies:
            a = (here_first or copies)[0]
            self.copy[k, p.links.index((a, d)), j] = False
            self._bring(j, a)
            if not self.there[d, j]:
                self._copy(j, a, d)
        elif not self.told[j]:
            self._copy(j, self._source(j, d), d)
        else:
            raise CannotCarryOutError(p.tensor_names[j])

    def _copy(self, j: int, a: int, b: int) -> None:
        self.state.transfer(j, a, b)
        self.serves.append(self.serving)

    def _source(self, j: int, d: int) -> int:
        """The nearest device that holds tensor j."""
        sources: Iterable[int] = np.flatnonzero(self.there[:, j]).tolist()
        linked = [a for a in sources if np.isfinite(self.p.transfer_value[a, d, j])]
        if not linked:
            raise CannotCarryOutError(self.p.tensor_names[j])
        return min(linked, key=lambda a: float(self.p.transfer_value[a, d, j]))


def _is_one(columns: NDArray[np.int64], x: NDArray[np.float64]) -> _Flags:
    return np.asarray(values_of(columns, x) > 0.5, np.bool_)
