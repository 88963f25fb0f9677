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
by the load of the busiest stream, a device with the copies that it makes or a link, by when first runs
end (`rows/first_runs.py`), and by what streams do in each period (`rows/period_times.py`), under the same
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.program import ABSENT, Program
from tvm_xengine.solvers.relaxation.head_and_tail import HeadsAndTails
from tvm_xengine.solvers.relaxation.periods import Periods
from tvm_xengine.solvers.relaxation.rows.draft import Draft, Grid
from tvm_xengine.solvers.relaxation.rows.first_runs import StreamCut, Streams, follow_first_runs
from tvm_xengine.solvers.relaxation.rows.memory import fit_while_running, stay_within_budgets
from tvm_xengine.solvers.relaxation.rows.period_times import fit_periods
from tvm_xengine.solvers.relaxation.rows.presence import (
    copy_from_a_source,
    deliver,
    keep_what_is_there,
    overwrite_state,
    read_what_is_there,
    run_every_op,
)
from tvm_xengine.solvers.relaxation.rows.weights import weigh_all, weigh_busiest_stream


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
    at_once
        Whether tensor j, if it is ever on device d, is there from its first run on, shape (D, J).
    budget_rows
        For each device the rows whose side is its budget.
    streams
        For the makespan, what is on each stream; None else.
    """

    indexed: IndexedProblem
    periods: Periods
    program: Program
    run: Grid
    at: Grid
    keep: Grid
    copy: Grid
    hold: Grid
    held: Grid
    run_takes: Grid
    at_takes: Grid
    at_once: NDArray[np.bool_]
    budget_rows: tuple[tuple[int, ...], ...]
    streams: Streams | None = None

    def time_points(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """The op whose first run is time point k in the solution `x`, shape (K,); -1 where none is."""
        taken = np.where(self.at >= 0, values_of(self.at, x), -1.0).max(axis=1, initial=-1.0)
        if not len(taken):
            return np.zeros(0, np.int64)
        is_open = self.periods.may_be.sum(axis=0)[taken.argmax(axis=1)] > 1
        is_empty = is_open & (taken.max(axis=1) < 0.5)
        return np.asarray(np.where(is_empty, ABSENT, taken.argmax(axis=1)), np.int64)


def values_of(columns: NDArray[np.int64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values in `x` of a grid of columns, 0 where there is none."""
    return np.where(columns >= 0, x[np.maximum(columns, 0)], 0.0)


def formulate_time_points(
    indexed: IndexedProblem,
    periods: Periods,
    *,
    is_makespan: bool = False,
    neglected: NDArray[np.bool_] | None = None,
    cuts: Sequence[StreamCut] = (),
) -> TimePointModel:
    """The relaxation of `indexed` at these time points; with `is_makespan`, of its busiest stream
    and of when first runs end.

    Parameters
    ----------
    neglected
        Tensors that are left out, shape (J,); an update result exactly when its state is.
    cuts
        Sets of what is on one stream, for the makespan.
    """
    if neglected is None:
        neglected = np.zeros(indexed.tensor_count, np.bool_)
    draft = Draft(indexed, periods, neglected, is_makespan=is_makespan)
    run_every_op(draft)
    copy_from_a_source(draft)
    read_what_is_there(draft)
    keep_what_is_there(draft)
    overwrite_state(draft)
    deliver(draft)
    stay_within_budgets(draft)
    fit_while_running(draft)
    streams = None
    if is_makespan:
        busiest = weigh_busiest_stream(draft)
        streams = follow_first_runs(draft, HeadsAndTails.of(indexed), cuts, busiest)
        if draft.time_point_count:
            fit_periods(draft, streams.end, busiest)
    else:
        weigh_all(draft)
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
        at_once=draft.at_once,
        budget_rows=tuple(map(tuple, draft.budget_rows)),
        streams=streams,
    )
