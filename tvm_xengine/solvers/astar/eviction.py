"""Compiled: chooses tensors that leave a device so that a move fits there."""

# Compiled code has no generators, so loops stay loops.

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.astar.arrival import arrive, finish
from tvm_xengine.solvers.astar.bits import assign, has
from tvm_xengine.solvers.astar.memory import MOST_WAYS, WAYS
from tvm_xengine.solvers.astar.move_scratch import DROP, SAVE, STAY, Expansion, Move, MoveScratch
from tvm_xengine.solvers.astar.view import StateView, Words
from tvm_xengine.solvers.astar.walk import (
    DEAD_END,
    cheapest_copy,
    held_units,
    is_overwritten,
    needs,
)
from tvm_xengine.solvers.compiled import inlined
from tvm_xengine.solvers.indexed import NONE

_NEVER = 1e30
"""What it costs to lose a tensor that nothing brings back: above every value of a schedule, and finite, so
that it can be subtracted again."""


@inlined
def make_room(e: Expansion, move: Move) -> None:
    """Take the move with every minimal set of tensors that can leave for it."""
    p, m, b = e.problem, e.memory, e.scratch
    d = move.device
    excess = held_units(p, m.rows[e.state], d) + move.units - p.budget[d]
    assign(b.following, b.base)
    finish(p, b.following, move)
    rest = needs(p, b.following, b.inner.anywhere, b.inner.need, b.inner.wanted)
    spent = m.paid[e.state] + move.weight
    if excess > 0 and not p.is_capacitated[d]:
        return
    overwritten, count = _candidates(e, move, excess)
    if b.units_after[0] < excess:
        return
    if overwritten == 0 and (rest == DEAD_END or spent + rest >= e.cut):
        return
    rest = max(rest, 0.0)
    depth, freed, extra, lost = 0, 0, 0.0, 0.0
    most = m.counter[WAYS] + m.counter[MOST_WAYS]
    while m.counter[WAYS] < most:
        m.counter[WAYS] += 1
        is_affordable = spent + extra + max(rest + lost, 0.0) < e.cut
        if overwritten > 0:
            is_affordable = spent + extra < e.cut
        if depth >= overwritten and freed >= excess:
            if is_affordable:
                arrive(e, move, depth, spent + extra)
        elif depth < count and freed + b.units_after[depth] >= excess and is_affordable:
            b.choice[depth] = DROP if depth < overwritten else STAY
            depth += 1
            continue
        depth, freed, extra, lost = _next_choices(e, move, depth, freed, extra, lost)
        if depth == 0:
            return


@inlined
def _next_choices(
    e: Expansion, move: Move, depth: int, freed: int, extra: float, lost: float
) -> tuple[int, int, float, float]:
    """Make the next choice of the deepest candidate that has one; those behind it have none yet.

    Returns how many have one, the units that they free, what their copies cost, and what their loss
    costs at least.
    """
    p, b, d = e.problem, e.scratch, move.device
    while depth > 0:
        k = depth - 1
        choice = b.choice[k]
        if choice != STAY:
            freed -= b.units[k]
            if choice == DROP:
                lost -= b.loss[k]
            else:
                extra -= p.transfer_value[d, choice - SAVE, b.candidate[k]]
        choice = _next_choice(e, move, k, choice + 1)
        if choice >= 0:
            b.choice[k] = choice
            freed += b.units[k]
            if choice == DROP:
                lost += b.loss[k]
            else:
                extra += p.transfer_value[d, choice - SAVE, b.candidate[k]]
            break
        depth -= 1
    return depth, freed, extra, lost


@inlined
def _candidates(e: Expansion, move: Move, excess: int) -> tuple[int, int]:
    """State that is overwritten and that others may read, then what may leave, largest first.

    Returns how many there are of the first and of both.
    """
    p, b, d = e.problem, e.scratch, move.device
    row = e.memory.rows[e.state]
    count = 0
    for old in range(p.must_end_on.size):
        if _overwrites(p, move, old) and _is_last_copy(p, b, row, move, old):
            b.candidate[count], b.units[count], b.loss[count] = old, 0, 0.0
            count += 1
    overwritten = count
    if excess > 0 and p.is_capacitated[d]:
        for k in range(p.by_size.size):
            j = p.by_size[k]
            if _may_leave(p, row, move, j):
                b.candidate[count], b.units[count] = j, p.size[j]
                b.loss[count] = _loss(p, b, row, j, d)
                count += 1
    b.units_after[count] = 0
    for k in range(count - 1, -1, -1):
        b.units_after[k] = b.units_after[k + 1] + b.units[k]
    return overwritten, count


@inlined
def _is_last_copy(p: StateView, b: MoveScratch, row: Words, move: Move, old: int) -> bool:
    """Whether another op may still read state that the move overwrites, and it is nowhere else."""
    is_read = False
    for i in range(p.floor.size):
        if i != move.op and b.is_relevant[i] and has(p.reads[i], 0, old):
            is_read = True
    return is_read and not np.isfinite(cheapest_copy(p, row, old, move.device))


@inlined
def _may_leave(p: StateView, row: Words, move: Move, j: int) -> bool:
    """Whether tensor j is on the device of the move, and neither part of it nor an update's result."""
    d = move.device
    if not has(row, d * p.reads.shape[1], j) or p.size[j] == 0:
        return False
    old = p.update_of[j]
    if old >= 0 and p.home[old] == d:
        return False
    if move.op >= 0 and (has(p.reads[move.op], 0, j) or has(p.makes[move.op], 0, j)):
        return False
    return not _overwrites(p, move, j)


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
def _next_choice(e: Expansion, move: Move, k: int, choice: int) -> int:
    """The first thing, from `choice` on, that may happen to candidate k; -1 without any."""
    p, b = e.problem, e.scratch
    words, d = p.reads.shape[1], move.device
    row, j = e.memory.rows[e.state], b.candidate[k]
    if choice <= DROP and b.loss[k] < _NEVER:
        return DROP
    if np.isfinite(cheapest_copy(p, row, j, d)):
        return NONE
    old = p.update_of[j]
    for r in range(max(0, choice - SAVE), p.is_capacitated.size):
        if r == d or not p.may_save[r, j] or has(row, r * words, j) or is_overwritten(p, row, r, j):
            continue
        if old >= 0 and p.home[old] == r:
            continue
        return SAVE + r
    return NONE
