"""Compiled: random changes of the decisions, each with what is needed to take it back."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.local_search.ahead import (
    bring_ahead,
    last_chance,
    make_way_here,
    move_between,
)
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.chance import AHEAD, KEEP, LEVEL, PUSH, Chance, below, change
from tvm_xengine.solvers.local_search.decisions import (
    BRING,
    BRING_ALONE,
    DROP,
    EVERYWHERE,
    NEVER,
    Decisions,
    moved,
)
from tvm_xengine.solvers.local_search.gaps import any_return, begin_of, gap_at, next_touch
from tvm_xengine.solvers.local_search.reorder import reorder, run_elsewhere
from tvm_xengine.solvers.local_search.static import Static
from tvm_xengine.solvers.local_search.work import HOT, STAYS, STEPS, Work

_MOST_LEVEL = 3


@inner
def propose(
    g: Static, n: Surroundings, x: Decisions, w: Work, c: Chance, exceeds: bool, places: bool
) -> None:
    """Change `x` at random; what `w` knows of the last decode guides the change.

    More is evicted while a budget is exceeded. `places` says whether there are several
    devices to compute on.
    """
    c.logged[0] = 0
    dice = below(c, 100)
    if places and dice < 15:
        run_elsewhere(g, n, x, c)
    elif dice < 20:
        reorder(n, x, c)
    elif dice < 22:
        bring_ahead(g, n, x, w, c)
    elif exceeds:
        if dice < 75:
            _evict(g, n, x, w, c)
        elif dice < 85:
            _evict(g, n, x, w, c)
            _evict(g, n, x, w, c)
        elif dice < 95:
            _restore(g, n, x, w, c)
            _evict(g, n, x, w, c)
        else:
            _exchange(g, n, x, c)
    elif dice < 45:
        _restore(g, n, x, w, c)
    elif dice < 75:
        _restore(g, n, x, w, c)
        _evict(g, n, x, w, c)
    elif dice < 85:
        _evict(g, n, x, w, c)
    elif dice < 95:
        _exchange(g, n, x, c)
    else:
        _any_gap(g, n, x, c)


@inner
def _write(
    n: Surroundings, x: Decisions, c: Chance, gap: int, keep: int, push: int, level: int
) -> None:
    """Decide for a gap and sometimes for its twins in a run of neighbouring blocks."""
    kind = n.gap_class[gap]
    begin, end = n.twin_at[kind], n.twin_at[kind + 1]
    if end - begin > 1 and below(c, 5) == 0:
        here = begin
        while n.twin[here] != gap:
            here += 1
        if below(c, 2) == 0:
            begin = max(begin, here - below(c, 4))
            end = min(end, here + 1 + below(c, 4))
    else:
        begin, end = 0, 0
    if begin == end:
        change(x, c, KEEP, gap, keep)
        change(x, c, PUSH, gap, push)
        change(x, c, LEVEL, gap, level)
    for k in range(begin, end):
        change(x, c, KEEP, n.twin[k], keep)
        change(x, c, PUSH, n.twin[k], push)
        change(x, c, LEVEL, n.twin[k], level)


@inner
def _evict(g: Static, n: Surroundings, x: Decisions, w: Work, c: Chance) -> None:
    """Drop, or move away, something that is live but idle during a hot step."""
    if w.counted[STEPS] == 0:
        return
    if w.counted[HOT] > 0:
        k = below(c, w.counted[HOT])
        step, d = w.hot[k].step, w.hot[k].device
    else:
        step, d = below(c, w.counted[STEPS]), below(c, len(g.device))
    best = -1
    for _ in range(60):
        k = below(c, w.counted[STAYS])
        stay = w.stay[k]
        can_leave = len(g.device) > 1 or _can_remake(g, stay.tensor)
        began = stay.start < step or (step == 0 and g.tensor[stay.tensor].home == d)
        if stay.device == d and began and step < stay.end and can_leave:
            size = g.tensor[stay.tensor].size
            if size > 0 and (best < 0 or size > g.tensor[w.stay[best].tensor].size):
                known = best >= 0
                best = k
                if known or below(c, 2) == 0:
                    break
    if best < 0:
        return
    t = w.stay[best].tensor
    place = w.step[step].place
    gap = gap_at(g, n, x, t, place)
    if gap < 0:
        return
    if not (x.keep[gap] >> d) & 1:  # it is back for the sake of another op
        level = x.level[gap] + 1
        change(x, c, LEVEL, gap, NEVER if level > _MOST_LEVEL or below(c, 3) == 0 else level)
        return
    if place > 0 and x.ahead[x.order[place - 1]] < 0 and below(c, 40) == 0:
        change(x, c, AHEAD, x.order[place - 1], moved(t, d, len(g.device), DROP))
        return
    other = below(c, len(g.device))
    is_moved = below(c, 2) == 0 or not _can_remake(g, t)
    if other != d and is_moved and g.link[d, other].hop >= 0:
        dice = below(c, 16)
        if dice == 0:
            move_between(g, x, c, t, other, begin_of(g, x, gap), place, BRING_ALONE)
            return
        _write(n, x, c, gap, 1 << other, 1 << other, 1)
        if dice < 4:
            make_way_here(x, w, c, step, len(g.device))
        elif dice < 6:
            after = next_touch(g, n, x, t, place)
            change(x, c, AHEAD, x.order[after - 1], moved(t, d, len(g.device), BRING))
        return
    left = 0
    if x.keep[gap] != EVERYWHERE and below(c, 2) == 0:
        left = x.keep[gap] & ~(1 << d)
    _write(n, x, c, gap, left, 0, 1)
    if below(c, 3) == 0 and g.tensor[t].producer >= 0:
        _hold_reads(g, n, x, c, g.tensor[t].producer, place)
    after = next_touch(g, n, x, t, place)
    if below(c, 2) == 0 and last_chance(g, x, t, place, after) >= 0:
        move_between(g, x, c, t, d, place, after, BRING)


@inner
def _can_remake(g: Static, t: int) -> bool:
    i = g.tensor[t].producer
    return bool(i >= 0 and g.op[i].recomputable)


@inner
def _hold_reads(g: Static, n: Surroundings, x: Decisions, c: Chance, i: int, place: int) -> None:
    """Hold what op i reads, so that it can be repeated at once."""
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        gap = gap_at(g, n, x, g.read[k], place)
        if gap >= 0 and x.keep[gap] == 0:
            _write(n, x, c, gap, EVERYWHERE, 0, 1)


@inner
def _changed_gap(x: Decisions, c: Chance) -> int:
    """A random gap in which something is dropped; -1 if none was hit on."""
    for _ in range(100):
        gap = below(c, len(x.keep))
        if x.keep[gap] != EVERYWHERE or x.push[gap] != 0:
            return int(gap)
    return -1


@inner
def _restore(g: Static, n: Surroundings, x: Decisions, w: Work, c: Chance) -> None:
    """Hold what is recomputed or copied in the last decode, or hold it from an earlier return on."""
    gap = -1
    for _ in range(30):
        t, _, place = any_return(g, x, w, c)
        if t >= 0:
            gap = gap_at(g, n, x, t, place)
        if gap >= 0 and (x.keep[gap] != EVERYWHERE or x.push[gap] != 0):
            break
        gap = -1
    if gap < 0:
        gap = _changed_gap(x, c)
    if gap < 0:
        return
    if x.level[gap] > 1 and below(c, 2) == 0:
        change(x, c, LEVEL, gap, min(_MOST_LEVEL, x.level[gap] - 1))
    else:
        _write(n, x, c, gap, EVERYWHERE, 0, 1)


@inner
def _exchange(g: Static, n: Surroundings, x: Decisions, c: Chance) -> None:
    """Hold what is dropped and drop what it is made from, or what is made from it."""
    gap = _changed_gap(x, c)
    if gap < 0 or gap >= len(g.touch):
        return
    t = g.touch[gap]
    place = x.position[g.touch_op[gap]] + 1
    i = g.tensor[t].producer
    if below(c, 2) == 0 and n.touch_at[t + 1] > n.touch_at[t]:
        i = g.touch_op[n.touch[n.touch_at[t] + below(c, n.touch_at[t + 1] - n.touch_at[t])]]
    if i < 0:
        return
    width = g.op[i + 1].touch_at - g.op[i].touch_at
    other = g.touch[g.op[i].touch_at + below(c, width)]
    if other == t:
        return
    at = gap_at(g, n, x, other, max(place, x.position[i] + 1))
    if at < 0 or g.tensor[other].producer < 0:
        return
    keep, push, level = x.keep[gap], x.push[gap], x.level[gap]
    _write(n, x, c, gap, x.keep[at], x.push[at], x.level[at])
    _write(n, x, c, at, keep, push, level)


@inner
def _any_gap(g: Static, n: Surroundings, x: Decisions, c: Chance) -> None:
    """Any decision for any gap."""
    gap = below(c, len(x.keep))
    t = g.touch[gap] if gap < len(g.touch) else gap - len(g.touch)
    if len(g.device) == 1 and not _can_remake(g, t):
        return
    dice = below(c, 4)
    if dice == 0:
        _write(n, x, c, gap, EVERYWHERE, 0, 1)
    elif dice == 1:
        _write(n, x, c, gap, 0, 0, 1 + below(c, _MOST_LEVEL))
    else:
        d = below(c, len(g.device))
        push = (1 << d) if dice == 2 else 0
        _write(n, x, c, gap, 1 << d, push, 1)
