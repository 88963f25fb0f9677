"""The time point relaxation: a lower bound that needs few variables, whatever the size of the graph.

Choose ops m_1, ..., m_K that first run one after the other in every schedule considered: any
ops when the order of first runs is given, else ops that depend on each other in a chain. Their
first runs cut a schedule into periods 0, ..., K; the time point K + 1 is the end of the step. Of a
schedule only this is kept:

    run[k,d,i]     in {0,1}  d runs op i in period k (at least once)
    at[k,d,i]      in {0,1}  d makes the first run of i = m_k, at the end of period k
    copy[k,ab,j]   in {0,1}  j is copied from a to b in period k (at least once)
    keep[k,d,j]    in {0,1}  j is on d during the first run of m_k
    takes[k,d,i,v] in {0,1}  that run[k,d,i], or at[k,d,i], is with kernel v, not with the leanest

With  base[k,d,j] = run[k,d,producer] + keep[k-1,d,j] + at[k-1,d,i] (for results of i = m_{k-1};
minus at[k-1,d,i] for the state that it overwrites):

    sum over the periods in which i may first run, over d, of run[k,d,i] >= 1
    copy[k,ab,j] <= base[k,a,j] + copies into a
    copy[k,ab,j] <= base[k,a,j] + base[k,b,j] + copies from others into a and b
    run[k,d,i] <= base[k,d,j] + copies into d,   for every j that i reads
    keep[k,d,j] <= hold[k,d,j] + run[k,d,producer] + copies into d
    hold[k,d,j] <= base[k,d,j] - run[k,d,producer]
    at[k,d,i] <= keep[k,d,j],                    for every j that i reads;  sum_kd at[k,d,i] >= 1
    sum_v takes[k,d,i,v] <= at[k,d,i], run[k,d,i];  w_v is the workspace that kernel v needs more
    sum_j size_j keep[k,d,j] + sum_i (new results and workspace of i) at[k,d,i]
        + sum_iv w_v takes[k,d,i,v] <= budget_d

Every schedule considered projects to a feasible point of no larger objective, so the optimum,
and any dual bound on it, is a bound on the schedules. It stays one when tensors are neglected:
they get no columns, as if they were on every device from their first run on and took no bytes.
Within a period memory is looked at while an op runs: what it needs fits together with those tensors,
not its own, that are held all through the period, hold[k,d,j] in [0,1]. The makespan is bounded
by the load of the busiest stream, a device with the copies that it makes or a link, under the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import ANYWHERE, NOWHERE, IndexedProblem
from tvm_xengine.solvers.program import Program, ProgramBuilder
from tvm_xengine.solvers.relaxation.periods import Periods
from tvm_xengine.solvers.relaxation.uncapacitated import there_at_once, uncapacitated_devices

_Grid = NDArray[np.int64]
_Terms = list[tuple[int, float]]
_ABSENT = -1  # where a grid of columns has none


@dataclass(frozen=True)
class TimePointModel:
    """The relaxation at some time points, and where its solutions are read from.

    Attributes
    ----------
    run, at, keep, copy, hold, held
        Column of each variable, -1 where there is none; shapes (K + 1, D, n), (K, D, n),
        (K + 1, D, J), (K + 1, links, J), (K + 1, D, J) and (K + 1, D).
    run_takes, at_takes
        Likewise, shapes (K + 1, D, n, V) and (K, D, n, V).
    budget_rows
        For each device the rows whose side is its budget.
    """

    indexed: IndexedProblem
    periods: Periods
    program: Program
    run: _Grid
    at: _Grid
    keep: _Grid
    copy: _Grid
    hold: _Grid
    held: _Grid
    run_takes: _Grid
    at_takes: _Grid
    budget_rows: tuple[tuple[int, ...], ...]

    def time_points(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """The op whose first run is time point k in the solution `x`, shape (K,); -1 where none is."""
        taken = np.where(self.at >= 0, values_of(self.at, x), -1.0).max(axis=1, initial=-1.0)
        if not len(taken):
            return np.zeros(0, np.int64)
        is_open = self.periods.may_be.sum(axis=0)[taken.argmax(axis=1)] > 1
        is_empty = is_open & (taken.max(axis=1) < 0.5)
        return np.asarray(np.where(is_empty, _ABSENT, taken.argmax(axis=1)), np.int64)


def values_of(columns: NDArray[np.int64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values in `x` of a grid of columns, 0 where there is none."""
    return np.where(columns >= 0, x[np.maximum(columns, 0)], 0.0)


