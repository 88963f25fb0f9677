"""Compiled: A* over states, each move a run or a copy with all that must make way for it.

Schedules are only looked at in one form that loses nothing: what an op reads arrives right
before it; a tensor leaves a tight device only when its bytes are needed, and then in minimal
sets; what leaves is dropped or saved on a device with room for everything, as is state right
before it is overwritten. What runs on a device with room for everything waits until a run on a
tight device, or one that leads to it, reads it, or until nothing more will run on those. Copies
between tight devices may come at any time, and results go home when nothing else is left to do
or when they are on a tight device.
"""

# Compiled code has no generators, so loops stay loops.
# ruff: noqa: SIM110

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.compiled import entry, inner
from tvm_xengine.solvers.states.bits import ONE, assign, has, put, take
from tvm_xengine.solvers.states.covers import Covers
from tvm_xengine.solvers.states.estimate import Scratch, estimate
from tvm_xengine.solvers.states.layout import AT_THE_END, Layout, Words
from tvm_xengine.solvers.states.memory import (
    COUNT,
    EXPANDED,
    GOAL,
    MOST_WAYS,
    OPEN,
    WAYS,
    Memory,
    drop_first,
    find,
    push,
)
from tvm_xengine.solvers.states.walk import (
    DEAD_END,
    cheapest_copy,
    forget,
    held_units,
    is_finished,
    is_overwritten,
    needs,
    overwrite,
    relevance,
)

RUNNING, EXHAUSTED, FOUND, FULL = range(4)
"""What `advance` answers."""
_STAY, _DROP, _SAVE = range(3)
"""What happens to a candidate; `_SAVE` + r saves it on device r."""
_NEVER = 1e30


class Bench(NamedTuple):
    """Room for the move that is being worked out."""

    outer: Scratch
    inner: Scratch
    is_relevant: NDArray[np.bool_]
    wanted: Words
    is_relevant_next: NDArray[np.bool_]
    wanted_next: Words
    base: Words
    following: Words
    candidate: NDArray[np.int64]
    units: NDArray[np.int64]
    units_after: NDArray[np.int64]
    loss: NDArray[np.float64]
    choice: NDArray[np.int64]
    final: NDArray[np.int64]


class Move(NamedTuple):
    """A move, before anything has made way for it.

    Attributes
    ----------
    state, code
        Where it starts; ``op * D + device``, or ``n * D + tensor * D + device`` of a copy.
    op, tensor
        What is run or copied, the other is -1.
    device
        Where that happens.
    weight
        Of the run or copy, with what is fetched for it.
    units
        Bytes that are taken on the device.
    unread
        The ops whose runs wait for a reader afterwards.
    """

    state: int
    code: int
    op: int
    tensor: int
    device: int
    weight: float
    units: int
    unread: np.uint64


@entry
def begin(p: Layout, c: Covers, m: Memory, b: Bench, first: Words) -> None:
    """Open the first state."""
    assign(m.rows[0], first)
    m.paid[0] = 0.0
    m.parent[0] = -1
    m.least[0] = estimate(p, c, first, b.inner)
    m.table[find(m, first)] = 0
    m.counter[COUNT] = 1
    if m.least[0] != DEAD_END:
        push(m, m.least[0], 0.0, 0)


@entry
def advance(
    p: Layout, c: Covers, m: Memory, b: Bench, cut: float, ways: int, reached: NDArray[np.float64]
) -> int:
    """Expand states that may lead to less than `cut`, until so many ways have been tried.

    ``reached[0]`` becomes what every schedule costs at least, unless it costs `cut` or more.
    """
    m.counter[WAYS] = 0
    while m.counter[WAYS] < ways:
        if m.counter[COUNT] >= m.paid.size or m.counter[OPEN] >= m.key.size:
            return FULL
        if m.counter[OPEN] == 0 or m.key[0] >= cut:
            return EXHAUSTED
        key, paid, state = m.key[0], m.tie[0], m.state[0]
        drop_first(m)
        if paid > m.paid[state]:
            continue
        reached[0] = max(reached[0], key)
        if is_finished(p, m.rows[state]):
            m.counter[GOAL] = state
            return FOUND
        m.counter[EXPANDED] += 1
        before = m.counter[WAYS]
        _expand(p, c, m, b, state, key, cut)
        if m.counter[WAYS] - before >= m.counter[MOST_WAYS]:
            return FULL
    return RUNNING


