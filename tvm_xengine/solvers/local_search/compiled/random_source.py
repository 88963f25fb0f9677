"""Compiled: a random source, and a log with which changes of the decisions are undone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.indexed import Ints
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions
from tvm_xengine.solvers.local_search.compiled.view import Records

KEEP, PUSH, LEVEL, DEVICE, REDEVICE, ORDER, AHEAD = range(7)
"""Which decision a change is of."""
_MOST_FOLLOWERS = 12
"""Ops that are delayed together at most: two layers' worth. More are seldom accepted."""


class RandomSource(NamedTuple):
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


def random_source(seed: int, changes: int) -> RandomSource:
    """A fresh random state for `seed` and room to log `changes` changes."""
    state = np.array([(seed * 2 + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    log = np.zeros(changes, dtype=[("what", "i8"), ("index", "i8"), ("old", "i8")])
    followers = np.zeros(_MOST_FOLLOWERS, dtype=np.int64)
    return RandomSource(state, log, np.zeros(1, dtype=np.int64), followers)


@inner
def below(c: RandomSource, n: int) -> int:
    """A random integer in [0, n) (xorshift64*)."""
    v = c.state[0]
    v ^= v >> np.uint64(12)
    v ^= v << np.uint64(25)
    v ^= v >> np.uint64(27)
    c.state[0] = v
    return int(np.int64(((v * np.uint64(2685821657736338717)) >> np.uint64(33)) % np.uint64(n)))


@inner
def change(x: Decisions, c: RandomSource, what: int, index: int, value: int) -> None:
    """Change one decision and log its old value; does nothing when the log is full."""
    k = c.logged[0]
    if k == len(c.log):
        return
    old = _put(x, what, index, value)
    if what == ORDER:
        index = value
    if what == ORDER or old != value:
        c.log[k].what, c.log[k].index, c.log[k].old = what, index, old
        c.logged[0] = k + 1


@inner
def _put(x: Decisions, what: int, index: int, value: int) -> int:
    """Make one decision; returns what it was, for the order the place that the op had."""
    old = index
    if what == KEEP:
        old, x.keep[index] = x.keep[index], value
    elif what == PUSH:
        old, x.push[index] = x.push[index], value
    elif what == LEVEL:
        old, x.level[index] = x.level[index], value
    elif what == DEVICE:
        old, x.device[index] = x.device[index], value
    elif what == REDEVICE:
        old, x.redevice[index] = x.redevice[index], value
    elif what == AHEAD:
        old, x.ahead[index] = x.ahead[index], value
    else:
        _shift(x, index, value)
    return old


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
def undo(x: Decisions, c: RandomSource) -> None:
    """Undo every logged change."""
    while c.logged[0] > 0:
        c.logged[0] -= 1
        k = c.logged[0]
        _put(x, c.log[k].what, c.log[k].index, c.log[k].old)
