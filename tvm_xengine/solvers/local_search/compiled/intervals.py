"""Compiled: the use intervals of tensors, between two ops that touch them."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions
from tvm_xengine.solvers.local_search.compiled.random_source import (
    KEEP,
    LEVEL,
    PUSH,
    RandomSource,
    below,
    change,
)
from tvm_xengine.solvers.local_search.compiled.scratch import STEPS, TRANSFER, Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView


@inner
def interval_at(g: SearchView, n: Surroundings, x: Decisions, t: int, place: int) -> int:
    """The interval of tensor t while the op at `place` is served; `NONE` before t is made."""
    interval = len(g.touch) + t if g.tensor[t].producer < 0 else NONE
    latest = -1
    for k in range(n.touch_at[t], n.touch_at[t + 1]):
        at = x.position[g.touch_op[n.touch[k]]]
        if latest < at < place:
            latest = at
            interval = n.touch[k]
    return interval


@inner
def begin_of(g: SearchView, x: Decisions, interval: int) -> int:
    """Place of the first op in an interval, or of the first of all where it is that before any touch."""
    return int(x.position[g.touch_op[interval]] + 1) if 0 <= interval < len(g.touch) else 0


@inner
def next_touch(g: SearchView, n: Surroundings, x: Decisions, t: int, place: int) -> int:
    """Place of the first op after `place` that touches t; one past the last if there is none."""
    after = len(x.order)
    for k in range(n.touch_at[t], n.touch_at[t + 1]):
        at = x.position[g.touch_op[n.touch[k]]]
        if place < at < after:
            after = at
    return after


@inner
def any_return(g: SearchView, x: Decisions, w: Scratch, c: RandomSource) -> tuple[int, int, int]:
    """A tensor that a random step of the last decode brings back, where, and for which place.

    The tensor is `NONE` where the step that was drawn brings nothing back.
    """
    step = w.step[below(c, max(1, w.counted[STEPS]))]
    if step.kind == TRANSFER:
        return step.item, step.dst, step.place
    if x.position[step.item] == step.place:
        return NONE, NONE, step.place
    k = below(c, g.op[step.item + 1].made_at - g.op[step.item].made_at)
    return g.made[g.op[step.item].made_at + k], step.src, step.place


@inner
def write(
    n: Surroundings, x: Decisions, c: RandomSource, interval: int, keep: int, push: int, level: int
) -> None:
    """Decide for a use interval, and sometimes for those of its class in neighbouring blocks."""
    kind = n.interval_class[interval]
    begin, end = n.interval_members_at[kind], n.interval_members_at[kind + 1]
    if end - begin > 1 and below(c, 5) == 0:
        here = begin
        while n.interval_members[here] != interval:
            here += 1
        if below(c, 2) == 0:
            begin = max(begin, here - below(c, 4))
            end = min(end, here + 1 + below(c, 4))
    else:
        begin, end = 0, 0
    if begin == end:
        change(x, c, KEEP, interval, keep)
        change(x, c, PUSH, interval, push)
        change(x, c, LEVEL, interval, level)
    for k in range(begin, end):
        change(x, c, KEEP, n.interval_members[k], keep)
        change(x, c, PUSH, n.interval_members[k], push)
        change(x, c, LEVEL, n.interval_members[k], level)
