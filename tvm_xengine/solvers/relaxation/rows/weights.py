"""What the time point relaxation minimises."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.relaxation.rows.draft import Draft, Grid

ALL = slice(None)
Weighted = tuple[Grid, NDArray[np.float64]]
"""Columns and their weights."""


def weigh_all(draft: Draft) -> None:
    """Minimise the weights of all runs and copies."""
    for d in range(draft.p.device_count):
        draft.builder.minimise(*_runs(draft, d))
    for e in range(len(draft.p.links)):
        draft.builder.minimise(*_copies(draft, e))


def weigh_busiest_stream(draft: Draft) -> int:
    """Minimise the largest load of a stream: the runs of a device, and the copies that run in it.

    Returns the column of that load.
    """
    busiest = draft.builder.new_columns(1, upper=np.inf)
    draft.builder.minimise(busiest, 1.0)
    for columns, weights in loads_of(draft).values():
        row = draft.builder.new_rows(1, upper=0.0)
        draft.builder.entries(np.repeat(row, len(columns)), columns, weights)
        draft.builder.entries(row, busiest, -1.0)
    return int(busiest[0])


def loads_of(draft: Draft, periods: slice = ALL) -> Mapping[int, Weighted]:
    """For each stream the columns of what is on it in some periods, and their weights."""
    loads = {d: [_runs(draft, d, periods)] for d in range(draft.p.device_count)}
    for e, (a, b) in enumerate(draft.p.links):
        loads.setdefault(int(draft.p.copy_stream[a, b]), []).append(_copies(draft, e, periods))
    return {
        stream: (np.concatenate([c for c, _ in parts]), np.concatenate([w for _, w in parts]))
        for stream, parts in loads.items()
    }


def _runs(draft: Draft, d: int, periods: slice = ALL) -> Weighted:
    """The columns of what runs on device d, and their weights."""
    run, at = draft.run[periods, d], draft.at[periods, d]
    k, i = np.nonzero(run >= 0)
    m, first = np.nonzero(at >= 0)
    value = draft.p.kernels.value[:, d]
    columns = [run[k, i], at[m, first]]
    weights = [draft.compute_value[of, d] + value[of, 0] - value[of, -1] for of in (i, first)]
    for takes in (draft.run_takes[periods, d], draft.at_takes[periods, d]):
        k, i, v = np.nonzero(takes >= 0)
        columns.append(takes[k, i, v])
        weights.append(value[i, v] - value[i, 0])
    return np.concatenate(columns), np.concatenate(weights)


def _copies(draft: Draft, e: int, periods: slice = ALL) -> Weighted:
    """The columns of what is copied over link e, and their weights."""
    a, b = draft.p.links[e]
    copy = draft.copy[periods, e]
    k, j = np.nonzero(copy >= 0)
    return copy[k, j], draft.p.transfer_value[a, b, j]
