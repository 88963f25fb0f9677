"""Compiled: the runs and copies that lead from a state, and rules that skip some of them."""

# Compiled code has no generators, so loops stay loops.
# ruff: noqa: SIM110

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.astar.bits import ONE, assign, has, put
from tvm_xengine.solvers.astar.move_scratch import Expansion, MoveScratch
from tvm_xengine.solvers.astar.view import AT_THE_END, StateView, Words
from tvm_xengine.solvers.astar.walk import cheapest_copy, is_overwritten
from tvm_xengine.solvers.compiled import inlined


@inlined
def run(e: Expansion, i: int, d: int, kernel: int) -> tuple[float, int, np.uint64]:
    """Run op i on d with one of its kernels, after its inputs were brought there: weight, units and
    unread of the move.

    The weight is infinite where the move is of no use.
    """
    p, b = e.problem, e.scratch
    words = p.reads.shape[1]
    row = e.memory.rows[e.state]
    useless = np.inf, 0, row[row.size - 1]
    is_useful = False
    for w in range(words):
        is_useful = is_useful or p.makes[i, w] & ~row[d * words + w] != 0
    if not is_useful:
        return useless
    unread, is_allowed = _unread_after(p, row, b, i, d)
    if not is_allowed:
        return useless
    assign(b.base, row)
    weight, units = p.kernel_value[i, d, kernel], p.workspace[i, d, kernel]
    for j in range(p.must_end_on.size):
        if has(p.reads[i], 0, j) and not has(row, d * words, j):
            old = p.update_of[j]
            if is_overwritten(p, row, d, j) or (old >= 0 and p.home[old] == d):
                return useless
            weight += cheapest_copy(p, row, j, d)
            units += p.size[j]
            put(b.base, d * words, j)
        if has(p.makes[i], 0, j) and p.update_of[j] < 0 and not has(row, d * words, j):
            units += p.size[j]
    for j in range(p.must_end_on.size):
        if (
            has(p.makes[i], 0, j)
            and p.update_of[j] >= 0
            and not has(b.base, d * words, p.update_of[j])
        ):
            return useless
    return weight, units, unread


@inlined
def _unread_after(
    p: StateView, row: Words, b: MoveScratch, i: int, d: int
) -> tuple[np.uint64, bool]:
    """The ops that wait for a reader once op i has run on d, and whether it may run now.

    All that wait are read by one run on a capacitated device, or by what leads to it, so they have
    that descendant in common.
    """
    unread = row[row.size - 1]
    if not p.may_wait:
        return unread, True
    if unread == AT_THE_END:
        return unread, not p.is_capacitated[d]
    common = ~np.uint64(0)
    for k in range(p.floor.size):
        if (unread >> np.uint64(k)) & ONE != 0:
            is_read = False
            for w in range(p.reads.shape[1]):
                is_read = is_read or p.makes[k, w] & p.reads[i, w] != 0
            if is_read:
                unread &= ~(ONE << np.uint64(k))
            else:
                common &= p.descendants[k]
    if p.is_capacitated[d]:
        return unread, unread == 0
    below = np.uint64(0)
    for k in range(p.floor.size):
        if b.is_relevant[k]:
            below |= p.descendants[i] & (ONE << np.uint64(k))
    if below == 0:
        return AT_THE_END, True
    return unread | ONE << np.uint64(i), common & below != 0


@inlined
def may_copy(p: StateView, row: Words, b: MoveScratch, j: int, d: int, is_needed: bool) -> bool:
    """Whether copying j to d by itself can be part of an optimal schedule."""
    words = p.reads.shape[1]
    if has(row, d * words, j) or is_overwritten(p, row, d, j):
        return False
    if is_needed and row[row.size - 1] & ~AT_THE_END != 0 and not _is_awaited_home(p, row, j, d):
        return False
    is_uncapacitated, is_safe, is_elsewhere = False, False, False
    for a in range(p.is_capacitated.size):
        if a != d and has(row, a * words, j):
            is_elsewhere = True
            if not p.is_capacitated[a]:
                is_uncapacitated = True
                is_safe = is_safe or not _may_be_overwritten(p, row, b, j, a)
    if not is_elsewhere:
        return False
    old = p.update_of[j]
    if old >= 0 and p.home[old] == d:
        is_in_time = not is_needed or not is_uncapacitated
        for i in range(p.floor.size):  # who reads it there cannot fetch it
            if b.is_relevant[i] and has(p.reads[i], 0, j):
                is_in_time = True
        return has(row, d * words, old) and is_in_time
    result = p.result_of[j]
    if not is_needed and (p.must_end_on[j] == d or (result >= 0 and p.must_end_on[result] == d)):
        return True
    return bool(p.is_capacitated[d] and not is_safe)


@inlined
def _is_awaited_home(p: StateView, row: Words, j: int, d: int) -> bool:
    """Whether what reads the result j of a waiting run at its home d asks for this copy."""
    old, producer = p.update_of[j], p.producer[j]
    if old < 0 or p.home[old] != d:
        return False
    is_awaited: bool = (row[row.size - 1] >> np.uint64(producer)) & ONE != 0
    return is_awaited


@inlined
def _may_be_overwritten(p: StateView, row: Words, b: MoveScratch, j: int, a: int) -> bool:
    """Whether the next move may overwrite state j on a."""
    result = p.result_of[j]
    if result < 0:
        return False
    if has(b.outer.anywhere, 0, result):
        return bool(p.home[j] == a)
    updater = p.producer[result]
    if p.home[j] != a and not np.isfinite(p.compute_value[updater, a]):
        return False
    for w in range(p.reads.shape[1]):
        if p.reads[updater, w] & ~b.outer.anywhere[w] != 0:
            return False
    return True


@inlined
def copy(e: Expansion, j: int, d: int) -> tuple[float, int, np.uint64]:
    """Copy tensor j to d: weight, units and unread of the move.

    An update's result takes the place of the state at home.
    """
    p, b = e.problem, e.scratch
    row = e.memory.rows[e.state]
    assign(b.base, row)
    old = p.update_of[j]
    units = 0
    if old < 0 or p.home[old] != d:
        units = p.size[j]
        put(b.base, d * p.reads.shape[1], j)
    unread = row[row.size - 1]
    if _is_awaited_home(p, row, j, d):
        unread &= ~(ONE << np.uint64(p.producer[j]))
    return cheapest_copy(p, row, j, d), units, unread
