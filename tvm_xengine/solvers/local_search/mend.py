"""Decisions for a schedule, brought closer to it where they do not express what it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.local_search.arrays import Arrays
from tvm_xengine.solvers.local_search.decisions import Decisions, copied
from tvm_xengine.solvers.local_search.decoder import decode
from tvm_xengine.solvers.local_search.encode import Doubt, encoded
from tvm_xengine.solvers.local_search.static import Static
from tvm_xengine.solvers.local_search.work import Work

_PASSES = 2


def mended_decisions_of(
    arrays: Arrays, schedule: Schedule, wanted: float, static: Static, work: Work
) -> Decisions:
    """Decisions that exceed the budgets less, or cost less, than those read off `schedule`.

    Until they come to no more than `wanted` within the budgets, what `encoded` says is in doubt
    is decided the other way wherever that brings them closer to the budgets, or is cheaper there.
    """
    x, doubts = encoded(arrays, schedule)
    value, excess = decode(static, x, work)
    for _ in range(_PASSES):
        for other in _others(x, doubts):
            if excess == 0.0 and value <= wanted:
                return x
            new_value, new_excess = decode(static, other, work)
            if (new_excess, new_value) < (excess, value):
                value, excess = new_value, new_excess
                for field, new in zip(x, other, strict=True):
                    field[:] = new
    return x


def _others(x: Decisions, doubts: Sequence[Doubt]) -> Iterator[Decisions]:
    """`x` with one thing decided otherwise, each time as `x` is then."""
    for doubt in doubts:
        other = copied(x)
        gap = doubt.gap
        other.keep[gap], other.push[gap], other.level[gap] = doubt.keep, doubt.push, 1
        if doubt.op >= 0:
            other.ahead[doubt.op] = doubt.ahead
        yield other
    for op in np.flatnonzero(x.ahead >= 0).tolist():
        other = copied(x)
        other.ahead[op] = -1
        yield other
