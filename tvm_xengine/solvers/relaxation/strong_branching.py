"""Chooses the time points that raise a relaxation most, by strong branching on its LP.

The value of the linear relaxation is far below that of the relaxation, but it rises at the same time
points and takes little time. The linear relaxations of all candidates are solved as one program, side
by side, because starting a worker process takes longer than solving one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome, RunProgram
from tvm_xengine.solvers.program import side_by_side
from tvm_xengine.solvers.relaxation.relaxations import Relaxations


def with_chosen_time_points(
    relaxations: Relaxations,
    time_points: set[int],
    candidates: Sequence[int],
    *,
    run: RunProgram,
    limit_s: float,
) -> set[int]:
    """`time_points` and some of the candidates, each the one that raises the linear relaxation most.

    `time_points` alone where no candidate raises it, or where time runs out before that is known.
    """
    options, now = relaxations.options, -math.inf
    for _ in range(options.most_chosen):
        fresh = [
            op for op in candidates if op not in time_points and relaxations.fits(time_points, op)
        ]
        room = options.most_lp_columns // relaxations.columns(len(time_points) + 1) - 1
        chosen = _spread(fresh, min(options.most_candidates, room))
        if not chosen:
            break
        sets = [time_points | {op} for op in chosen]
        asked = sets if math.isfinite(now) else [time_points, *sets]
        bounds = _linear_bounds(relaxations, asked, run, limit_s)
        if bounds is None:
            break
        if not math.isfinite(now):
            now, bounds = bounds[0], bounds[1:]
        rise = np.array(bounds) - now
        if rise.max() <= options.least_rise_ratio * abs(now):
            break
        near = np.flatnonzero(rise >= options.near_ratio * rise.max())
        taken = int(near[len(near) // 2])
        time_points, now = sets[taken], bounds[taken]
    return time_points


def _linear_bounds(
    relaxations: Relaxations, sets: Sequence[set[int]], run: RunProgram, limit_s: float
) -> list[float] | None:
    """The optimum of the linear relaxation at each of the sets of time points; None out of time."""
    programs = [relaxations.at(time_points).program.relaxed() for time_points in sets]
    answer = run(side_by_side(programs), BackendOptions(limit_s), -math.inf)
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None:
        return None
    ends = np.cumsum([program.column_count for program in programs])
    parts = np.split(answer.x, ends[:-1])
    return [program.objective(part) for program, part in zip(programs, parts, strict=True)]


def _spread(ops: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly spread, the first and the last among them."""
    if count < 1 or not ops:
        return []
    places = np.linspace(0, len(ops) - 1, min(count, len(ops)))
    return [ops[place] for place in places.round().astype(int).tolist()]