@inner
def _expand(p: Layout, c: Covers, m: Memory, b: Bench, state: int, key: float, cut: float) -> None:
    row = m.rows[state]
    relevance(p, row, b.is_relevant, b.wanted)
    needs(p, row, b.outer.anywhere, b.outer.need, b.outer.wanted)
    is_needed = False
    for i in range(p.floor.size):
        is_needed = is_needed or b.outer.need[i]
    for i in range(p.floor.size):
        for d in range(p.is_tight.size):
            if b.is_relevant[i] and np.isfinite(p.run[i, d]):
                _run(p, c, m, b, state, key, cut, i, d)
    for j in range(p.end.size):
        for d in range(p.is_tight.size):
            if _may_copy(p, row, b, j, d, is_needed):
                _copy(p, c, m, b, state, key, cut, j, d)


@inner
def _run(
    p: Layout, c: Covers, m: Memory, b: Bench, state: int, key: float, cut: float, i: int, d: int
) -> None:
    """Run op i on d, with what it reads brought there."""
    words = p.reads.shape[1]
    row = m.rows[state]
    is_useful = False
    for w in range(words):
        is_useful = is_useful or p.makes[i, w] & ~row[d * words + w] != 0
    if not is_useful:
        return
    unread, is_allowed = _unread_after(p, row, b, i, d)
    if not is_allowed:
        return
    assign(b.base, row)
    weight, units = p.run[i, d], p.workspace[i, d]
    for j in range(p.end.size):
        if has(p.reads[i], 0, j) and not has(row, d * words, j):
            old = p.update_of[j]
            if is_overwritten(p, row, d, j) or (old >= 0 and p.home[old] == d):
                return
            weight += cheapest_copy(p, row, j, d)
            units += p.size[j]
            put(b.base, d * words, j)
        if has(p.makes[i], 0, j) and p.update_of[j] < 0 and not has(row, d * words, j):
            units += p.size[j]
    if m.paid[state] + weight >= cut:  # or something is nowhere
        return
    for j in range(p.end.size):
        if (
            has(p.makes[i], 0, j)
            and p.update_of[j] >= 0
            and not has(b.base, d * words, p.update_of[j])
        ):
            return
    move = Move(state, i * p.is_tight.size + d, i, -1, d, weight, units, unread)
    _make_way(p, c, m, b, move, key, cut)


@inner
def _unread_after(p: Layout, row: Words, b: Bench, i: int, d: int) -> tuple[np.uint64, bool]:
    """The ops that wait for a reader once op i has run on d, and whether it may run now.

    All that wait are read by one run on a tight device, or by what leads to it, so they have
    that descendant in common.
    """
    unread = row[row.size - 1]
    if not p.may_wait:
        return unread, True
    if unread == AT_THE_END:
        return unread, not p.is_tight[d]
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
    if p.is_tight[d]:
        return unread, unread == 0
    below = np.uint64(0)
    for k in range(p.floor.size):
        if b.is_relevant[k]:
            below |= p.descendants[i] & (ONE << np.uint64(k))
    if below == 0:
        return AT_THE_END, True
    return unread | ONE << np.uint64(i), common & below != 0


@inner
def _may_copy(p: Layout, row: Words, b: Bench, j: int, d: int, is_needed: bool) -> bool:
    """Whether copying j to d by itself is to be looked at."""
    words = p.reads.shape[1]
    if has(row, d * words, j) or is_overwritten(p, row, d, j):
        return False
    if is_needed and row[row.size - 1] & ~AT_THE_END != 0 and not _is_awaited_home(p, row, j, d):
        return False
    is_roomy, is_safe, is_elsewhere = False, False, False
    for a in range(p.is_tight.size):
        if a != d and has(row, a * words, j):
            is_elsewhere = True
            if not p.is_tight[a]:
                is_roomy = True
                is_safe = is_safe or not _may_be_overwritten(p, row, b, j, a)
    if not is_elsewhere:
        return False
    old = p.update_of[j]
    if old >= 0 and p.home[old] == d:
        is_in_time = not is_needed or not is_roomy
        for i in range(p.floor.size):  # who reads it there cannot fetch it
            if b.is_relevant[i] and has(p.reads[i], 0, j):
                is_in_time = True
        return has(row, d * words, old) and is_in_time
    result = p.result_of[j]
    if not is_needed and (p.end[j] == d or (result >= 0 and p.end[result] == d)):
        return True
    return bool(p.is_tight[d] and not is_safe)


