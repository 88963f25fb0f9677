"""The points of the search space, and some starting points."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from tvm_xengine.solvers.compiled import entry
from tvm_xengine.solvers.indexed import NONE, NOWHERE, IndexedProblem, Ints

EVERYWHERE = 255
"""Value of `Decisions.keep` under which a tensor stays wherever it is."""
NEVER = 99
"""Value of `Decisions.level` under which what is brought back for another op never stays."""
BRING, BRING_ALONE, DROP = range(3)
"""What `Decisions.ahead` does to a tensor: have it on a device, there and nowhere else, not there."""
WAYS = 3
"""Number of these ways."""


class Decisions(NamedTuple):
    """A point of the search space.

    Attributes
    ----------
    order, position
        Op at each place of the order of first computations, and its inverse.
    device, redevice
        Where each op runs first, and where again (`NONE`: where the result is needed).
    keep, push, level
        For each interval. When it begins the tensor is copied to the devices in the mask `push`
        and dropped from those not in the mask `keep`. What is brought back for the sake of
        another op is dropped again, until it was brought back `level` times.
        Interval k < touches begins after touch k; interval touches + t before tensor t's first touch.
    ahead
        For each op a tensor that is brought somewhere or dropped right after its first run, as
        `moved` says, or `NONE`. So a tensor can be made once more before what it is made from is
        overwritten, and can leave in the middle of an interval, where it was needed until then to make
        something else again, or return before the op that needs it.
    """

    order: Ints
    position: Ints
    device: Ints
    redevice: Ints
    keep: Ints
    push: Ints
    level: Ints
    ahead: Ints


def keep_all_decisions(indexed: IndexedProblem, device: Ints) -> Decisions:
    """Every op runs once, in the given order, on its `device`; all is kept."""
    n, intervals = indexed.op_count, len(indexed.touches.item) + indexed.tensor_count
    return Decisions(
        order=np.arange(n),
        position=np.arange(n),
        device=device.astype(np.int64),
        redevice=np.full(n, NONE),
        keep=np.full(intervals, EVERYWHERE),
        push=np.zeros(intervals, dtype=np.int64),
        level=np.ones(intervals, dtype=np.int64),
        ahead=np.full(n, NONE),
    )


def placed_decisions(indexed: IndexedProblem, device: Ints, wanted: Ints) -> Decisions:
    """Every op runs once, on its `device`, in the order `wanted` as far as data allow; all is kept."""
    x = keep_all_decisions(indexed, device)
    rank = np.empty(indexed.op_count, np.int64)
    rank[wanted] = np.arange(indexed.op_count)
    missing = np.array([len(before) for before in indexed.predecessors])
    ready = [(int(rank[i]), i) for i in np.flatnonzero(missing == 0).tolist()]
    heapify(ready)
    for place in range(indexed.op_count):
        i = heappop(ready)[1]
        x.order[place], x.position[i] = i, place
        for after in indexed.successors[i]:
            missing[after] -= 1
            if not missing[after]:
                heappush(ready, (int(rank[after]), after))
    return x


def drop_in_long_intervals(indexed: IndexedProblem, device: Ints, longest: int) -> Decisions:
    """As `keep_all_decisions`, but what can be made again is held for no more than `longest` ops."""
    x, touches = keep_all_decisions(indexed, device), indexed.touches
    next_touch = np.full(indexed.tensor_count, 2 * indexed.op_count)
    for i in reversed(range(indexed.op_count)):
        for k in range(touches.start[i], touches.start[i + 1]):
            t = touches.item[k]
            is_delivered = indexed.must_end_on[t] != NOWHERE
            if next_touch[t] - i > longest and not is_delivered:
                x.keep[k], x.level[k] = 0, NEVER
            next_touch[t] = i
    return x


def assign(to: Decisions, x: Decisions) -> None:
    """Make `to` equal to `x`."""
    for field, value in zip(to, x, strict=True):
        field[:] = value


def copied(x: Decisions) -> Decisions:
    """Decisions that can be changed without changing `x`."""
    return Decisions(*(field.copy() for field in x))


@entry
def moved(t: int, d: int, devices: int, how: int) -> int:
    """Value of `Decisions.ahead`: what happens to tensor t on device d, one of `BRING` and so on."""
    return WAYS * (t * devices + d) + how