def formulate_time_points(
    indexed: IndexedProblem,
    periods: Periods,
    *,
    is_makespan: bool = False,
    neglected: NDArray[np.bool_] | None = None,
) -> TimePointModel:
    """The relaxation of `indexed` at these time points; with `is_makespan`, of its busiest stream.

    Parameters
    ----------
    neglected
        Tensors that are left out, shape (J,); an update result exactly when its state is.
    """
    if neglected is None:
        neglected = np.zeros(indexed.tensor_count, np.bool_)
    draft = _Draft(indexed, periods, neglected, is_makespan=is_makespan)
    _run_every_op(draft)
    _copy_from_a_source(draft)
    _read_what_is_there(draft)
    _keep_what_is_there(draft)
    _overwrite_state(draft)
    _deliver(draft)
    _stay_within_budgets(draft)
    _fit_while_running(draft)
    if is_makespan:
        _weigh_busiest_stream(draft)
    else:
        _weigh_all(draft)
    program = draft.builder.build()
    return TimePointModel(
        indexed,
        periods,
        program,
        run=draft.run,
        at=draft.at,
        keep=draft.keep,
        copy=draft.copy,
        hold=draft.hold,
        held=draft.held,
        run_takes=draft.run_takes,
        at_takes=draft.at_takes,
        budget_rows=tuple(map(tuple, draft.budget_rows)),
    )


class _Draft:
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
            p.compute_value if is_makespan else _with_copies_of_neglected_state(p, neglected)
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
        at_once = there_at_once(p, is_makespan=is_makespan) & self.counts
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
        self.hold = np.full_like(self.keep, _ABSENT)
        self.held = np.full(self.keep.shape[:2], _ABSENT, np.int64)
        self.budget_rows: list[list[int]] = [[] for _ in range(p.device_count)]

    def _takes(self, runs: _Grid) -> _Grid:
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

    def more_workspace(self, takes: _Grid, i: int, d: int) -> _Terms:
        """Terms of the workspace that a run of op i on d needs more than the leanest kernel's."""
        workspace = self.p.kernels.workspace[i, d]
        return [
            (int(takes[v]), float(workspace[v] - workspace[0])) for v in np.flatnonzero(takes >= 0)
        ]

    def base(self, k: int, d: int, j: int) -> tuple[_Terms, float]:
        """(terms, constant) whose sum is 0 when tensor j cannot be on d in period k but by copies."""
        there, constant = self.found(k, d, j)
        return there + self.made(k, d, j), constant

    def found(self, k: int, d: int, j: int) -> tuple[_Terms, float]:
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

    def made(self, k: int, d: int, j: int) -> _Terms:
        """Terms of tensor j being made on d in period k."""
        producer = int(self.p.producer[j])
        column = int(self.run[k, d, producer]) if producer >= 0 else _ABSENT
        return [(column, 1.0)] if column >= 0 else []

    def reads(self, i: int) -> list[int]:
        """The tensors that op i reads, without the neglected ones."""
        return [j for j in self.p.reads[i] if self.counts[j]]

    def arrives(self, k: int, d: int, j: int, *, but_from: int = _ABSENT) -> _Terms:
        """Terms of the copies of tensor j to device d in period k."""
        return [
            (int(self.copy[k, e, j]), 1.0)
            for e, (a, b) in enumerate(self.p.links)
            if b == d and a != but_from and self.copy[k, e, j] >= 0
        ]

    def at_most(self, column: int, terms: _Terms, constant: float) -> None:
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


