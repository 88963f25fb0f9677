"""Where ops run and what is where: rows of the time point relaxation."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.indexed import ANYWHERE, NOWHERE
from tvm_xengine.solvers.program import ABSENT
from tvm_xengine.solvers.relaxation.rows.draft import Draft, Terms


def run_every_op(draft: Draft) -> None:
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


def copy_from_a_source(draft: Draft) -> None:
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


def read_what_is_there(draft: Draft) -> None:
    """run[k,d,i] <= base[k,d,j] + copies into d;  at[k,d,i] <= keep[k,d,j]"""
    for k, d, i in zip(*(axis.tolist() for axis in np.nonzero(draft.run >= 0)), strict=True):
        for j in draft.reads(i):
            terms, constant = draft.base(k, d, j)
            draft.at_most(int(draft.run[k, d, i]), terms + draft.arrives(k, d, j), constant)
    for k, d, i in np.argwhere(draft.at >= 0).tolist():
        for j in draft.reads(i):
            draft.at_most(int(draft.at[k, d, i]), [(int(draft.keep[k, d, j]), 1.0)], 0.0)


def keep_what_is_there(draft: Draft) -> None:
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


def overwrite_state(draft: Draft) -> None:
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
            before = int(draft.keep[k - 1, h, o]) if k else ABSENT
            for column in (int(draft.run[k, h, u]), before, *landed):
                if here >= 0 and column >= 0:
                    row([(here, 1.0), (column, -1.0)], lower=0.0)


def _ran_before(draft: Draft, k: int, d: int, u: int) -> Terms:
    """Terms of the update op u having run on d before period k."""
    columns = [*draft.run[:k, d, u].tolist(), *draft.at[:k, d, u].tolist()]
    return [(c, 1.0) for c in columns if c >= 0]


def deliver(draft: Draft) -> None:
    """At the end state is at home, updated, and every output is on some device."""
    for j, where in enumerate(draft.p.must_end_on.tolist()):
        if where != NOWHERE and draft.counts[j]:
            last = draft.keep[draft.time_point_count, :, j]
            columns = last.tolist() if where == ANYWHERE else [int(last[where])]
            draft.builder.row([(column, 1.0) for column in columns], lower=1.0)
