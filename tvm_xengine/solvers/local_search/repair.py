"""Decisions for a schedule, improved where they do not express it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.indexed import NONE, IndexedProblem
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions, assign, copied
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.scratch import Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView
from tvm_xengine.solvers.local_search.encode import Doubt, encoded

_PASSES = 2
"""What one repair makes possible may make another one useful; a third pass hardly finds any."""


def repaired_decisions_of(
    indexed: IndexedProblem, schedule: Schedule, wanted: float, view: SearchView, scratch: Scratch
) -> Decisions:
    """Decisions that exceed the budgets less, or cost less, than those read off `schedule`.

    Until their value is at most `wanted` within the budgets, the alternatives of `encoded`
    are taken wherever that reduces the excess over the budgets, or the value within them.
    """
    x, doubts = encoded(indexed, schedule)
    value, excess = decode(view, x, scratch)
    for _ in range(_PASSES):
        for other in _others(x, doubts):
            if excess == 0.0 and value <= wanted:
                return x
            new_value, new_excess = decode(view, other, scratch)
            if (new_excess, new_value) < (excess, value):
                value, excess = new_value, new_excess
                assign(x, other)
    return x


def _others(x: Decisions, doubts: Sequence[Doubt]) -> Iterator[Decisions]:
    """`x` with one thing decided otherwise, each time as `x` is then."""
    for doubt in doubts:
        other = copied(x)
        interval = doubt.interval
        other.keep[interval], other.push[interval], other.level[interval] = (
            doubt.keep,
            doubt.push,
            1,
        )
        if doubt.op >= 0:
            other.ahead[doubt.op] = doubt.ahead
        yield other
    for op in np.flatnonzero(x.ahead >= 0).tolist():
        other = copied(x)
        other.ahead[op] = NONE
        yield other
