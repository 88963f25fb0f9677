"""Compiled: random changes of the decisions, each with what is needed to take it back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.search.arrays import Ints
from tvm_xengine.solvers.search.blocks import Surroundings
from tvm_xengine.solvers.search.decoder import (
    EVERYWHERE,
    HOT,
    NEVER,
    STAYS,
    STEPS,
    Decisions,
    Records,
    Static,
    Work,
    moved,
)

_KEEP, _PUSH, _LEVEL, _DEVICE, _REDEVICE, _ORDER, _AHEAD = range(7)
_MOST_LEVEL = 3
_MOST_FOLLOWERS = 12


class Chance(NamedTuple):
    """A random state, a log of what was changed since the last accepted decisions, scratch memory.

    Attributes
    ----------
    followers
        Places in the order of an op that is delayed, and of those that must follow it.
    """

    state: NDArray[np.uint64]
    log: Records
    logged: Ints
    followers: Ints


def chance(seed: int, changes: int) -> Chance:
    """A fresh random state for `seed` and room to log `changes` changes."""
    state = np.array([(seed * 2 + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    log = np.zeros(changes, dtype=[("what", "i8"), ("index", "i8"), ("old", "i8")])
    followers = np.zeros(_MOST_FOLLOWERS, dtype=np.int64)
    return Chance(state, log, np.zeros(1, dtype=np.int64), followers)


@inner
def below(c: Chance, n: int) -> int:
    """A random integer in [0, n) (xorshift64*)."""
    v = c.state[0]
    v ^= v >> np.uint64(12)
    v ^= v << np.uint64(25)
    v ^= v >> np.uint64(27)
    c.state[0] = v
    return int(np.int64(((v * np.uint64(2685821657736338717)) >> np.uint64(33)) % np.uint64(n)))


@inner
def _set(x: Decisions, c: Chance, what: int, index: int, value: int) -> None:
    """Change one decision and log its old value; does nothing when the log is full."""
    k = c.logged[0]
    if k == len(c.log):
        return
    if what == _KEEP:
        old, x.keep[index] = x.keep[index], value
    elif what == _PUSH:
        old, x.push[index] = x.push[index], value
    elif what == _LEVEL:
        old, x.level[index] = x.level[index], value
    elif what == _DEVICE:
        old, x.device[index] = x.device[index], value
    elif what == _REDEVICE:
        old, x.redevice[index] = x.redevice[index], value
    elif what == _AHEAD:
        old, x.ahead[index] = x.ahead[index], value
    else:
        old = index
        _shift(x, index, value)
        index = value
    if what == _ORDER or old != value:
        c.log[k].what, c.log[k].index, c.log[k].old = what, index, old
        c.logged[0] = k + 1


@inner
def _shift(x: Decisions, src: int, dst: int) -> None:
    """Move the op at place `src` of the order to place `dst`."""
    i = x.order[src]
    step = 1 if dst > src else -1
    for place in range(src, dst, step):
        x.order[place] = x.order[place + step]
        x.position[x.order[place]] = place
    x.order[dst] = i
    x.position[i] = dst


@inner
def take_back(x: Decisions, c: Chance) -> None:
    """Undo every logged change."""
    while c.logged[0] > 0:
        c.logged[0] -= 1
        k = c.logged[0]
        what, index, old = c.log[k].what, c.log[k].index, c.log[k].old
        if what == _KEEP:
            x.keep[index] = old
        elif what == _PUSH:
            x.push[index] = old
        elif what == _LEVEL:
            x.level[index] = old
        elif what == _DEVICE:
            x.device[index] = old
        elif what == _REDEVICE:
            x.redevice[index] = old
        elif what == _AHEAD:
            x.ahead[index] = old
        else:
            _shift(x, index, old)


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
        _place(g, n, x, c)
    elif dice < 20:
        _reorder(n, x, c)
    elif dice < 22:
        _ahead(g, n, x, w, c)
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
        _set(x, c, _KEEP, gap, keep)
        _set(x, c, _PUSH, gap, push)
        _set(x, c, _LEVEL, gap, level)
    for k in range(begin, end):
        _set(x, c, _KEEP, n.twin[k], keep)
        _set(x, c, _PUSH, n.twin[k], push)
        _set(x, c, _LEVEL, n.twin[k], level)


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
    gap = gap_at(g, n, x, t, w.step[step].place)
    if gap < 0:
        return
    if not (x.keep[gap] >> d) & 1:  # it is back for the sake of another op
        level = x.level[gap] + 1
        _set(x, c, _LEVEL, gap, NEVER if level > _MOST_LEVEL or below(c, 3) == 0 else level)
        return
    other = below(c, len(g.device))
    is_moved = below(c, 2) == 0 or not _can_remake(g, t)
    if other != d and is_moved and g.link[d, other].hop >= 0:
        place = w.step[step].place
        dice = below(c, 16)
        if dice == 0:
            since = _last_touch(g, n, x, t, place) + 1
            _move_between(g, x, c, t, other, since, place, True)
            return
        _write(n, x, c, gap, 1 << other, 1 << other, 1)
        if dice < 4:
            _make_way_here(x, w, c, step, len(g.device))
        elif dice < 6:
            after = _next_touch(g, n, x, t, place)
            _set(x, c, _AHEAD, x.order[after - 1], moved(t, d, len(g.device), False))
        return
    left = 0
    if x.keep[gap] != EVERYWHERE and below(c, 2) == 0:
        left = x.keep[gap] & ~(1 << d)
    _write(n, x, c, gap, left, 0, 1)
    place = w.step[step].place
    if below(c, 3) == 0 and g.tensor[t].producer >= 0:
        _hold_reads(g, n, x, c, g.tensor[t].producer, place)
    after = _next_touch(g, n, x, t, place)
    if below(c, 2) == 0 and _last_chance(g, x, t, place, after) >= 0:
        _move_between(g, x, c, t, d, place, after, False)


@inner
def _ahead(g: Static, n: Surroundings, x: Decisions, w: Work, c: Chance) -> None:
    """Bring back earlier what the last decode brings back, or only when it is needed again."""
    if below(c, 2) == 0:
        start = below(c, len(x.order))
        for k in range(len(x.order)):
            i = x.order[(start + k) % len(x.order)]
            if x.ahead[i] >= 0:
                _set(x, c, _AHEAD, i, -1)
                return
    for _ in range(30):
        step = w.step[below(c, max(1, w.counted[STEPS]))]
        t, d = step.item, step.dst
        if step.kind == 0:
            if x.position[step.item] == step.place:
                continue
            k = below(c, g.op[step.item + 1].made_at - g.op[step.item].made_at)
            t, d = g.made[g.op[step.item].made_at + k], step.src
        since = _last_touch(g, n, x, t, step.place) + 1
        _move_between(g, x, c, t, d, since, step.place, False)
        return


@inner
def _move_between(
    g: Static, x: Decisions, c: Chance, t: int, d: int, since: int, place: int, is_alone: bool
) -> None:
    """Have t on d after one of the ops from `since` on and before the op at `place`."""
    if since < place:
        to = _last_chance(g, x, t, since, place)
        if to < 0 or below(c, 2) == 0:
            to = since + below(c, place - since)
        _set(x, c, _AHEAD, x.order[to], moved(t, d, len(g.device), is_alone))


@inner
def _last_chance(g: Static, x: Decisions, t: int, since: int, place: int) -> int:
    """Place before something that t is made from is overwritten, from `since` on; -1 if it is not."""
    i = g.tensor[t].producer
    to = place
    if i >= 0:
        for k in range(g.op[i].read_at, g.op[i + 1].read_at):
            update = g.tensor[g.read[k]].updater
            if update >= 0 and since < x.position[update] < to:
                to = x.position[update]
    return to - 1 if to < place else -1


@inner
def _next_touch(g: Static, n: Surroundings, x: Decisions, t: int, place: int) -> int:
    """Place of the first op after `place` that touches t; one past the last if there is none."""
    after = len(x.order)
    for k in range(n.touch_at[t], n.touch_at[t + 1]):
        at = x.position[g.touch_op[n.touch[k]]]
        if place < at < after:
            after = at
    return after


@inner
def _last_touch(g: Static, n: Surroundings, x: Decisions, t: int, place: int) -> int:
    """Place of the last op before `place` that touches t; -1 if there is none."""
    before = -1
    for k in range(n.touch_at[t], n.touch_at[t + 1]):
        at = x.position[g.touch_op[n.touch[k]]]
        if before < at < place:
            before = at
    return before


@inner
def _make_way_here(x: Decisions, w: Work, c: Chance, step: int, devices: int) -> None:
    """What returns to the device of a step for its op returns one op earlier.

    So it leaves the device where it waited before something else goes there.
    """
    place, d = w.step[step].place, w.step[step].src
    s = step - 1
    while place > 0 and s >= 0 and w.step[s].place == place:
        if w.step[s].kind == 1 and w.step[s].dst == d:
            _set(x, c, _AHEAD, x.order[place - 1], moved(w.step[s].item, d, devices, False))
            return
        s -= 1


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
        step = w.step[below(c, max(1, w.counted[STEPS]))]
        if step.kind == 1:
            gap = gap_at(g, n, x, step.item, step.place)
        elif x.position[step.item] != step.place:
            k = below(c, g.op[step.item + 1].made_at - g.op[step.item].made_at)
            gap = gap_at(g, n, x, g.made[g.op[step.item].made_at + k], step.place)
        if gap >= 0 and (x.keep[gap] != EVERYWHERE or x.push[gap] != 0):
            break
        gap = -1
    if gap < 0:
        gap = _changed_gap(x, c)
    if gap < 0:
        return
    if x.level[gap] > 1 and below(c, 2) == 0:
        _set(x, c, _LEVEL, gap, min(_MOST_LEVEL, x.level[gap] - 1))
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


@inner
def _place(g: Static, n: Surroundings, x: Decisions, c: Chance) -> None:
    """Run an op, a stretch of ops, or ops that play the same part, on another device."""
    d = below(c, len(g.device))
    place = below(c, len(x.order))
    i = x.order[place]
    dice = below(c, 6)
    if dice == 0:
        _set(x, c, _REDEVICE, i, d if x.redevice[i] != d and g.run[i, d].price < np.inf else -1)
    elif dice == 1:
        kind = n.op_class[i]
        for k in range(n.kin_at[kind], n.kin_at[kind + 1]):
            if x.position[n.kin[k]] >= 0 and g.run[n.kin[k], d].price < np.inf:
                _set(x, c, _DEVICE, n.kin[k], d)
    else:
        length = 1 if dice < 4 else 1 + below(c, 1 << (1 + below(c, 8)))
        for at in range(place, min(place + length, len(x.order))):
            if g.run[x.order[at], d].price < np.inf:
                _set(x, c, _DEVICE, x.order[at], d)


@inner
def _reorder(n: Surroundings, x: Decisions, c: Chance) -> None:
    """Run an op, or all that play the same part, earlier or later, where that is allowed."""
    i = x.order[below(c, len(x.order))]
    dice = below(c, 6)
    kind = n.op_class[i]
    if dice >= 4:
        _delay(n, x, c, i)
    elif dice < 2 and below(c, 3) == 0:
        for k in range(n.kin_at[kind], n.kin_at[kind + 1]):
            if x.position[n.kin[k]] >= 0:
                _move(n, x, c, n.kin[k], dice)
    else:
        _move(n, x, c, i, dice)


@inner
def _move(n: Surroundings, x: Decisions, c: Chance, i: int, where: int) -> None:
    """Move op i right behind what must come before it (0), before what must come after (1), or between."""
    first, last = 0, len(x.order) - 1
    for k in range(n.before_at[i], n.before_at[i + 1]):
        first = max(first, x.position[n.before[k]] + 1)
    for k in range(n.after_at[i], n.after_at[i + 1]):
        last = min(last, x.position[n.after[k]] - 1)
    to = first
    if where == 1:
        to = last
    elif where > 1:
        to = first + below(c, last - first + 1)
    if to != x.position[i]:
        _set(x, c, _ORDER, x.position[i], to)


@inner
def _delay(n: Surroundings, x: Decisions, c: Chance, i: int) -> None:
    """Move op i some places back, and with it the ops on the way that must come after it."""
    place = x.position[i]
    room = len(x.order) - 1 - place
    length = min(room, 1 + below(c, 1 << (1 + below(c, 12))))
    count = 1
    c.followers[0] = place
    for at in range(place + 1, place + length + 1):
        j = x.order[at]
        follows = False
        for k in range(n.before_at[j], n.before_at[j + 1]):
            earlier = x.position[n.before[k]]
            for f in range(count):
                follows = follows or c.followers[f] == earlier
        if follows:
            if count == len(c.followers):
                length = at - 1 - place  # no further: too many would have to come along
                break
            c.followers[count] = at
            count += 1
    if length + 1 == count:
        return
    for f in range(count):
        last = count - 1 - f
        _set(x, c, _ORDER, c.followers[last], place + length - f)
