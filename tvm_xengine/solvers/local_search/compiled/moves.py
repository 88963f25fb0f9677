"""Compiled: random changes of the decisions, each with what is needed to undo it."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.ahead import bring_ahead
from tvm_xengine.solvers.local_search.compiled.critical import shorten
from tvm_xengine.solvers.local_search.compiled.decisions import EVERYWHERE, Decisions
from tvm_xengine.solvers.local_search.compiled.evict import MOST_LEVEL, can_remake, evict
from tvm_xengine.solvers.local_search.compiled.intervals import any_return, interval_at, write
from tvm_xengine.solvers.local_search.compiled.random_source import (
    LEVEL,
    RandomSource,
    below,
    change,
)
from tvm_xengine.solvers.local_search.compiled.reorder import reorder, run_elsewhere
from tvm_xengine.solvers.local_search.compiled.scratch import Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView


@inner
def propose(
    g: SearchView,
    n: Surroundings,
    x: Decisions,
    w: Scratch,
    c: RandomSource,
    exceeds: bool,
) -> None:
    """Change `x` at random; what `w` knows of the last decode guides the change.

    For the makespan a quarter is to a critical step, and where no budget is exceeded a quarter to the order.
    More is evicted while a budget is exceeded.
    """
    c.logged[0] = 0
    dice = below(c, 100)
    timed = below(c, 4) if n.has_places and g.by_makespan else NONE
    if timed == 0:
        shorten(g, n, x, w, c)
    elif timed == 1 and not exceeds:
        reorder(n, x, c)
    elif n.has_places and dice < 15:
        run_elsewhere(g, n, x, c)
    elif dice < 20:
        reorder(n, x, c)
    elif dice < 22:
        bring_ahead(g, n, x, w, c)
    elif exceeds:
        if dice < 75:
            evict(g, n, x, w, c)
        elif dice < 85:
            evict(g, n, x, w, c)
            evict(g, n, x, w, c)
        elif dice < 95:
            _restore(g, n, x, w, c)
            evict(g, n, x, w, c)
        else:
            _exchange(g, n, x, c)
    elif dice < 45:
        _restore(g, n, x, w, c)
    elif dice < 75:
        _restore(g, n, x, w, c)
        evict(g, n, x, w, c)
    elif dice < 85:
        evict(g, n, x, w, c)
    elif dice < 95:
        _exchange(g, n, x, c)
    else:
        _any_interval(g, n, x, c)


@inner
def _changed_interval(x: Decisions, c: RandomSource) -> int:
    """A random interval in which something is dropped; `NONE` if none was hit on."""
    for _ in range(100):
        interval = below(c, len(x.keep))
        if x.keep[interval] != EVERYWHERE or x.push[interval] != 0:
            return int(interval)
    return NONE


@inner
def _restore(g: SearchView, n: Surroundings, x: Decisions, w: Scratch, c: RandomSource) -> None:
    """Hold what is recomputed or copied in the last decode, or hold it from an earlier return on."""
    interval = NONE
    for _ in range(30):
        t, _, place = any_return(g, x, w, c)
        if t >= 0:
            interval = interval_at(g, n, x, t, place)
        if interval >= 0 and (x.keep[interval] != EVERYWHERE or x.push[interval] != 0):
            break
        interval = NONE
    if interval < 0:
        interval = _changed_interval(x, c)
    if interval < 0:
        return
    if x.level[interval] > 1 and below(c, 2) == 0:
        change(x, c, LEVEL, interval, min(MOST_LEVEL, x.level[interval] - 1))
    else:
        write(n, x, c, interval, EVERYWHERE, 0, 1)


@inner
def _exchange(g: SearchView, n: Surroundings, x: Decisions, c: RandomSource) -> None:
    """Hold what is dropped and drop what it is made from, or what is made from it."""
    interval = _changed_interval(x, c)
    if interval < 0 or interval >= len(g.touch):
        return
    t = g.touch[interval]
    place = x.position[g.touch_op[interval]] + 1
    i = g.tensor[t].producer
    if below(c, 2) == 0 and n.touch_at[t + 1] > n.touch_at[t]:
        i = g.touch_op[n.touch[n.touch_at[t] + below(c, n.touch_at[t + 1] - n.touch_at[t])]]
    if i < 0:
        return
    width = g.op[i + 1].touch_at - g.op[i].touch_at
    other = g.touch[g.op[i].touch_at + below(c, width)]
    if other == t:
        return
    at = interval_at(g, n, x, other, max(place, x.position[i] + 1))
    if at < 0 or g.tensor[other].producer < 0:
        return
    keep, push, level = x.keep[interval], x.push[interval], x.level[interval]
    write(n, x, c, interval, x.keep[at], x.push[at], x.level[at])
    write(n, x, c, at, keep, push, level)


@inner
def _any_interval(g: SearchView, n: Surroundings, x: Decisions, c: RandomSource) -> None:
    """Any decision for any interval."""
    interval = below(c, len(x.keep))
    t = g.touch[interval] if interval < len(g.touch) else interval - len(g.touch)
    if len(g.device) == 1 and not can_remake(g, t):
        return
    dice = below(c, 4)
    if dice == 0:
        write(n, x, c, interval, EVERYWHERE, 0, 1)
    elif dice == 1:
        write(n, x, c, interval, 0, 0, 1 + below(c, MOST_LEVEL))
    else:
        d = below(c, len(g.device))
        push = (1 << d) if dice == 2 else 0
        write(n, x, c, interval, 1 << d, push, 1)
