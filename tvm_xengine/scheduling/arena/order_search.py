"""Compiled: a search for an order of pieces in whose layout streams wait little for each other's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.arena.packing import Bits, Ints, next_random
from tvm_xengine.scheduling.compiled import compiled
from tvm_xengine.scheduling.ragged import ragged

Floats = NDArray[np.float64]

_HEAT = 2e-3
"""Share of the makespan that a change may cost at first, give or take; it falls to nothing."""
_MOST_BLAMED = 4096
"""Waits of a layout from which changes are drawn: more than most steps have runs."""


class AsItRuns(NamedTuple):
    """The steps of a schedule that take time; lists are packed as in `Ragged`.

    Attributes
    ----------
    read, write
        Instances that each step reads and writes.
    take, touch
        Pieces of which each step takes the bytes, and which it touches.
    instances
        Number of instances.
    """

    stream: Ints
    duration_us: Floats
    read_at: Ints
    read: Ints
    write_at: Ints
    write: Ints
    take_at: Ints
    take: Ints
    touch_at: Ints
    touch: Ints
    instances: int
    handover_us: float

    @classmethod
    def of(
        cls,
        rows: Sequence[tuple[int, float]],
        lists: Sequence[Sequence[Sequence[int]]],
        instances: int,
        handover_us: float,
    ) -> AsItRuns:
        """Steps from (stream, duration) rows and the four lists."""
        stream, duration_us = zip(*rows, strict=True)
        reads, writes, takes, touches = map(ragged, lists)
        return cls(
            np.array(stream, np.int64),
            np.array(duration_us, np.float64),
            *(*reads, *writes, *takes, *touches),
            instances,
            float(handover_us),
        )


class Shelves(NamedTuple):
    """The pieces of all devices, those of a device one after the other.

    Attributes
    ----------
    at
        Device d has the pieces ``at[d]`` up to ``at[d + 1]``.
    movable_at
        Places of an order before these are kept: what is there throughout lies at the bottom.
    rivals, rivals_by_time
        Bit r of row k says whether both are in use during the same step, or else at the same time, too.
    budget
        Bytes of each device.
    """

    size: Ints
    device: Ints
    at: Ints
    movable_at: Ints
    rivals: Bits
    rivals_by_time: Bits
    budget: Ints


class Order(NamedTuple):
    """In which order pieces are placed, and which of them avoid what is in use at the same time."""

    piece: Ints
    avoids: Ints


class Scratch(NamedTuple):
    """Memory of the search.

    Attributes
    ----------
    layout, placed
        Address of each piece, and pieces of a device by address.
    piece, addresses
        Order and addresses before a change, to undo it.
    best
        Addresses of the best layout.
    found
        Its makespan, and by how many bytes it exceeds a budget at most.
    written_us, written_by, used_us, touched_us, stream_us
        Of instances, pieces and streams.
    blamed
        Pieces that waited in the last layout, and those that they waited for.
    """

    layout: Ints
    placed: Ints
    best: Ints
    piece: Ints
    addresses: Ints
    written_us: Floats
    written_by: Ints
    used_us: Floats
    touched_us: Floats
    stream_us: Floats
    blamed: Ints
    found: Floats

    @classmethod
    def of(cls, steps: AsItRuns, shelves: Shelves) -> Scratch:
        """Memory for a search."""
        pieces, instances = len(shelves.size), steps.instances
        return cls(
            layout=np.zeros(pieces, np.int64),
            placed=np.zeros(pieces, np.int64),
            best=np.zeros(pieces, np.int64),
            piece=np.zeros(pieces, np.int64),
            addresses=np.zeros(pieces, np.int64),
            written_us=np.zeros(instances),
            written_by=np.zeros(instances, np.int64),
            used_us=np.zeros(instances),
            touched_us=np.zeros(pieces),
            stream_us=np.zeros(int(steps.stream.max()) + 1),
            blamed=np.zeros(2 * _MOST_BLAMED, np.int64),
            found=np.zeros(2),
        )


@compiled
def improve_order(
    s: AsItRuns,
    p: Shelves,
    order: Order,
    w: Scratch,
    goal_us: float,
    evaluations: int,
    state: np.uint64,
) -> None:  # pragma: no cover - compiled
    """Leave the best layout found, its makespan and the bytes beyond a budget in `w`; `order` is changed.

    Annealed: a change is accepted if it does not exceed the budgets by more, and the makespan grows by no
    more than a random amount that shrinks. Ends where the makespan is `goal_us`.
    """
    for d in range(len(p.budget)):
        _place(p, order, d, w)
    beyond = _beyond(p, w.layout)
    end_us, blamed = _end_us(s, p, w)
    first_us = best_us = end_us
    best_beyond = beyond
    w.best[:] = w.layout
    for evaluation in range(evaluations):
        if beyond == 0 and end_us <= goal_us:
            break
        state = next_random(state)
        k, at = _chosen(p, order, w, blamed, state)
        d = p.device[k]
        state = next_random(state)
        first = p.movable_at[d]
        goes_to = first + int(state >> np.uint64(33)) % (p.at[d + 1] - first)
        if goes_to > at and int(state >> np.uint64(20)) % 4 != 0:
            goes_to = first + int(state >> np.uint64(33)) % (at + 1 - first)
        state = next_random(state)
        dice = int(state >> np.uint64(33)) % 8
        if dice == 0:
            goes_to = at
        w.piece[:] = order.piece
        w.addresses[:] = w.layout
        if dice < 3:
            order.avoids[k] = 1 - order.avoids[k]
        _move_piece(order.piece, at, goes_to)
        _place(p, order, d, w)
        new_beyond = _beyond(p, w.layout)
        new_us, new_blamed = end_us, blamed
        if new_beyond <= beyond:
            new_us, new_blamed = _end_us(s, p, w)
        state = next_random(state)
        draw = (float(int(state >> np.uint64(33))) + 1.0) / 2.0**31
        allowed_us = -np.log(draw) * _HEAT * first_us * (1.0 - evaluation / evaluations)
        if new_beyond < beyond or (new_beyond == beyond and new_us <= end_us + allowed_us):
            beyond, end_us, blamed = new_beyond, new_us, new_blamed
            if beyond < best_beyond or (beyond == best_beyond and end_us < best_us):
                best_beyond, best_us = beyond, end_us
                w.best[:] = w.layout
        else:
            order.piece[:] = w.piece
            w.layout[:] = w.addresses
            if dice < 3:
                order.avoids[k] = 1 - order.avoids[k]
    # An interrupt that comes while results are turned into Python's would be another error.
    w.found[0], w.found[1] = best_us, best_beyond


@compiled
def _chosen(
    p: Shelves, order: Order, w: Scratch, blamed: int, state: np.uint64
) -> tuple[int, int]:  # pragma: no cover - compiled
    """A piece and its place in the order: mostly of a wait, else any."""
    number = int(state >> np.uint64(33))
    k = -1
    if blamed > 0 and int(state >> np.uint64(20)) % 4 != 0:
        k = w.blamed[number % blamed]
    for shift in range(len(order.piece)):
        at = (number + shift) % len(order.piece)
        is_movable = at >= p.movable_at[p.device[order.piece[at]]]
        if is_movable and (k < 0 or order.piece[at] == k):
            return order.piece[at], at
    return order.piece[len(order.piece) - 1], len(order.piece) - 1


@compiled
def _move_piece(piece: Ints, at: int, goes_to: int) -> None:  # pragma: no cover - compiled
    moved = piece[at]
    step = 1 if goes_to > at else -1
    while at != goes_to:
        piece[at] = piece[at + step]
        at += step
    piece[goes_to] = moved


@compiled
def _place(p: Shelves, order: Order, d: int, w: Scratch) -> None:  # pragma: no cover - compiled
    """Place the pieces of a device, each at the lowest address that is free."""
    number = 0
    for place in range(p.at[d], p.at[d + 1]):
        k = order.piece[place]
        floor = 0
        if p.size[k] > 0:
            floor = p.budget[d]
            if order.avoids[k]:
                floor = _lowest(p, p.rivals_by_time, k, number, w)
            if floor + p.size[k] > p.budget[d]:
                floor = _lowest(p, p.rivals, k, number, w)
            at = number
            while at > 0 and w.layout[w.placed[at - 1]] > floor:
                w.placed[at] = w.placed[at - 1]
                at -= 1
            w.placed[at] = k
            number += 1
        w.layout[k] = floor


@compiled
def _lowest(
    p: Shelves, rivals: Bits, k: int, number: int, w: Scratch
) -> int:  # pragma: no cover - compiled
    """The lowest address for piece k beside its rivals among the first `number` that are placed."""
    floor = 0
    for q in range(number):
        r = w.placed[q]
        if w.layout[r] + p.size[r] <= floor:
            continue
        if rivals[k, r >> 6] >> np.uint64(r & 63) & np.uint64(1):
            if w.layout[r] - floor >= p.size[k]:
                break
            floor = w.layout[r] + p.size[r]
    return int(floor)


@compiled
def _beyond(p: Shelves, layout: Ints) -> int:  # pragma: no cover - compiled
    """Bytes by which the layout exceeds a budget at most."""
    beyond = 0
    for k in range(len(layout)):
        beyond = max(beyond, layout[k] + p.size[k] - p.budget[p.device[k]])
    return int(beyond)


@compiled
def _end_us(
    s: AsItRuns, p: Shelves, w: Scratch
) -> tuple[float, int]:  # pragma: no cover - compiled
    """The makespan by the validator's rule for known addresses, and how many pieces waits are about."""
    w.written_us[:] = 0.0
    w.written_by[:] = -1
    w.used_us[:] = 0.0
    w.touched_us[:] = 0.0
    w.stream_us[:] = 0.0
    last, blamed = 0.0, 0
    for at in range(len(s.stream)):
        stream = s.stream[at]
        start = w.stream_us[stream]
        for q in range(s.read_at[at], s.read_at[at + 1]):
            i = s.read[q]
            is_handed_over = w.written_by[i] >= 0 and w.written_by[i] != stream
            start = max(start, w.written_us[i] + (s.handover_us if is_handed_over else 0.0))
        for q in range(s.write_at[at], s.write_at[at + 1]):
            start = max(start, w.used_us[s.write[q]])
        for q in range(s.take_at[at], s.take_at[at + 1]):
            k = s.take[q]
            low, high, waits_for = w.layout[k], w.layout[k] + p.size[k], -1
            for r in range(p.at[p.device[k]], p.at[p.device[k] + 1]):
                if w.touched_us[r] > start and w.layout[r] < high and w.layout[r] + p.size[r] > low:
                    start, waits_for = w.touched_us[r], r
            if waits_for >= 0 and blamed < _MOST_BLAMED:
                w.blamed[2 * blamed], w.blamed[2 * blamed + 1] = k, waits_for
                blamed += 1
        end = start + s.duration_us[at]
        w.stream_us[stream] = end
        for q in range(s.read_at[at], s.read_at[at + 1]):
            w.used_us[s.read[q]] = max(w.used_us[s.read[q]], end)
        for q in range(s.write_at[at], s.write_at[at + 1]):
            i = s.write[q]
            w.written_us[i], w.written_by[i] = end, stream
            w.used_us[i] = max(w.used_us[i], end)
        for q in range(s.touch_at[at], s.touch_at[at + 1]):
            w.touched_us[s.touch[q]] = max(w.touched_us[s.touch[q]], end)
        last = max(last, end)
    return last, 2 * blamed


def compile_order_search() -> None:
    """Use each compiled function on two pieces that two steps take one after the other."""
    steps = AsItRuns.of(
        [(0, 1.0), (1, 1.0)], ([[], [0]], [[0], [1]], [[0], [1]], [[0], [0, 1]]), 2, 0.0
    )
    number = np.arange(2)
    shelves = Shelves(
        size=number + 1,
        device=number * 0,
        at=number * 2,
        movable_at=number[:1],
        rivals=np.zeros((2, 1), np.uint64),
        rivals_by_time=np.ones((2, 1), np.uint64),
        budget=number[:1] + 4,
    )
    order = Order(number.copy(), number.copy())
    no_goal_us = -1.0  # which no layout reaches, so that orders are tried
    improve_order(steps, shelves, order, Scratch.of(steps, shelves), no_goal_us, 2, np.uint64(1))
