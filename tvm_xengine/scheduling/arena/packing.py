"""Dynamic storage allocation: addresses for items with lifetimes, by search over orders.

Placing items one by one at the lowest free address ("first fit") gives an optimal layout for
some order; the search looks for such an order. Moving first what sticks out on top is the
idea of TelaMalloc (Maas et al., ASPLOS 2023) without its constraint solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.compiled import as_written, compiled

Ints = NDArray[np.int64]
Bits = NDArray[np.uint64]
_P = ParamSpec("_P")
_R = TypeVar("_R")

_NO_LIMIT = np.iinfo(np.int64).max
"""Larger than any address."""
_ROUND_PER_ITEM = 1
"""Evaluations in a round for each item, before another order is improved: on four schedules of gpt_nano, 281
items each, 25 rounds left half as many bytes above the peak as one round of as many evaluations in all."""
FEW_ITEMS = 64
"""So many are laid out without compiled code, which takes 0.4 s to read; their layouts take milliseconds."""
_ROUND_BITS = 20
"""Room for the number of a round in a seed: with less than two items there are no rounds."""


class Items(NamedTuple):
    """The N items of a layout, each live during one or more intervals of steps.

    Attributes
    ----------
    size
        Bytes of each item, multiples of the alignment; shape (N,).
    first
        Item k has the intervals ``first[k]`` up to ``first[k + 1]``; shape (N + 1,).
    start, end
        First and last step of each interval, the last one included.
    below, line
        The first so many items, which all live at the first step, lie at the bottom, and nothing lies
        across the line above them. While one is not live, its bytes may be used.
    """

    size: Ints
    first: Ints
    start: Ints
    end: Ints
    below: int = 0
    line: int = 0

    @classmethod
    def of(cls, rows: Sequence[tuple[int, Sequence[tuple[int, int]]]], *, below: int = 0) -> Items:
        """Items from (size, intervals) rows, of which the first `below` lie at the bottom."""
        intervals = [interval for _, own in rows for interval in own]
        bounds = np.asarray(intervals, dtype=np.int64).reshape(len(intervals), 2)
        return cls(
            size=np.asarray([size for size, _ in rows], dtype=np.int64),
            first=np.cumsum([0, *(len(own) for _, own in rows)], dtype=np.int64),
            start=np.ascontiguousarray(bounds[:, 0]),
            end=np.ascontiguousarray(bounds[:, 1]),
            below=below,
            line=sum(size for size, _ in rows[:below]),
        )

    @property
    def duration(self) -> Ints:
        """Number of steps for which each item is live; shape (N,)."""
        owner = np.repeat(np.arange(len(self.size)), np.diff(self.first))
        return np.bincount(
            owner, weights=self.end - self.start + 1, minlength=len(self.size)
        ).astype(np.int64)

    def peak_bytes(self) -> int:
        """Largest sum of sizes live at one step: no layout needs less."""
        if not len(self.size):
            return 0
        sizes = np.repeat(self.size, np.diff(self.first))
        change = np.zeros(int(self.end.max()) + 2, dtype=np.int64)
        np.add.at(change, self.start, sizes)
        np.add.at(change, self.end + 1, -sizes)
        return int(np.cumsum(change).max())


def pack(items: Items, *, evaluations: int, seed: int = 0) -> Ints:
    """Addresses of shape (N,) such that no two items that live at the same step overlap.

    Tries a few sensible orders, then improves each of them in turn, until the layout ends at the peak
    of live bytes (a lower bound) or `evaluations` layouts were tried. Equal arguments give equal
    addresses.
    """
    goal = items.peak_bytes()
    rivals = _run(live_together, items)(items)
    layouts = [(_layout(items, rivals, order)[1], order) for order in sensible_orders(items)]
    layouts.sort(key=lambda one: one[0])
    best_top, best_order = layouts[0]
    if best_top <= goal or len(best_order) <= items.below + 1:
        return _layout(items, rivals, best_order)[0]
    rounds = max(1, evaluations // (_ROUND_PER_ITEM * len(best_order)))
    for number in range(rounds):
        _, start = layouts[number % len(layouts)]
        order = _improve_order(
            *(items, rivals, start, goal, evaluations // rounds), (seed << _ROUND_BITS) + number
        )
        _, top = _layout(items, rivals, order)
        if top < best_top:
            best_top, best_order = top, order
        if top <= goal:
            break
    return _layout(items, rivals, best_order)[0]


def compile_packing() -> None:
    """Use each compiled function on three items."""
    items = Items.of([(3, [(0, 1)]), (2, [(1, 2)]), (3, [(2, 2), (0, 0)])])
    rivals = live_together(items)
    order = sensible_orders(items)[0]
    no_goal = 0  # which no layout reaches, so that orders are tried
    _improve_order(items, rivals, order, no_goal, len(order), 0)
    _first_fit(items, rivals, order, 0, order.copy(), order.copy(), _NO_LIMIT)


def _run(function: Callable[_P, _R], items: Items) -> Callable[_P, _R]:
    """A compiled function that calls no other one, as written where there are few items."""
    return as_written(function) if len(items.size) <= FEW_ITEMS else function


def sensible_orders(items: Items) -> list[Ints]:
    """Orders that lead to small layouts often: what is long or large first, or what comes first."""
    duration = items.duration
    names = np.arange(len(items.size))
    keys = (-duration, -items.size, -items.size * duration, items.start[items.first[:-1]])
    # What lives throughout goes to the bottom, whatever the order of the rest.
    throughout = duration < duration.max(initial=0)
    is_above = names >= items.below
    return [np.lexsort((names, -items.size, key, throughout, is_above)) for key in keys]


def _layout(items: Items, rivals: Bits, order: Ints) -> tuple[Ints, int]:
    layout = np.empty(len(items.size), dtype=np.int64)
    placed = np.empty(len(items.size), dtype=np.int64)
    fit = _run(_first_fit, items)
    top = fit(items, rivals, order, 0, layout, placed, _NO_LIMIT)
    return layout, int(top)


@compiled
def _first_fit(
    items: Items,
    rivals: Bits,
    order: Ints,
    since: int,
    layout: Ints,
    placed: Ints,
    limit: int,
) -> int:  # pragma: no cover - compiled
    """Fill `layout` in the given order; the end of the highest item, or one above `limit`.

    `placed` has the items before the place `since` of the order, sorted by address. Items without
    bytes are not in it. Placing stops at the first item that ends above `limit`.
    """
    size = items.size
    number = 0
    top = 0
    for at in range(since):
        k = order[at]
        if size[k] > 0:
            number += 1
            top = max(top, layout[k] + size[k])
    for place in range(since, len(order)):
        k = order[place]
        floor = 0
        if size[k] > 0:
            if items.line < size[k]:
                floor = items.line
            for q in range(number):
                rival = placed[q]
                if layout[rival] + size[rival] <= floor:
                    continue
                if rivals[k, rival >> 6] >> np.uint64(rival & 63) & np.uint64(1):
                    if layout[rival] - floor >= size[k]:
                        break
                    floor = layout[rival] + size[rival]
                    if floor < items.line < floor + size[k]:
                        floor = items.line
            at = number
            while at > 0 and layout[placed[at - 1]] > floor:
                placed[at] = placed[at - 1]
                at -= 1
            placed[at] = k
            number += 1
            top = max(top, floor + size[k])
            if top > limit:
                break
        layout[k] = floor
    return top


@compiled
def live_together(items: Items) -> Bits:  # pragma: no cover - compiled
    """Bit ``r`` of row ``k`` says whether items k and r live at the same step; 64 bits a word."""
    count = len(items.size)
    rivals = np.zeros((count, (count + 63) // 64), dtype=np.uint64)
    for k in range(count):
        for r in range(k):
            for i in range(items.first[k], items.first[k + 1]):
                for j in range(items.first[r], items.first[r + 1]):
                    if items.start[j] <= items.end[i] and items.end[j] >= items.start[i]:
                        rivals[k, r >> 6] |= np.uint64(1) << np.uint64(r & 63)
                        rivals[r, k >> 6] |= np.uint64(1) << np.uint64(k & 63)
    return rivals


@compiled
def _improve_order(
    items: Items, rivals: Bits, order: Ints, goal: int, evaluations: int, seed: int
) -> Ints:  # pragma: no cover - compiled
    """The best order found by moving items, mostly those that stick out, to other places."""
    state = np.uint64(seed * 2 + 88172645463325253)
    below, count = items.below, len(order) - items.below
    layout, other = np.empty_like(items.size), np.empty_like(items.size)
    placed, others = np.empty_like(items.size), np.empty_like(items.size)
    place = np.empty_like(items.size)  # of each item in the current order
    current, candidate, best = order.copy(), order.copy(), order.copy()
    current_top = _first_fit(items, rivals, current, 0, layout, placed, _NO_LIMIT)
    best_top = current_top
    place[current] = np.arange(len(order))
    for evaluation in range(evaluations):
        state = next_random(state)
        chosen = below + int(state >> np.uint64(33)) % count
        if int(state >> np.uint64(20)) % 4 != 0:
            chosen = _at_the_top(items, current, layout, chosen, current_top)
        state = next_random(state)
        goes_to = below + int(state >> np.uint64(33)) % count
        if goes_to > chosen and int(state >> np.uint64(20)) % 8 != 0:
            goes_to = below + int(state >> np.uint64(33)) % (chosen + 1 - below)
        _move(current, candidate, chosen, goes_to)
        # What lies before the first place that changes stays where it is.
        since = min(chosen, goes_to)
        _copy_before(items, since, current, place, (layout, placed), (other, others))
        # Threshold accepting: a little worse is fine early on.
        slack = (current_top - goal) * (evaluations - evaluation) // (8 * evaluations)
        limit = current_top + slack
        top = _first_fit(items, rivals, candidate, since, other, others, limit)
        if top <= limit:
            current[:] = candidate
            place[current] = np.arange(len(order))
            layout, other = other, layout
            placed, others = others, placed
            current_top = top
            if top < best_top:
                best[:] = candidate
                best_top = top
                if best_top <= goal:
                    break
    return best


@compiled
def _copy_before(
    items: Items,
    since: int,
    order: Ints,
    place: Ints,
    source: tuple[Ints, Ints],
    target: tuple[Ints, Ints],
) -> None:  # pragma: no cover - compiled
    """Copy the addresses, and the items by address, of what stands before a place of the order."""
    number = 0
    for at in range(since):
        k = order[at]
        target[0][k] = source[0][k]
        if items.size[k] > 0:
            number += 1
    q = 0
    for k in source[1]:
        if q == number:
            break
        if place[k] < since:
            target[1][q] = k
            q += 1


@compiled
def _at_the_top(
    items: Items, order: Ints, layout: Ints, since: int, top: int
) -> int:  # pragma: no cover - compiled
    """The first place from `since` on, around the order, of an item that ends at the top."""
    below, count = items.below, len(order) - items.below
    for shift in range(count):
        at = below + (since - below + shift) % count
        if layout[order[at]] + items.size[order[at]] >= top:
            return at
    return since


@compiled
def _move(
    order: Ints, moved: Ints, chosen: int, goes_to: int
) -> None:  # pragma: no cover - compiled
    """Make `moved` the order with one item at another place."""
    moved[:] = order
    step = -1 if goes_to < chosen else 1
    at = chosen
    while at != goes_to:
        moved[at] = moved[at + step]
        at += step
    moved[goes_to] = order[chosen]


@compiled
def next_random(state: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """The next state of a 64-bit xorshift generator (Marsaglia 2003)."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state
