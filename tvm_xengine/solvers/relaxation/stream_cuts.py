"""The sets of jobs of a stream whose rows a solution of the relaxation for the makespan breaks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tvm_xengine.solvers.indexed import Floats
from tvm_xengine.solvers.relaxation.rows.first_runs import Jobs, StreamCut, Streams

_LEAST_RATIO = 1e-3
"""Of the value. Rows that are broken by less raise it by less than solving the program again is worth."""
_MOST_PER_STREAM = 2
"""Sets that are broken most are nearly the same, and each takes a row for every member."""


def broken_cuts(streams: Streams, x: Floats, value: float) -> tuple[StreamCut, ...]:
    """The cuts that a solution of this value breaks most."""
    return tuple(
        cut
        for stream, jobs in streams.jobs.items()
        for _, cut in sorted(
            _broken(stream, jobs, x, value), key=lambda pair: (-pair[0], pair[1].head)
        )[:_MOST_PER_STREAM]
    )


def _broken(stream: int, jobs: Jobs, x: Floats, value: float) -> Iterator[tuple[float, StreamCut]]:
    """For each head the set that is broken most, and by how much."""
    taken = x[jobs.column]
    load = jobs.value * taken
    by_tail = np.argsort(-jobs.tail, kind="stable")
    for head in np.unique(jobs.head[taken > 0]).tolist():
        of = by_tail[jobs.head[by_tail] >= head]
        around = (head + jobs.tail[of]) * np.maximum.accumulate(taken[of])
        excess = around + np.cumsum(load[of]) - value
        most = int(excess.argmax())
        if excess[most] > _LEAST_RATIO * value:
            yield float(excess[most]), StreamCut(stream, head, float(jobs.tail[of[most]]))
