"""The columns of the time point relaxation, and terms of them, while its rows are being written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import NOWHERE, IndexedProblem
from tvm_xengine.solvers.program import ABSENT, ProgramBuilder
from tvm_xengine.solvers.relaxation.periods import Periods
from tvm_xengine.solvers.relaxation.uncapacitated import there_at_once, uncapacitated_devices

Grid = NDArray[np.int64]
"""Columns by period, device, and op or tensor."""
Terms = list[tuple[int, float]]
"""Columns and their coefficients."""
"""Where a grid of columns has none."""


class Draft:
    """The columns of the relaxation while rows are being written."""

    def __init__(
        self,
        indexed: IndexedProblem,
        periods: Periods,
        neglected: NDArray[np.bool_],
        *,
        is_makespan: bool,
    ) -> None:
        self.p = p = indexed
        self.periods = periods
        self.counts = ~neglected
        # Copies of state that an update moves do not run in the stream of the device that runs it.
        self.compute_value = (
            p.compute_value if is_makespan else with_copies_of_neglected_state(p, neglected)
        )
        self.is_uncapacitated = uncapacitated_devices(p)
        self.builder = ProgramBuilder()
        self.time_point_count = periods.time_point_count
        last_read, last_run = self._last_periods()
        period = np.arange(self.time_point_count + 1)[:, None]
        earliest, latest = np.array(periods.earliest), np.array(periods.latest)
        # The first run of a time point is not part of a period.
        is_time_point = periods.is_time_point
        first, run_by = earliest + is_time_point, latest + is_time_point
        runs = (first <= period) & (period <= np.where(p.recomputable, last_run, latest))
        runs &= p.recomputable | ~is_time_point
        made_by = np.where(p.producer >= 0, run_by[p.producer], 0)
        # What a stream does in a period takes its time then, so nothing moves to an earlier one.
        self.at_once = at_once = there_at_once(p) & self.counts & (not is_makespan)
        runs_at_once = np.array([at_once[:, list(made)].all(axis=1) for made in p.makes]).T
        may_wait = ~runs_at_once | (period <= run_by)[:, None]
        self.run = self.builder.grid(runs[:, None] & p.can_run.T & may_wait, is_integer=True)
        self.at = self.builder.grid(periods.may_be[:, None] & p.can_run.T, is_integer=True)
        made_from = np.where(p.producer >= 0, first[p.producer], 0)
        kept = (made_from <= period) & (period < last_read)
        for k, op in np.argwhere(periods.may_be).tolist():
            kept[k, list(p.reads[op])] = True
        kept[self.time_point_count] |= p.must_end_on != NOWHERE
        kept &= self.counts
        self.stays = at_once & (p.updated_by < 0) & (made_by < period)[:, None]
        self.keep = self.builder.grid(kept[:, None] & ~self.stays, is_integer=True)
        for k, d, j in np.argwhere(kept[:, None] & self.stays).tolist():
            self.keep[k, d, j] = self.keep[made_by[j], d, j]
        exists = (made_from <= period) & (period <= last_read) & self.counts
        may_wait = ~at_once | (period <= made_by)[:, None]
        self.at_takes, self.run_takes = self._takes(self.at), self._takes(self.run)
        self.copy = self.builder.grid(
            exists[:, None] & may_wait[:, [b for _, b in p.links]], is_integer=True
        )
        self.hold = np.full_like(self.keep, ABSENT)
        self.held = np.full(self.keep.shape[:2], ABSENT, np.int64)
        self.budget_rows: list[list[int]] = [[] for _ in range(p.device_count)]

    def _takes(self, runs: Grid) -> Grid:
        """Columns of the kernels that runs take, shape (..., V); none for the leanest.

        sum_v takes[k,d,i,v] <= the column of the run
        """
        workspace = self.p.kernels.workspace.transpose(1, 0, 2)
        is_choice = np.diff(workspace, axis=2, prepend=workspace[:, :, :1]) > 0
        takes = self.builder.grid((runs >= 0)[..., None] & is_choice, is_integer=True)
        for k, d, i in np.argwhere((takes >= 0).any(axis=3)).tolist():
            taken = [(column, 1.0) for column in takes[k, d, i].tolist() if column >= 0]
            self.builder.row([*taken, (int(runs[k, d, i]), -1.0)], upper=0.0)
        return takes

    def more_workspace(self, takes: Grid, i: int, d: int) -> Terms:
        """Terms of the workspace that a run of op i on d needs more than the leanest kernel's."""
        workspace = self.p.kernels.workspace[i, d]
        return [
            (int(takes[v]), float(workspace[v] - workspace[0])) for v in np.flatnonzero(takes >= 0)
        ]

    def base(self, k: int, d: int, j: int) -> tuple[Terms, float]:
        """(terms, constant) whose sum is 0 when tensor j cannot be on d in period k but by copies."""
        there, constant = self.found(k, d, j)
        return there + self.made(k, d, j), constant

    def found(self, k: int, d: int, j: int) -> tuple[Terms, float]:
        """(terms, constant) whose sum is 1 when tensor j is on d as period k begins."""
        producer, updater = int(self.p.producer[j]), int(self.p.updated_by[j])
        if k == 0:
            return [], float(self.p.home[j] == d)
        terms = [(int(self.keep[k - 1, d, j]), 1.0)]
        if producer >= 0:
            terms.append((int(self.at[k - 1, d, producer]), 1.0))
        if updater >= 0:
            terms.append((int(self.at[k - 1, d, updater]), -1.0))  # it is overwritten there
        return [(column, value) for column, value in terms if column >= 0], 0.0

    def made(self, k: int, d: int, j: int) -> Terms:
        """Terms of tensor j being made on d in period k."""
        producer = int(self.p.producer[j])
        column = int(self.run[k, d, producer]) if producer >= 0 else ABSENT
        return [(column, 1.0)] if column >= 0 else []

    def reads(self, i: int) -> list[int]:
        """The tensors that op i reads, without the neglected ones."""
        return [j for j in self.p.reads[i] if self.counts[j]]

    def arrives(self, k: int, d: int, j: int, *, but_from: int = ABSENT) -> Terms:
        """Terms of the copies of tensor j to device d in period k."""
        return [
            (int(self.copy[k, e, j]), 1.0)
            for e, (a, b) in enumerate(self.p.links)
            if b == d and a != but_from and self.copy[k, e, j] >= 0
        ]

    def at_most(self, column: int, terms: Terms, constant: float) -> None:
        """Write ``column <= terms + constant``, unless the constant makes it vacuous."""
        if constant < 1.0:
            self.builder.row([(column, 1.0), *((c, -v) for c, v in terms)], upper=constant)

    def _last_periods(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The last period in which a tensor may be read, an op may run."""
        p = self.p
        last_read = np.where(p.must_end_on != NOWHERE, self.time_point_count + 1, -1)
        last_run = np.array(self.periods.latest)
        for i in reversed(range(p.op_count)):
            if p.recomputable[i]:
                useful = max((int(last_read[j]) for j in p.makes[i] if self.counts[j]), default=-1)
                last_run[i] = max(last_run[i], min(self.time_point_count, useful))
            for j in p.reads[i]:
                last_read[j] = max(last_read[j], last_run[i])
        last_read[p.updated_by >= 0] = self.time_point_count + 1
        return last_read, last_run


def with_copies_of_neglected_state(
    p: IndexedProblem, neglected: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Weights of runs, shape (n, D); an update away from home pays for the state that it moves.

    That is at least the cheapest copy into each of both devices, which serves no other op's
    charge.
    """
    weight = p.compute_value.copy()
    for o in np.flatnonzero((p.update_of >= 0) & neglected).tolist():
        u, w = int(p.producer[o]), int(p.update_of[o])
        back = p.transfer_value[:, p.home[w], o].min()
        for d in np.flatnonzero(p.can_run[u]).tolist():
            there = p.transfer_value[:, d, w].min()
            if d != p.home[w] and np.isfinite(there + back):
                weight[u, d] += there + back
    return weight
