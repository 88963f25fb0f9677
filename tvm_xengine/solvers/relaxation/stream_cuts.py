"""The sets of jobs of a stream whose rows a solution of the relaxation for the makespan breaks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tvm_xengine.solvers.indexed import Floats
from tvm_xengine.solvers.relaxation.options import DEFAULTS, RelaxationOptions
from tvm_xengine.solvers.relaxation.rows.first_runs import Jobs, StreamCut, Streams


def broken_cuts(
    streams: Streams, x: Floats, value: float, options: RelaxationOptions = DEFAULTS
) -> tuple[StreamCut, ...]:
    """The cuts that a solution of this value breaks most."""
    least = options.least_broken_ratio * value
    return tuple(
        cut
        for stream, jobs in streams.jobs.items()
        for excess, cut in sorted(
            _broken(stream, jobs, x, value), key=lambda pair: (-pair[0], pair[1].head)
        )[: options.most_cuts]
        if excess > least
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
        yield float(excess[most]), StreamCut(stream, head, float(jobs.tail[of[most]]))
