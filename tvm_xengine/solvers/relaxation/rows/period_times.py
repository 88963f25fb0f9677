"""What a stream does in a period takes the time of that period: rows of the relaxation for the makespan.

Sort the runs and copies of a schedule by their ends, as its streams run side by side. No moment asks for
more memory than it does as it runs, so this order is one of the schedules that the other rows speak of, and
period k is from the end of the first run of m_{k-1} to that of m_k. Of what ends in period k one step of a
stream may have begun before it. With over[k,s] >= 0, the part of that step before the period,

    end[m_k] - end[m_{k-1}] >= runs and copies of period k on s - over[k,s] + over[k+1,s]
    over[k,s] <= (the longest step that may be on s as m_{k-1} ends) (1 - at[k-1,s])

What comes after m_{k-1} begins no earlier than it ends, and the device of m_{k-1} does nothing else then.
A time point that has several places is at any moment between its neighbours. The last period ends with the
step.
"""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.program import ABSENT
from tvm_xengine.solvers.relaxation.periods import ancestor_bits
from tvm_xengine.solvers.relaxation.rows.draft import Draft, Grid, Terms
from tvm_xengine.solvers.relaxation.rows.weights import loads_of


def fit_periods(draft: Draft, end: Grid, busiest: int) -> None:
    """Write the rows above, with the columns of the ends of first runs and that of the makespan."""
    builder, ancestors = draft.builder, ancestor_bits(draft.p)
    began: Terms = []
    over: dict[int, Terms] = {}
    for k in range(draft.time_point_count + 1):
        is_last = k == draft.time_point_count
        ends = busiest if is_last else _moment(draft, k, end, began)
        loads = loads_of(draft, slice(k, k + 1))
        later: dict[int, Terms] = {}
        for stream, (columns, weights) in loads.items():
            if not is_last:
                later[stream] = _begun_before(draft, k, stream, ancestors)
            part = [(column, -value) for column, value in later.get(stream, [])]
            row = builder.row([(ends, 1.0), *began, *over.get(stream, []), *part], lower=0.0)
            builder.entries(np.full(len(columns), row), columns, -weights)
        began, over = [(ends, -1.0)], later


def _moment(draft: Draft, k: int, end: Grid, began: Terms) -> int:
    """The column of the end of the first run that is time point k."""
    (ops,) = np.nonzero(draft.periods.may_be[k])
    if len(ops) == 1 and draft.periods.may_be[:, ops[0]].sum() == 1:
        return int(end[ops[0]])
    column = int(draft.builder.new_columns(1, upper=np.inf)[0])
    draft.builder.row([(column, 1.0), *began], lower=0.0)
    return column


def _begun_before(draft: Draft, k: int, stream: int, ancestors: tuple[int, ...]) -> Terms:
    """The term of over[k + 1, stream]; none where no step can be under way as time point k ends."""
    most = _longest_step(draft, k, stream, ancestors)
    if most <= 0.0:
        return []
    column = int(draft.builder.new_columns(1, upper=most)[0])
    at = draft.at[k, stream] if stream < draft.p.device_count else np.zeros(0, np.int64)
    ends_here = [(int(c), most) for c in at[at != ABSENT]]
    if ends_here:
        draft.builder.row([(column, 1.0), *ends_here], upper=most)
    return [(column, 1.0)]


def _longest_step(draft: Draft, k: int, stream: int, ancestors: tuple[int, ...]) -> float:
    p, may_be = draft.p, draft.periods.may_be
    (ops,) = np.nonzero(may_be[k])
    is_later, is_there = np.zeros(p.op_count, np.bool_), np.ones(p.tensor_count, np.bool_)
    if len(ops) == 1 and may_be[:, ops[0]].sum() == 1:
        is_later[:] = [bits >> int(ops[0]) & 1 for bits in ancestors]
        made_later = is_later.copy()
        made_later[ops[0]] = True
        is_there = (p.producer < 0) | ~made_later[p.producer]
    steps = [
        p.transfer_value[a, b, is_there] for a, b in p.links if int(p.copy_stream[a, b]) == stream
    ]
    if stream < p.device_count:
        steps.append(p.kernels.value[~is_later & p.can_run[:, stream], stream].ravel())
    times = np.concatenate(steps)
    return float(times[np.isfinite(times)].max(initial=0.0))
