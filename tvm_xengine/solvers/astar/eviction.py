"""Compiled: chooses tensors that leave a device so that a move fits there."""

# Compiled code has no generators, so loops stay loops.

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.astar.arrival import arrive, finish
from tvm_xengine.solvers.astar.bits import assign, has
from tvm_xengine.solvers.astar.bounds.covers import Covers
from tvm_xengine.solvers.astar.memory import MOST_WAYS, WAYS, Memory
from tvm_xengine.solvers.astar.move_scratch import DROP, SAVE, STAY, Move, MoveScratch
from tvm_xengine.solvers.astar.view import StateView, Words
from tvm_xengine.solvers.astar.walk import (
    DEAD_END,
    cheapest_copy,
    held_units,
    is_overwritten,
    needs,
)
from tvm_xengine.solvers.compiled import inlined

_NEVER = 1e30
"""What it costs to lose a tensor that nothing brings back: above every value of a schedule, and finite, so
that it can be subtracted again."""


@inlined
def make_room(
    p: StateView, c: Covers, m: Memory, b: MoveScratch, move: Move, key: float, cut: float
) -> None:
    """Take the move with every minimal set of tensors that can leave for it."""
    d = move.device
    excess = held_units(p, m.rows[move.state], d) + move.units - p.budget[d]
    assign(b.following, b.base)
    finish(p, b.following, move)
    rest = needs(p, b.following, b.inner.anywhere, b.inner.need, b.inner.wanted)
    spent = m.paid[move.state] + move.weight
    if excess > 0 and not p.is_capacitated[d]:
        return
    overwritten, count = _candidates(p, m, b, move, excess)
    if b.units_after[0] < excess:
        return
    if overwritten == 0 and (rest == DEAD_END or spent + rest >= cut):
        return
    rest = max(rest, 0.0)
    depth, freed, extra, lost = 0, 0, 0.0, 0.0
    most = m.counter[WAYS] + m.counter[MOST_WAYS]
    while m.counter[WAYS] < most:
        m.counter[WAYS] += 1
        is_affordable = spent + extra + max(rest + lost, 0.0) < cut
        if overwritten > 0:
            is_affordable = spent + extra < cut
        if depth >= overwritten and freed >= excess:
            if is_affordable:
                arrive(p, c, m, b, move, depth, spent + extra, key, cut)
        elif depth < count and freed + b.units_after[depth] >= excess and is_affordable:
            b.choice[depth] = DROP if depth < overwritten else STAY
            depth += 1
            continue
        # The next choice of the deepest candidate that has one.
        while depth > 0:
            k = depth - 1
            choice = b.choice[k]
            if choice != STAY:
                freed -= b.units[k]
                if choice == DROP:
                    lost -= b.loss[k]
                else:
                    extra -= p.transfer_value[d, choice - SAVE, b.candidate[k]]
            choice = _next_choice(p, m, b, move, k, choice + 1)
            if choice >= 0:
                b.choice[k] = choice
                freed += b.units[k]
                if choice == DROP:
                    lost += b.loss[k]
                else:
                    extra += p.transfer_value[d, choice - SAVE, b.candidate[k]]
                break
            depth -= 1
        if depth == 0:
            return


@inlined
def _candidates(
    p: StateView, m: Memory, b: MoveScratch, move: Move, excess: int
) -> tuple[int, int]:
    """State that is overwritten and that others may read, then what may leave, largest first.

    Returns how many there are of the first and of both.
    """
    words, d = p.reads.shape[1], move.device
    row = m.rows[move.state]
    count = 0
    for old in range(p.must_end_on.size):
        if not _overwrites(p, move, old):
            continue
        is_read = False
        for i in range(p.floor.size):
            if i != move.op and b.is_relevant[i] and has(p.reads[i], 0, old):
                is_read = True
        if is_read and not np.isfinite(cheapest_copy(p, row, old, d)):
            b.candidate[count], b.units[count], b.loss[count] = old, 0, 0.0
            count += 1
    leaving = count
    if excess > 0 and p.is_capacitated[d]:
        for k in range(p.by_size.size):
            j = p.by_size[k]
            if not has(row, d * words, j) or p.size[j] == 0:
                continue
            old = p.update_of[j]
            if old >= 0 and p.home[old] == d:
                continue
            if move.op >= 0 and (has(p.reads[move.op], 0, j) or has(p.makes[move.op], 0, j)):
                continue
            if _overwrites(p, move, j):
                continue
            b.candidate[count], b.units[count] = j, p.size[j]
            b.loss[count] = _loss(p, b, row, j, d)
            count += 1
    b.units_after[count] = 0
    for k in range(count - 1, -1, -1):
        b.units_after[k] = b.units_after[k + 1] + b.units[k]
    return leaving, count


@inlined
def _overwrites(p: StateView, move: Move, old: int) -> bool:
    result = p.result_of[old]
    if result < 0:
        return False
    if move.op >= 0:
        return has(p.makes[move.op], 0, result)
    return bool(result == move.tensor and p.home[old] == move.device)


@inlined
def _loss(p: StateView, b: MoveScratch, row: Words, j: int, d: int) -> float:
    """A lower bound on the cost of dropping j, given the tensors still wanted after the move."""
    if np.isfinite(cheapest_copy(p, row, j, d)):
        return 0.0
    if p.is_final[j]:
        return _NEVER
    if not has(b.inner.wanted, 0, j):
        return 0.0
    producer = p.producer[j]
    if producer < 0 or not p.recomputable[producer]:
        return _NEVER
    return float(p.floor[producer]) if p.makes_one[producer] else 0.0


@inlined
def _next_choice(p: StateView, m: Memory, b: MoveScratch, move: Move, k: int, choice: int) -> int:
    """The first thing, from `choice` on, that may happen to candidate k; -1 without any."""
    words, d = p.reads.shape[1], move.device
    row, j = m.rows[move.state], b.candidate[k]
    if choice <= DROP and b.loss[k] < _NEVER:
        return DROP
    if np.isfinite(cheapest_copy(p, row, j, d)):
        return -1
    old = p.update_of[j]
    for r in range(max(0, choice - SAVE), p.is_capacitated.size):
        if r == d or not p.may_save[r, j] or has(row, r * words, j) or is_overwritten(p, row, r, j):
            continue
        if old >= 0 and p.home[old] == r:
            continue
        return SAVE + r
    return -1