def _with_copies_of_neglected_state(
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


def _run_every_op(draft: _Draft) -> None:
    """Every op first runs in one of the periods or time points in which it may, and then again.

    sum_i at[k,d,i] <= 1,   run[k,d,i] <= sum_d' at[< k,d',i]   where the time points are open
    """
    p, periods = draft.p, draft.periods
    is_time_point = periods.is_time_point
    for i in range(p.op_count):
        begin, end = periods.earliest[i], periods.latest[i]
        columns = draft.at[:, :, i] if is_time_point[i] else draft.run[begin : end + 1, :, i]
        terms = [(c, 1.0) for c in columns.ravel().tolist() if c >= 0]
        upper = np.inf if p.recomputable[i] else 1.0
        draft.builder.row(terms, lower=1.0, upper=upper)
        if is_time_point[i] and begin < end:
            for k, d in np.argwhere(draft.run[: end + 1, :, i] >= 0).tolist():
                before = [(c, 1.0) for c in draft.at[:k, :, i].ravel().tolist() if c >= 0]
                draft.at_most(int(draft.run[k, d, i]), before, 0.0)
    for k in np.flatnonzero(periods.may_be.sum(axis=1) > 1).tolist():
        columns = draft.at[k]
        draft.builder.row([(c, 1.0) for c in columns[columns >= 0].tolist()], upper=1.0)


def _copy_from_a_source(draft: _Draft) -> None:
    """copy[k,ab,j] <= base[k,a,j] + copies into a,  <= base[k,a,j] + base[k,b,j] + copies of others

    A tensor may leave b and come back within a period, but it must have been there then.
    """
    for k, e, j in zip(*(axis.tolist() for axis in np.nonzero(draft.copy >= 0)), strict=True):
        a, b = draft.p.links[e]
        column = int(draft.copy[k, e, j])
        at_source, constant = draft.base(k, a, j)
        others, all_others = draft.arrives(k, a, j, but_from=b), draft.arrives(k, a, j)
        draft.at_most(column, at_source + all_others, constant)
        if len(all_others) > len(others):
            before, more = draft.base(k, b, j)
            others = others + draft.arrives(k, b, j, but_from=a)
            draft.at_most(column, at_source + others + before, constant + more)


def _read_what_is_there(draft: _Draft) -> None:
    """run[k,d,i] <= base[k,d,j] + copies into d;  at[k,d,i] <= keep[k,d,j]"""
    for k, d, i in zip(*(axis.tolist() for axis in np.nonzero(draft.run >= 0)), strict=True):
        for j in draft.reads(i):
            terms, constant = draft.base(k, d, j)
            draft.at_most(int(draft.run[k, d, i]), terms + draft.arrives(k, d, j), constant)
    for k, d, i in np.argwhere(draft.at >= 0).tolist():
        for j in draft.reads(i):
            draft.at_most(int(draft.at[k, d, i]), [(int(draft.keep[k, d, j]), 1.0)], 0.0)


def _keep_what_is_there(draft: _Draft) -> None:
    """keep[k,d,j] <= hold[k,d,j] + run[k,d,producer] + copies into d,  hold[k,d,j] <= what is found"""
    for k, d, j in np.argwhere((draft.keep >= 0) & ~draft.stays).tolist():
        terms = draft.made(k, d, j) + draft.arrives(k, d, j)
        found, constant = draft.found(k, d, j)
        if draft.is_uncapacitated[d]:
            draft.at_most(int(draft.keep[k, d, j]), terms + found, constant)
            continue
        if found or constant:
            hold = int(draft.builder.fractions(1)[0])
            draft.hold[k, d, j] = hold
            draft.at_most(hold, found, constant)
            terms.append((hold, 1.0))
        draft.at_most(int(draft.keep[k, d, j]), terms, 0.0)


def _fit_while_running(draft: _Draft) -> None:
    """What op i needs on d fits together with all that is held there throughout the period.

    held[k,d] = sum_j size_j hold[k,d,j]
    held[k,d] - sum over what i touches of size_j hold[k,d,j] + need[d,i] run[k,d,i]
        + sum_v w_v takes[k,d,i,v] <= budget_d
    """
    p = draft.p
    touched = [sorted({*reads, *makes}) for reads, makes in zip(p.reads, p.makes, strict=True)]
    own = np.array([sum(p.size[j] for j in t if p.update_of[j] < 0) for t in touched])
    need, most_needed = own[:, None] + p.workspace, own[:, None] + p.kernels.workspace[:, :, -1]
    for k, d in np.ndindex(draft.held.shape):
        holding = np.flatnonzero(draft.hold[k, d] >= 0)
        ops = np.flatnonzero(draft.run[k, d] >= 0)
        most = float(p.size[holding].sum())
        rows = [
            int(i)
            for i in ops.tolist()
            if most
            + most_needed[i, d]
            - sum(p.size[j] for j in touched[i] if draft.hold[k, d, j] >= 0)
            > p.budget[d]
        ]
        if not rows:
            continue
        held = int(draft.builder.new_columns(1)[0])
        draft.held[k, d] = held
        sum_row = draft.builder.new_rows(1, lower=0.0, upper=0.0)
        draft.builder.entries(sum_row, held, -float(p.budget[d]))
        draft.builder.entries(
            np.repeat(sum_row, len(holding)),
            draft.hold[k, d, holding],
            p.size[holding].astype(float),
        )
        for i in rows:
            away = [(int(draft.hold[k, d, j]), -float(p.size[j])) for j in touched[i]]
            row = draft.builder.row(
                [
                    (held, float(p.budget[d])),
                    (int(draft.run[k, d, i]), float(need[i, d])),
                    *((column, value) for column, value in away if column >= 0),
                    *draft.more_workspace(draft.run_takes[k, d, i], i, d),
                ],
                upper=float(p.budget[d]),
            )
            draft.budget_rows[d].append(row)


def _overwrite_state(draft: _Draft) -> None:
    """State w is gone where its update o has run, and o never leaves the home h of w.

    keep[k,d,w] + sum of run[<= k,d,u] <= 1,   copies of w to d likewise
    copy[k,ah,o] <= base[k,h,w] + copies of w into h
    keep[k,h,o] >= keep[k-1,h,o], run[k,h,u], copy[k,ah,o]
    """
    row = draft.builder.row
    p = draft.p
    for o in np.flatnonzero((p.update_of >= 0) & draft.counts).tolist():
        u, w = int(p.producer[o]), int(p.update_of[o])
        h = int(p.home[w])
        for k in range(draft.time_point_count + 1):
            for d in range(p.device_count):
                gone = _ran_before(draft, k, d, u)
                updated = [(c, 1.0) for c in draft.run[k : k + 1, d, u].tolist() if c >= 0]
                if draft.keep[k, d, w] >= 0 and gone + updated:
                    row([(int(draft.keep[k, d, w]), 1.0), *gone, *updated], upper=1.0)
                for copied in draft.arrives(k, d, w):
                    if gone:
                        row([copied, *gone], upper=1.0)
            landed = [column for column, _ in draft.arrives(k, h, o)]
            terms, constant = draft.base(k, h, w)
            for column in landed:
                draft.at_most(column, terms + draft.arrives(k, h, w), constant)
            here = int(draft.keep[k, h, o])
            before = int(draft.keep[k - 1, h, o]) if k else _ABSENT
            for column in (int(draft.run[k, h, u]), before, *landed):
                if here >= 0 and column >= 0:
                    row([(here, 1.0), (column, -1.0)], lower=0.0)


def _ran_before(draft: _Draft, k: int, d: int, u: int) -> _Terms:
    """Terms of the update op u having run on d before period k."""
    columns = [*draft.run[:k, d, u].tolist(), *draft.at[:k, d, u].tolist()]
    return [(c, 1.0) for c in columns if c >= 0]


def _deliver(draft: _Draft) -> None:
    """At the end state is at home, updated, and every output is on some device."""
    for j, where in enumerate(draft.p.must_end_on.tolist()):
        if where != NOWHERE and draft.counts[j]:
            last = draft.keep[draft.time_point_count, :, j]
            columns = last.tolist() if where == ANYWHERE else [int(last[where])]
            draft.builder.row([(column, 1.0) for column in columns], lower=1.0)


def _stay_within_budgets(draft: _Draft) -> None:
    """At every time point, and at the end, what is there fits the budget.

    sum_j size_j keep[k,d,j] + sum_i (new results and workspace of i) at[k,d,i]
        + sum_iv w_v takes[k,d,i,v] <= budget_d
    """
    p = draft.p
    made = [sum(p.size[j] for j in makes if p.update_of[j] < 0) for makes in p.makes]
    fresh = np.array(made, np.int64)[:, None] + p.workspace
    for k in range(draft.time_point_count + 1):
        for d in np.flatnonzero(~draft.is_uncapacitated).tolist():
            kept = np.flatnonzero(draft.keep[k, d] >= 0)
            row = draft.builder.new_rows(1, upper=float(p.budget[d]))
            draft.budget_rows[d].append(int(row[0]))
            draft.builder.entries(
                np.repeat(row, len(kept)), draft.keep[k, d, kept], p.size[kept].astype(float)
            )
            if k < draft.time_point_count:
                ops = np.flatnonzero(draft.at[k, d] >= 0)
                draft.builder.entries(
                    np.repeat(row, len(ops)), draft.at[k, d, ops], fresh[ops, d].astype(float)
                )
                for i in ops.tolist():
                    for column, more in draft.more_workspace(draft.at_takes[k, d, i], i, d):
                        draft.builder.entries(row, column, more)


def _weigh_all(draft: _Draft) -> None:
    """Minimise the weights of all runs and copies."""
    for d in range(draft.p.device_count):
        draft.builder.minimise(*_runs(draft, d))
    for e in range(len(draft.p.links)):
        draft.builder.minimise(*_copies(draft, e))


def _weigh_busiest_stream(draft: _Draft) -> None:
    """Minimise the largest load of a stream: the runs of a device, and the copies that run in it."""
    busiest = draft.builder.new_columns(1, upper=np.inf)
    draft.builder.minimise(busiest, 1.0)
    loads = {d: [_runs(draft, d)] for d in range(draft.p.device_count)}
    for e, (a, b) in enumerate(draft.p.links):
        loads.setdefault(int(draft.p.copy_stream[a, b]), []).append(_copies(draft, e))
    for parts in loads.values():
        columns, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        row = draft.builder.new_rows(1, upper=0.0)
        draft.builder.entries(np.repeat(row, len(columns)), columns, weights)
        draft.builder.entries(row, busiest, -1.0)


def _runs(draft: _Draft, d: int) -> tuple[_Grid, NDArray[np.float64]]:
    """The columns of what runs on device d, and their weights."""
    k, i = np.nonzero(draft.run[:, d] >= 0)
    m, first = np.nonzero(draft.at[:, d] >= 0)
    value = draft.p.kernels.value[:, d]
    columns = [draft.run[k, d, i], draft.at[m, d, first]]
    weights = [draft.compute_value[of, d] + value[of, 0] - value[of, -1] for of in (i, first)]
    for takes in (draft.run_takes[:, d], draft.at_takes[:, d]):
        k, i, v = np.nonzero(takes >= 0)
        columns.append(takes[k, i, v])
        weights.append(value[i, v] - value[i, 0])
    return np.concatenate(columns), np.concatenate(weights)


def _copies(draft: _Draft, e: int) -> tuple[_Grid, NDArray[np.float64]]:
    """The columns of what is copied over link e, and their weights."""
    a, b = draft.p.links[e]
    k, j = np.nonzero(draft.copy[:, e] >= 0)
    return draft.copy[k, e, j], draft.p.transfer_value[a, b, j]
