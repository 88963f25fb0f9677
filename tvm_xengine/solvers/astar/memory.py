"""Compiled: the states seen so far, a hash table over them, and the heap of those to expand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.astar.view import Words
from tvm_xengine.solvers.compiled import inlined
from tvm_xengine.solvers.indexed import NONE

COUNT, OPEN, EXPANDED, GOAL, WAYS, MOST_WAYS = range(6)
"""Positions in `Memory.counter`."""
_MOST_WAYS = 200_000
"""Ways to make room that are tried for one state. A state with more ends the search, since one
expansion cannot be stopped."""
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
"""A multiplicative hash: 2^64 over the golden ratio (Knuth, TAOCP 6.4), and a shift that mixes high bits
into low ones."""


class Known(NamedTuple):
    """Bounds on some states that are known before the search; see `Memory` for its fields."""

    rows: Words
    least: NDArray[np.float64]
    table: NDArray[np.int32]


class Memory(NamedTuple):
    """Everything the search remembers; sizes are fixed when it begins.

    Attributes
    ----------
    rows
        The states seen, shape (N, L).
    paid, least
        The least weight of a way to each, and of the rest from there, shape (N,).
    parent, move
        How it was reached, shape (N,).
    table
        Where each state stands in `rows`, by hash, `NONE` where free; a power of two long.
    key, tie, state
        The heap: smallest sum first, among equals the most paid.
    counter
        States seen, open entries of the heap, states expanded, the goal reached or `NONE`, ways to
        make room that were tried in this slice, and how many may be in one expansion.
    """

    rows: Words
    paid: NDArray[np.float64]
    least: NDArray[np.float64]
    parent: NDArray[np.int32]
    move: NDArray[np.int32]
    table: NDArray[np.int32]
    key: NDArray[np.float64]
    tie: NDArray[np.float64]
    state: NDArray[np.int32]
    counter: NDArray[np.int64]
    known: Known


def nothing_known(width: int) -> Known:
    """An empty `Known` for the first search, over rows of so many words."""
    return Known(np.empty((1, width), np.uint64), np.empty(1), np.full(2, NONE, np.int32))


def known_after(m: Memory, value: float) -> Known:
    """What a search teaches that found the optimum `value`: the rest from each state is at least
    what the way to it leaves of that (Adaptive A*, Koenig and Likhachev, AAMAS 2005).
    """
    count = int(m.counter[COUNT])
    least = np.maximum(m.least[:count], value - m.paid[:count])
    return Known(m.rows[:count], least, m.table)


def new_memory(capacity: int, known: Known) -> Memory:
    """Room for so many states; pages are only taken when they are touched."""
    width = known.rows.shape[1]
    slots = 1 << (2 * capacity - 1).bit_length()
    return Memory(
        np.empty((capacity, width), np.uint64),
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.full(slots, NONE, np.int32),
        np.empty(2 * capacity),
        np.empty(2 * capacity),
        np.empty(2 * capacity, np.int32),
        np.array([0, 0, 0, NONE, 0, _MOST_WAYS], np.int64),
        known,
    )


@inlined
def find(m: Memory | Known, row: Words) -> int:
    """Where `row` stands in the table, or the free place for it."""
    value = np.uint64(1469598103934665603)
    for k in range(row.size):
        value ^= row[k]
        value *= _PRIME
        value ^= value >> _SHIFT
    slot = np.int64(value & np.uint64(m.table.size - 1))
    while m.table[slot] >= 0:
        is_same = True
        for k in range(row.size):
            if m.rows[m.table[slot], k] != row[k]:
                is_same = False
                break
        if is_same:
            break
        slot = (slot + 1) & (m.table.size - 1)
    return int(slot)


@inlined
def push(m: Memory, key: float, tie: float, state: int) -> None:
    """Open a state."""
    k = m.counter[OPEN]
    m.counter[OPEN] += 1
    while k > 0:
        above = (k - 1) >> 1
        if m.key[above] < key or (m.key[above] == key and m.tie[above] >= tie):
            break
        m.key[k], m.tie[k], m.state[k] = m.key[above], m.tie[above], m.state[above]
        k = above
    m.key[k], m.tie[k], m.state[k] = key, tie, state


@inlined
def drop_first(m: Memory) -> None:
    """Take the smallest entry off the heap."""
    m.counter[OPEN] -= 1
    size = m.counter[OPEN]
    key, tie, state = m.key[size], m.tie[size], m.state[size]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            m.key[right] < m.key[child]
            or (m.key[right] == m.key[child] and m.tie[right] > m.tie[child])
        ):
            child = right
        if key < m.key[child] or (key == m.key[child] and tie >= m.tie[child]):
            break
        m.key[k], m.tie[k], m.state[k] = m.key[child], m.tie[child], m.state[child]
        k = child
    m.key[k], m.tie[k], m.state[k] = key, tie, state
