"""When first runs end, and what the streams must do by then: rows of the relaxation for the makespan.

x[i,d] sums run and at over the periods. The first run of op i to end is on one device: on d alone, or on d
with other runs of i elsewhere.

    only[i,d], also[i,d] in [0,1];  first[i,d] = only[i,d] + also[i,d];  sum_d first[i,d] = 1
    first[i,d] <= x[i,d];  sum over other d' of (x - first)[i,d'] >= also[i,d]
    end[i] >= sum_d (head[i,d] + value[i,d]) first[i,d]
    end[i] >= end[u] + sum_d (value[i,d] first[i,d] + least copy and handover of j to d * late[i,j,d]),
        late[i,j,d] >= first[i,d] - x[u,d],   for every j that i reads and u makes
    z >= end[i] + sum_d (tail[i,d] only[i,d] + repeated_tail[i] also[i,d])

What runs on a device one after the other begins no earlier than the least head, and the least tail follows.
For a set S of first runs on a device, or of copies over a link, and used_S in {0,1}:

    z >= (least head of S + least tail of S) used_S + sum over S of its time,   used_S >= each of S
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tvm_xengine.solvers.indexed import Floats
from tvm_xengine.solvers.program import ABSENT
from tvm_xengine.solvers.relaxation.head_and_tail import HeadsAndTails
from tvm_xengine.solvers.relaxation.rows.draft import Draft, Grid, Terms


@dataclass(frozen=True)
class StreamCut:
    """The jobs of a stream with at least this head and tail, as a set of which the sum is bounded."""

    stream: int
    head: float
    tail: float

    def holds(self, other: StreamCut) -> bool:
        """Whether every job of another cut is one of this."""
        return self.stream == other.stream and self.head <= other.head and self.tail <= other.tail


@dataclass(frozen=True)
class Jobs:
    """What may be on a stream at one time only.

    Attributes
    ----------
    head, tail, value, column
        Of each job; several columns may stand for runs of the same kind.
    """

    head: Floats
    tail: Floats
    value: Floats
    column: Grid

    def of(self, cut: StreamCut) -> Grid:
        """Positions of the jobs of a cut."""
        return np.flatnonzero((self.head >= cut.head) & (self.tail >= cut.tail))


@dataclass(frozen=True)
class Streams:
    """Where first runs are, when they end, and what is on each stream.

    Attributes
    ----------
    first
        Columns only and also, -1 where there is none, shape (2, n, D).
    end
        Columns, shape (n,).
    jobs
        Of each stream by its number.
    used
        Columns that say whether the sets of cuts are used.
    """

    first: Grid
    end: Grid
    jobs: dict[int, Jobs]
    used: Grid

    def order(self, x: Floats) -> Grid:
        """The ops in the order in which their first runs end in a solution."""
        return np.argsort(x[self.end], kind="stable")

    def devices(self, x: Floats) -> Grid:
        """The device on which a solution runs most of each op first, shape (n,)."""
        share = np.where(self.first >= 0, x[self.first], 0.0).sum(axis=0)
        return np.asarray(share.argmax(axis=1), np.int64)


def follow_first_runs(
    draft: Draft, times: HeadsAndTails, cuts: Iterable[StreamCut], busiest: int
) -> Streams:
    """Write the rows above; `busiest` is the column z."""
    p, builder = draft.p, draft.builder
    can_run = p.can_run & np.isfinite(times.run_head)
    several = (can_run.sum(axis=1) > 1) & p.recomputable
    only = builder.grid(can_run & np.isfinite(times.tail))
    also = builder.grid(can_run & several[:, None])
    end = builder.new_columns(p.op_count, upper=np.inf)
    ran = [[_ran(draft, i, d) for d in range(p.device_count)] for i in range(p.op_count)]
    least_copy = np.full((p.device_count, p.tensor_count), np.inf)
    for a, b in p.links:
        least_copy[b] = np.minimum(least_copy[b], p.transfer_value[a, b])
    least_copy += p.problem.platform.handover_us or 0.0

    def first(i: int, d: int, value: float = 1.0) -> Terms:
        return [(int(grid[i, d]), value) for grid in (only, also) if grid[i, d] >= 0]

    for i in range(p.op_count):
        devices = np.flatnonzero(can_run[i]).tolist()
        builder.row([term for d in devices for term in first(i, d)], lower=1.0, upper=1.0)
        for d in devices:
            builder.row([*ran[i][d], *first(i, d, -1.0)], lower=0.0)
            if also[i, d] >= 0:
                elsewhere = [
                    term for o in devices if o != d for term in (*ran[i][o], *first(i, o, -1.0))
                ]
                builder.row([*elsewhere, (int(also[i, d]), -1.0)], lower=0.0)
        ends = int(end[i])
        began = [term for d in devices for term in first(i, d, -float(p.compute_value[i, d]))]
        heads = [t for d in devices for t in first(i, d, -float(times.run_head[i, d]))]
        builder.row([(ends, 1.0), *began, *heads], lower=0.0)
        for j in p.reads[i]:
            if (u := int(p.producer[j])) < 0:
                continue  # its copies are part of the head
            late: Terms = []
            for d in devices:
                if np.isfinite(least_copy[d, j]):
                    column = int(builder.fractions(1)[0])
                    builder.row([(column, 1.0), *first(i, d, -1.0), *ran[u][d]], lower=0.0)
                    late.append((column, -float(least_copy[d, j])))
            builder.row([(ends, 1.0), (int(end[u]), -1.0), *began, *late], lower=0.0)
        alone = [d for d in devices if only[i, d] >= 0]
        tails = [(int(only[i, d]), -float(times.tail[i, d])) for d in alone]
        tails += [
            (int(also[i, d]), -float(times.repeated_tail[i])) for d in devices if also[i, d] >= 0
        ]
        builder.row([(busiest, 1.0), (ends, -1.0), *tails], lower=0.0)
    jobs = {**_runs(draft, times, only, also), **_copies(draft, times)}
    return Streams(np.array([only, also]), end, jobs, _bound_sets(draft, jobs, cuts, busiest))


def _ran(draft: Draft, i: int, d: int) -> Terms:
    columns = [*draft.run[:, d, i].tolist(), *draft.at[:, d, i].tolist()]
    return [(column, 1.0) for column in columns if column != ABSENT]


def _runs(draft: Draft, times: HeadsAndTails, only: Grid, also: Grid) -> dict[int, Jobs]:
    """First runs by device; the others are jobs, too, but nothing need follow them."""
    jobs = {}
    for d in range(draft.p.device_count):
        (alone,), (with_others,) = np.nonzero(only[:, d] >= 0), np.nonzero(also[:, d] >= 0)
        ops = np.concatenate([alone, with_others])
        jobs[d] = Jobs(
            times.run_head[ops, d],
            np.concatenate([times.tail[alone, d], times.repeated_tail[with_others]]),
            draft.p.compute_value[ops, d],
            np.concatenate([only[alone, d], also[with_others, d]]),
        )
    return jobs


def _copies(draft: Draft, times: HeadsAndTails) -> dict[int, Jobs]:
    """Copies by link, for links that are streams of their own."""
    p, jobs = draft.p, {}
    for e, (a, b) in enumerate(p.links):
        stream = int(p.copy_stream[a, b])
        if stream >= p.device_count:
            may_begin = np.isfinite(times.copy_head[a])
            k, j = np.nonzero((draft.copy[:, e] >= 0) & may_begin)
            head = times.copy_head[a, j]
            jobs[stream] = Jobs(
                head, np.zeros(len(j)), p.transfer_value[a, b, j], draft.copy[k, e, j]
            )
    return jobs


def _bound_sets(
    draft: Draft, jobs: dict[int, Jobs], cuts: Iterable[StreamCut], busiest: int
) -> Grid:
    builder, used = draft.builder, dict[StreamCut, int]()
    for cut in cuts:
        of = jobs[cut.stream]
        members = of.of(cut)
        if not members.size:
            continue
        column = int(builder.new_columns(1, is_integer=True)[0])
        for other, known in used.items():
            if cut.holds(other):
                builder.row([(column, 1.0), (known, -1.0)], lower=0.0)
            elif other.holds(cut):
                builder.row([(known, 1.0), (column, -1.0)], lower=0.0)
        used[cut] = column
        for member in of.column[members].tolist():
            builder.row([(column, 1.0), (member, -1.0)], lower=0.0)
        around = float(of.head[members].min() + of.tail[members].min())
        sums = zip(of.column[members].tolist(), (-of.value[members]).tolist(), strict=True)
        builder.row([(busiest, 1.0), (column, -around), *sums], lower=0.0)
    return np.array([*used.values()], np.int64)
