"""Compiled: drops a tensor, or moves it away, where memory is short."""

from __future__ import annotations

from typing import NamedTuple

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.ahead import (
    last_chance,
    move_between,
    return_earlier,
)
from tvm_xengine.solvers.local_search.compiled.decisions import (
    BRING,
    BRING_ALONE,
    DROP,
    EVERYWHERE,
    NEVER,
    Decisions,
    moved,
)
from tvm_xengine.solvers.local_search.compiled.intervals import (
    begin_of,
    interval_at,
    next_touch,
    write,
)
from tvm_xengine.solvers.local_search.compiled.random_source import (
    AHEAD,
    LEVEL,
    RandomSource,
    below,
    change,
)
from tvm_xengine.solvers.local_search.compiled.scratch import HOT, STAYS, STEPS, Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView

MOST_LEVEL = 3
"""Returns within a use interval that are told apart; what returns more often is held or dropped."""
_DRAWS = 60
"""Stays that are looked at to find one to evict: as many as are live at once in most networks."""


class _Idle(NamedTuple):
    """A tensor that is on a device during a step which does not touch it, and its use interval."""

    tensor: int
    interval: int
    step: int
    device: int


@inner
def evict(g: SearchView, n: Surroundings, x: Decisions, w: Scratch, c: RandomSource) -> None:
    """Drop, or move away, a tensor that is live but idle during a hot step."""
    if w.counted[STEPS] == 0:
        return
    if w.counted[HOT] > 0:
        k = below(c, w.counted[HOT])
        step, d = w.hot[k].step, w.hot[k].device
    else:
        step, d = below(c, w.counted[STEPS]), below(c, len(g.device))
    t = _idle_tensor(g, w, c, step, d)
    if t == NONE:
        return
    place = w.step[step].place
    interval = interval_at(g, n, x, t, place)
    if interval < 0:
        return
    if not (x.keep[interval] >> d) & 1:  # it is back for the sake of another op
        level = x.level[interval] + 1
        change(x, c, LEVEL, interval, NEVER if level > MOST_LEVEL or below(c, 3) == 0 else level)
        return
    if place > 0 and x.ahead[x.order[place - 1]] < 0 and below(c, 40) == 0:
        change(x, c, AHEAD, x.order[place - 1], moved(t, d, len(g.device), DROP))
        return
    other = below(c, len(g.device))
    is_moved = below(c, 2) == 0 or not can_remake(g, t)
    if other != d and is_moved and g.transfer[d, other, t].hop >= 0:
        _move_away(g, n, x, w, c, _Idle(t, interval, step, d), other)
    else:
        _drop(g, n, x, w, c, _Idle(t, interval, step, d))


@inner
def _idle_tensor(g: SearchView, w: Scratch, c: RandomSource, step: int, d: int) -> int:
    """A large tensor that is on device d during a step which does not touch it; `NONE` without one."""
    best = NONE
    for _ in range(_DRAWS):
        k = below(c, w.counted[STAYS])
        stay = w.stay[k]
        can_leave = len(g.device) > 1 or can_remake(g, stay.tensor)
        began = stay.start < step or (step == 0 and g.tensor[stay.tensor].home == d)
        if stay.device == d and began and step < stay.end and can_leave:
            size = g.tensor[stay.tensor].size
            if size > 0 and (best < 0 or size > g.tensor[w.stay[best].tensor].size):
                known = best >= 0
                best = k
                if known or below(c, 2) == 0:
                    break
    return int(w.stay[best].tensor) if best >= 0 else NONE


@inner
def _move_away(
    g: SearchView,
    n: Surroundings,
    x: Decisions,
    w: Scratch,
    c: RandomSource,
    idle: _Idle,
    other: int,
) -> None:
    """Hold the tensor on the device `other` during its use interval, instead of where it is."""
    t, interval, devices = idle.tensor, idle.interval, len(g.device)
    place = w.step[idle.step].place
    dice = below(c, 16)
    if dice == 0:
        move = moved(t, other, devices, BRING_ALONE)
        move_between(g, x, c, t, begin_of(g, x, interval), place, move)
        return
    write(n, x, c, interval, 1 << other, 1 << other, 1)
    if dice < 4:
        return_earlier(x, w, c, idle.step, devices)
    elif dice < 6:
        after = next_touch(g, n, x, t, place)
        change(x, c, AHEAD, x.order[after - 1], moved(t, idle.device, devices, BRING))


@inner
def _drop(
    g: SearchView, n: Surroundings, x: Decisions, w: Scratch, c: RandomSource, idle: _Idle
) -> None:
    """Drop the tensor when its use interval begins, and sometimes ensure that it can be recomputed."""
    t, interval, d = idle.tensor, idle.interval, idle.device
    place = w.step[idle.step].place
    left = 0
    if x.keep[interval] != EVERYWHERE and below(c, 2) == 0:
        left = x.keep[interval] & ~(1 << d)
    write(n, x, c, interval, left, 0, 1)
    if below(c, 3) == 0 and g.tensor[t].producer >= 0:
        _hold_reads(g, n, x, c, g.tensor[t].producer, place)
    after = next_touch(g, n, x, t, place)
    if below(c, 2) == 0 and last_chance(g, x, t, place, after) >= 0:
        move_between(g, x, c, t, place, after, moved(t, d, len(g.device), BRING))


@inner
def can_remake(g: SearchView, t: int) -> bool:
    """Whether tensor t can be recomputed."""
    i = g.tensor[t].producer
    return bool(i >= 0 and g.op[i].recomputable)


@inner
def _hold_reads(
    g: SearchView, n: Surroundings, x: Decisions, c: RandomSource, i: int, place: int
) -> None:
    """Hold what op i reads, so that it can be repeated at once."""
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        interval = interval_at(g, n, x, g.read[k], place)
        if interval >= 0 and x.keep[interval] == 0:
            write(n, x, c, interval, EVERYWHERE, 0, 1)
