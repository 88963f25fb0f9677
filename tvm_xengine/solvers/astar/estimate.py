"""Compiled: a lower bound on the cost of finishing a step from a state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.astar.bits import ONE, has
from tvm_xengine.solvers.astar.bounds.covers import Covers
from tvm_xengine.solvers.astar.view import StateView, Words
from tvm_xengine.solvers.astar.walk import DEAD_END, cheapest_copy, needs
from tvm_xengine.solvers.compiled import inlined

_BYTE = np.uint64(255)
"""Tables of potentials are read by bytes of the state."""


class Scratch(NamedTuple):
    """Scratch arrays for the estimate of one state."""

    anywhere: Words
    wanted: Words
    need: NDArray[np.bool_]
    price: NDArray[np.float64]
    least: NDArray[np.float64]


def new_scratch(view: StateView, covers: Covers) -> Scratch:
    """Scratch for that problem."""
    count, words = view.reads.shape
    return Scratch(
        np.zeros(words, np.uint64),
        np.zeros(words, np.uint64),
        np.zeros(count, np.bool_),
        np.zeros(len(covers.state)),
        np.zeros(len(covers.op)),
    )


@inlined
def estimate(p: StateView, c: Covers, row: Words, s: Scratch) -> float:
    """A lower bound; `DEAD_END` when the step cannot be finished."""
    least = needs(p, row, s.anywhere, s.need, s.wanted)
    if least == DEAD_END:
        return DEAD_END
    need = np.uint64(0)
    for i in range(p.floor.size):
        if s.need[i]:
            need |= ONE << np.uint64(i)
    whole = max(least, _potential(c, 0, row, need))
    if c.device >= 0:
        return max(whole, _with_covers(p, c, row, need, least, s))
    return whole


@inlined
def _potential(c: Covers, q: int, row: Words, need: np.uint64) -> float:
    value = c.constant[q]
    for b in range(c.word.size):
        word = need if c.word[b] < 0 else row[c.word[b]]
        value += c.table[q, b, np.int64((word >> c.shift[b]) & _BYTE)]
    return float(value)


@inlined
def _with_covers(
    p: StateView, c: Covers, row: Words, need: np.uint64, runs: float, s: Scratch
) -> float:
    """The minimum over the subsets of needed time points that still run on the device.

    `runs` is what is needed at least without any copies of state but those home.
    """
    time_points = c.op.size
    back = _price_of_leaving(p, c, row, s.price)
    for k in range(c.state.size):
        j = c.state[k]
        if p.result_of[j] < 0 and not has(row, c.device * p.reads.shape[1], j):
            runs -= cheapest_copy(p, row, j, c.device)
    needed = 0
    for m in range(time_points):
        if (need >> np.uint64(c.op[m])) & ONE != 0:
            needed |= 1 << m
            s.least[m] = _cheapest_cover(c, m, s.price)
    best = np.inf
    for off in range(1 << time_points):
        if off & ~needed:
            continue
        value = _potential(c, off, row, need)
        cover = 0.0
        for m in range(time_points):
            if (needed & ~off) >> m & 1:
                cover = max(cover, s.least[m])
        if value < best:
            rest = max(runs, _potential(c, (1 << time_points) + off, row, need))
            value = max(value, rest + back + cover)
        best = min(best, value)
    return float(best)


@inlined
def _price_of_leaving(p: StateView, c: Covers, row: Words, price: NDArray[np.float64]) -> float:
    """The cost for each large tensor of state to leave, and of return for those that have left.

    Infinite for what was updated at home, which cannot leave.
    """
    words, d = p.reads.shape[1], c.device
    total = 0.0
    for k in range(c.state.size):
        j = c.state[k]
        result = p.result_of[j]
        if result >= 0 and has(row, d * words, result):
            price[k] = np.inf
            continue
        back, out, is_copied = np.inf, np.inf, False
        for a in range(p.is_capacitated.size):
            if a != d:
                back = min(back, p.transfer_value[a, d, j])
                out = min(out, p.transfer_value[d, a, j])
                is_copied = is_copied or has(row, a * words, j)
        if has(row, d * words, j):
            price[k] = back if is_copied else back + out
        else:
            price[k] = 0.0
            total += back
    return total


@inlined
def _cheapest_cover(c: Covers, m: int, price: NDArray[np.float64]) -> float:
    best = np.inf
    for q in range(c.cover.shape[1]):
        chosen = c.cover[m, q]
        if chosen < 0:
            break
        total = 0.0
        for k in range(c.state.size):
            if chosen >> k & 1:
                total += price[k]
        best = min(best, total)
    return best
