"""Compiled: random changes of where and in which order ops run first."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions
from tvm_xengine.solvers.local_search.compiled.random_source import (
    DEVICE,
    ORDER,
    REDEVICE,
    RandomSource,
    below,
    change,
)
from tvm_xengine.solvers.local_search.compiled.view import SearchView


@inner
def run_elsewhere(g: SearchView, n: Surroundings, x: Decisions, c: RandomSource) -> None:
    """Run an op, a stretch of ops, or ops that play the same part, on another device."""
    d = below(c, len(g.device))
    place = below(c, len(x.order))
    i = x.order[place]
    dice = below(c, 6)
    if dice == 0:
        change(x, c, REDEVICE, i, d if x.redevice[i] != d and g.run[i, d].value < np.inf else -1)
    elif dice == 1:
        kind = n.op_class[i]
        for k in range(n.op_members_at[kind], n.op_members_at[kind + 1]):
            if x.position[n.op_members[k]] >= 0 and g.run[n.op_members[k], d].value < np.inf:
                change(x, c, DEVICE, n.op_members[k], d)
    else:
        run_stretch(g, x, c, place, 1 if dice < 4 else 1 + below(c, 1 << (1 + below(c, 8))), d)


@inner
def run_stretch(
    g: SearchView, x: Decisions, c: RandomSource, place: int, length: int, d: int
) -> None:
    """Run the ops from a place of the order on device d, as far as they can run there."""
    for at in range(place, min(place + length, len(x.order))):
        if g.run[x.order[at], d].value < np.inf:
            change(x, c, DEVICE, x.order[at], d)


@inner
def move_earlier(n: Surroundings, x: Decisions, c: RandomSource, i: int) -> None:
    """Move op i to any earlier place behind what must come before it."""
    first = 0
    for k in range(n.before_at[i], n.before_at[i + 1]):
        first = max(first, x.position[n.before[k]] + 1)
    if first < x.position[i]:
        change(x, c, ORDER, x.position[i], first + below(c, x.position[i] - first))


@inner
def reorder(n: Surroundings, x: Decisions, c: RandomSource) -> None:
    """Run an op, or all that play the same part, earlier or later, where that is allowed."""
    i = x.order[below(c, len(x.order))]
    dice = below(c, 6)
    kind = n.op_class[i]
    if dice >= 4:
        _delay(n, x, c, i)
    elif dice < 2 and below(c, 3) == 0:
        for k in range(n.op_members_at[kind], n.op_members_at[kind + 1]):
            if x.position[n.op_members[k]] >= 0:
                _move(n, x, c, n.op_members[k], dice)
    else:
        _move(n, x, c, i, dice)


@inner
def _move(n: Surroundings, x: Decisions, c: RandomSource, i: int, where: int) -> None:
    """Move op i right behind what must come before it (0), before what must come after (1), or between."""
    first, last = 0, len(x.order) - 1
    for k in range(n.before_at[i], n.before_at[i + 1]):
        first = max(first, x.position[n.before[k]] + 1)
    for k in range(n.after_at[i], n.after_at[i + 1]):
        last = min(last, x.position[n.after[k]] - 1)
    if last < first:
        return  # the order was taken from a schedule in which another device reads the old state later
    to = first
    if where == 1:
        to = last
    elif where > 1:
        to = first + below(c, last - first + 1)
    if to != x.position[i]:
        change(x, c, ORDER, x.position[i], to)


@inner
def _delay(n: Surroundings, x: Decisions, c: RandomSource, i: int) -> None:
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
        change(x, c, ORDER, c.followers[last], place + length - f)
