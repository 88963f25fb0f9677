"""Which moments lift a relaxation most; its linear relaxation tells, in little time.

It is far below, but rises where the relaxation itself will. The linear relaxations of all
candidates are solved as one program, side by side, because starting a worker takes longer than
solving one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome, RunProgram
from tvm_xengine.solvers.program import side_by_side
from tvm_xengine.solvers.relaxation.relaxations import Relaxations

_MOST_CANDIDATES = 7
_MOST_COLUMNS = 60_000
"""Of all linear relaxations together; larger graphs have fewer candidates."""
_MOST_LIFTS = 3
_LEAST_LIFT_RATIO = 5e-4
_NEARLY = 0.8
"""Of the candidates that lift by this share of the most the one in the middle is taken."""


def lifted(
    relaxations: Relaxations,
    moments: set[int],
    candidates: Sequence[int],
    *,
    run: RunProgram,
    limit_s: float,
) -> set[int]:
    """`moments` and some of the candidates, each time one that lifts the linear relaxation most.

    `moments` alone where no candidate lifts it, or where that cannot be told in the time.
    """
    now = -math.inf
    for _ in range(_MOST_LIFTS):
        fresh = [op for op in candidates if op not in moments and relaxations.fits(moments, op)]
        room = _MOST_COLUMNS // relaxations.columns(len(moments) + 1) - 1
        chosen = _spread(fresh, min(_MOST_CANDIDATES, room))
        if not chosen:
            break
        sets = [moments | {op} for op in chosen]
        asked = sets if math.isfinite(now) else [moments, *sets]
        bounds = _linear_bounds(relaxations, asked, run, limit_s)
        if bounds is None:
            break
        if not math.isfinite(now):
            now, bounds = bounds[0], bounds[1:]
        lift = np.array(bounds) - now
        if lift.max() <= _LEAST_LIFT_RATIO * abs(now):
            break
        near = np.flatnonzero(lift >= _NEARLY * lift.max())
        taken = int(near[len(near) // 2])
        moments, now = sets[taken], bounds[taken]
    return moments


def _linear_bounds(
    relaxations: Relaxations, sets: Sequence[set[int]], run: RunProgram, limit_s: float
) -> list[float] | None:
    """The optimum of the linear relaxation at each of the sets of moments; None out of time."""
    programs = [relaxations.at(moments).program.relaxed() for moments in sets]
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