@inner
def _is_awaited_home(p: Layout, row: Words, j: int, d: int) -> bool:
    """Whether what reads the result j of a waiting run at its home d asks for this copy."""
    old, producer = p.update_of[j], p.producer[j]
    if old < 0 or p.home[old] != d:
        return False
    is_awaited: bool = (row[row.size - 1] >> np.uint64(producer)) & ONE != 0
    return is_awaited


@inner
def _may_be_overwritten(p: Layout, row: Words, b: Bench, j: int, a: int) -> bool:
    """Whether the next move may overwrite state j on a."""
    result = p.result_of[j]
    if result < 0:
        return False
    if has(b.outer.anywhere, 0, result):
        return bool(p.home[j] == a)
    updater = p.producer[result]
    if p.home[j] != a and not np.isfinite(p.run[updater, a]):
        return False
    for w in range(p.reads.shape[1]):
        if p.reads[updater, w] & ~b.outer.anywhere[w] != 0:
            return False
    return True


@inner
def _copy(
    p: Layout, c: Covers, m: Memory, b: Bench, state: int, key: float, cut: float, j: int, d: int
) -> None:
    """Copy tensor j to d; an update's result takes the place of the state at home."""
    row = m.rows[state]
    assign(b.base, row)
    old = p.update_of[j]
    units = 0
    if old < 0 or p.home[old] != d:
        units = p.size[j]
        put(b.base, d * p.reads.shape[1], j)
    weight = cheapest_copy(p, row, j, d)
    if m.paid[state] + weight >= cut:
        return
    devices = p.is_tight.size
    unread = row[row.size - 1]
    if _is_awaited_home(p, row, j, d):
        unread &= ~(ONE << np.uint64(p.producer[j]))
    move = Move(state, (p.floor.size + j) * devices + d, -1, j, d, weight, units, unread)
    _make_way(p, c, m, b, move, key, cut)


@inner
def _finish(p: Layout, row: Words, move: Move) -> None:
    """What the move leaves behind, once what it needs is there."""
    words, devices, d = p.reads.shape[1], p.is_tight.size, move.device
    if move.op >= 0:
        for j in range(p.end.size):
            if has(p.makes[move.op], 0, j):
                put(row, d * words, j)
                if p.update_of[j] >= 0:
                    overwrite(p, row, d, p.update_of[j])
        if not p.recomputable[move.op]:
            row[devices * words + devices] |= ONE << np.uint64(move.op)
        row[row.size - 1] = move.unread
        return
    put(row, d * words, move.tensor)
    old = p.update_of[move.tensor]
    if old >= 0 and p.home[old] == d:
        overwrite(p, row, d, old)


@inner
def _overwrites(p: Layout, move: Move, old: int) -> bool:
    result = p.result_of[old]
    if result < 0:
        return False
    if move.op >= 0:
        return has(p.makes[move.op], 0, result)
    return bool(result == move.tensor and p.home[old] == move.device)


@inner
def _candidates(p: Layout, m: Memory, b: Bench, move: Move, excess: int) -> tuple[int, int]:
    """State that is overwritten and that others may read, then what may leave, largest first.

    Returns how many there are of the first and of both.
    """
    words, d = p.reads.shape[1], move.device
    row = m.rows[move.state]
    count = 0
    for old in range(p.end.size):
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
    if excess > 0 and p.is_tight[d]:
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


@inner
def _loss(p: Layout, b: Bench, row: Words, j: int, d: int) -> float:
    """What dropping j costs at least, given what is still wanted after the move."""
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


