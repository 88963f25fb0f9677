"""Compiled: in which gap a tensor is, and what it is brought back in."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.chance import Chance, below
from tvm_xengine.solvers.local_search.decisions import Decisions
from tvm_xengine.solvers.local_search.static import Static
from tvm_xengine.solvers.local_search.work import STEPS, Work


@inner
def gap_at(g: Static, n: Surroundings, x: Decisions, t: int, place: int) -> int:
    """The gap of tensor t while the op at `place` is served; -1 before t is made."""
    gap = len(g.touch) + t if g.tensor[t].producer < 0 else -1
    latest = -1
    for k in range(n.touch_at[t], n.touch_at[t + 1]):
        at = x.position[g.touch_op[n.touch[k]]]
        if latest < at < place:
            latest = at
            gap = n.touch[k]
    return gap


@inner
def begin_of(g: Static, x: Decisions, gap: int) -> int:
    """Place of the first op in a gap, or of the first of all where it is that before any touch."""
    return int(x.position[g.touch_op[gap]] + 1) if 0 <= gap < len(g.touch) else 0


@inner
def next_touch(g: Static, n: Surroundings, x: Decisions, t: int, place: int) -> int:
    """Place of the first op after `place` that touches t; one past the last if there is none."""
    after = len(x.order)
    for k in range(n.touch_at[t], n.touch_at[t + 1]):
        at = x.position[g.touch_op[n.touch[k]]]
        if place < at < after:
            after = at
    return after


@inner
def any_return(g: Static, x: Decisions, w: Work, c: Chance) -> tuple[int, int, int]:
    """A tensor that a random step of the last decode brings back, where, and for which place.

    The tensor is -1 where the step that was drawn brings nothing back.
    """
    step = w.step[below(c, max(1, w.counted[STEPS]))]
    if step.kind == 1:
        return step.item, step.dst, step.place
    if x.position[step.item] == step.place:
        return -1, -1, step.place
    k = below(c, g.op[step.item + 1].made_at - g.op[step.item].made_at)
    return g.made[g.op[step.item].made_at + k], step.src, step.place
