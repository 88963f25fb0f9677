"""What the time point relaxation minimises."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.relaxation.rows.draft import Draft, Grid


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
    loads = {d: [_runs(draft, d)] for d in range(draft.p.device_count)}
    for e, (a, b) in enumerate(draft.p.links):
        loads.setdefault(int(draft.p.copy_stream[a, b]), []).append(_copies(draft, e))
    for parts in loads.values():
        columns, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        row = draft.builder.new_rows(1, upper=0.0)
        draft.builder.entries(np.repeat(row, len(columns)), columns, weights)
        draft.builder.entries(row, busiest, -1.0)
    return int(busiest[0])


def _runs(draft: Draft, d: int) -> tuple[Grid, NDArray[np.float64]]:
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


def _copies(draft: Draft, e: int) -> tuple[Grid, NDArray[np.float64]]:
    """The columns of what is copied over link e, and their weights."""
    a, b = draft.p.links[e]
    k, j = np.nonzero(draft.copy[:, e] >= 0)
    return draft.copy[k, e, j], draft.p.transfer_value[a, b, j]