@inner
def _make_way(
    p: Layout, c: Covers, m: Memory, b: Bench, move: Move, key: float, cut: float
) -> None:
    """Take the move with every minimal set of tensors that can leave for it."""
    d = move.device
    excess = held_units(p, m.rows[move.state], d) + move.units - p.budget[d]
    assign(b.following, b.base)
    _finish(p, b.following, move)
    rest = needs(p, b.following, b.inner.anywhere, b.inner.need, b.inner.wanted)
    spent = m.paid[move.state] + move.weight
    if excess > 0 and not p.is_tight[d]:
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
                _take(p, c, m, b, move, depth, spent + extra, key, cut)
        elif depth < count and freed + b.units_after[depth] >= excess and is_affordable:
            b.choice[depth] = _DROP if depth < overwritten else _STAY
            depth += 1
            continue
        # The next choice of the deepest candidate that has one.
        while depth > 0:
            k = depth - 1
            choice = b.choice[k]
            if choice != _STAY:
                freed -= b.units[k]
                if choice == _DROP:
                    lost -= b.loss[k]
                else:
                    extra -= p.copy[d, choice - _SAVE, b.candidate[k]]
            choice = _next_choice(p, m, b, move, k, choice + 1)
            if choice >= 0:
                b.choice[k] = choice
                freed += b.units[k]
                if choice == _DROP:
                    lost += b.loss[k]
                else:
                    extra += p.copy[d, choice - _SAVE, b.candidate[k]]
                break
            depth -= 1
        if depth == 0:
            return


@inner
def _next_choice(p: Layout, m: Memory, b: Bench, move: Move, k: int, choice: int) -> int:
    """The first thing, from `choice` on, that may happen to candidate k; -1 without any."""
    words, d = p.reads.shape[1], move.device
    row, j = m.rows[move.state], b.candidate[k]
    if choice <= _DROP and b.loss[k] < _NEVER:
        return _DROP
    if np.isfinite(cheapest_copy(p, row, j, d)):
        return -1
    old = p.update_of[j]
    for r in range(max(0, choice - _SAVE), p.is_tight.size):
        if r == d or not p.may_save[r, j] or has(row, r * words, j) or is_overwritten(p, row, r, j):
            continue
        if old >= 0 and p.home[old] == r:
            continue
        return _SAVE + r
    return -1


@inner
def _take(
    p: Layout,
    c: Covers,
    m: Memory,
    b: Bench,
    move: Move,
    depth: int,
    paid: float,
    key: float,
    cut: float,
) -> None:
    """Open what the move leads to; outputs that no op reads may be kept for good or dropped."""
    words, d = p.reads.shape[1], move.device
    finals = 0
    if move.op >= 0 and p.is_tight[d]:
        for j in range(p.end.size):
            if p.is_final[j] and p.size[j] > 0 and has(p.makes[move.op], 0, j):
                is_new = True
                for a in range(p.is_tight.size):
                    is_new = is_new and not has(m.rows[move.state], a * words, j)
                if is_new:
                    b.final[finals] = j
                    finals += 1
    for dropped in range(1 << finals):
        assign(b.following, b.base)
        for k in range(depth):
            if b.choice[k] == _STAY:
                continue
            take(b.following, d * words, b.candidate[k])
            if b.choice[k] >= _SAVE:
                put(b.following, (b.choice[k] - _SAVE) * words, b.candidate[k])
        _finish(p, b.following, move)
        for k in range(finals):
            if dropped >> k & 1:
                take(b.following, d * words, b.final[k])
        _open(p, c, m, b, move, paid, key, cut)


@inner
def _open(
    p: Layout, c: Covers, m: Memory, b: Bench, move: Move, paid: float, key: float, cut: float
) -> None:
    forget(p, b.following, b.is_relevant_next, b.wanted_next)
    slot = find(m, b.following)
    state = m.table[slot]
    if state < 0:
        least = estimate(p, c, b.following, b.inner)
        seen = m.known.table[find(m.known, b.following)]
        if seen >= 0 and least != DEAD_END:
            least = max(least, m.known.least[seen])
        if least == DEAD_END or paid + least >= cut or m.counter[COUNT] >= m.paid.size:
            return
        state = m.counter[COUNT]
        m.counter[COUNT] += 1
        m.table[slot] = state
        assign(m.rows[state], b.following)
        m.paid[state] = np.inf
        m.least[state] = least
    if paid < m.paid[state] - 1e-12 and paid + m.least[state] < cut:
        m.paid[state] = paid
        m.parent[state] = move.state
        m.move[state] = move.code
        if m.counter[OPEN] < m.key.size:
            push(m, max(key, paid + m.least[state]), paid, state)
