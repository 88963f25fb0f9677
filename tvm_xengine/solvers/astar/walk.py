"""Compiled: what a state still needs, what may still be read, and what can be dropped."""

# Compiled code has no generators, so loops stay loops.

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.astar.bits import ONE, has, put, take
from tvm_xengine.solvers.astar.view import StateView, Words
from tvm_xengine.solvers.compiled import inlined
from tvm_xengine.solvers.indexed import ANYWHERE, NOWHERE

DEAD_END = -1.0
"""In place of a bound: no bound is negative."""


@inlined
def is_done(p: StateView, row: Words, i: int) -> bool:
    """Whether op i ran and must not be repeated."""
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    has_run: bool = (row[devices * words + devices] >> np.uint64(i)) & ONE != 0
    return has_run and not p.recomputable[i]


@inlined
def is_overwritten(p: StateView, row: Words, d: int, j: int) -> bool:
    """Whether state j was replaced on d, so that it can never be there again."""
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    if p.mark[j] < 0:
        return False
    is_gone: bool = (row[devices * words + d] >> np.uint64(p.mark[j])) & ONE != 0
    return is_gone


@inlined
def overwrite(p: StateView, row: Words, d: int, j: int) -> None:
    """Replace state j on d."""
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    take(row, d * words, j)
    row[devices * words + d] |= ONE << np.uint64(p.mark[j])


@inlined
def held_units(p: StateView, row: Words, d: int) -> int:
    """Bytes on d, in units."""
    units = 0
    for j in range(p.size.size):
        if has(row, d * p.reads.shape[1], j):
            units += p.size[j]
    return units


@inlined
def cheapest_copy(p: StateView, row: Words, j: int, d: int) -> float:
    """Weight of bringing tensor j to d from where it is; infinite if it is nowhere else."""
    best = np.inf
    for a in range(p.is_capacitated.size):
        if a != d and has(row, a * p.reads.shape[1], j) and p.transfer_value[a, d, j] < best:
            best = p.transfer_value[a, d, j]
    return best


@inlined
def needs(
    p: StateView, row: Words, anywhere: Words, need: NDArray[np.bool_], wanted: Words
) -> float:
    """A lower bound on the cost of the remaining runs and of copies home.

    An op is needed when something it makes is wanted and nowhere; then what it reads is wanted.
    Fills `anywhere`, `need` and `wanted`; `DEAD_END` when the step cannot be finished.
    """
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    weight = 0.0
    for w in range(words):
        anywhere[w] = wanted[w] = 0
        for d in range(devices):
            anywhere[w] |= row[d * words + w]
    for j in range(p.must_end_on.size):
        if p.must_end_on[j] == NOWHERE:
            continue
        put(wanted, 0, j)
        if (
            p.must_end_on[j] >= 0
            and has(anywhere, 0, j)
            and not has(row, p.must_end_on[j] * words, j)
        ):
            weight += cheapest_copy(p, row, j, p.must_end_on[j])
    for i in range(p.floor.size - 1, -1, -1):
        need[i] = False
        for w in range(words):
            if p.makes[i, w] & wanted[w] & ~anywhere[w]:
                need[i] = True
        if need[i]:
            if is_done(p, row, i):
                return DEAD_END
            weight += p.floor[i]
            for w in range(words):
                wanted[w] |= p.reads[i, w]
    for j in range(p.must_end_on.size):
        result = p.result_of[j]
        if result >= 0 and not has(row, p.must_end_on[result] * words, result):
            put(wanted, 0, j)
        if p.producer[j] < 0 and has(wanted, 0, j) and not has(anywhere, 0, j):
            return DEAD_END
    return weight


@inlined
def relevance(p: StateView, row: Words, is_relevant: NDArray[np.bool_], wanted: Words) -> None:
    """The ops that may still be of use, whatever is dropped from here on, and what they read.

    An output that no op reads is dropped at once or kept for good, so it asks for its op only
    where it is nowhere; others may be dropped until they are on a device with room for all.
    """
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    for w in range(words):
        wanted[w] = 0
    for j in range(p.must_end_on.size):
        if p.must_end_on[j] == NOWHERE:
            continue
        is_somewhere, is_safe = False, False
        for d in range(devices):
            if has(row, d * words, j):
                is_somewhere = True
                is_safe = is_safe or not p.is_capacitated[d]
        if p.must_end_on[j] == ANYWHERE:
            if not (is_somewhere if p.is_final[j] else is_safe):
                put(wanted, 0, j)
        elif p.update_of[j] >= 0 and not is_somewhere:
            put(wanted, 0, j)
    for i in range(p.floor.size - 1, -1, -1):
        is_relevant[i] = False
        if is_done(p, row, i):
            continue
        for w in range(words):
            if p.makes[i, w] & wanted[w]:
                is_relevant[i] = True
        if is_relevant[i]:
            for w in range(words):
                wanted[w] |= p.reads[i, w]


@inlined
def forget(p: StateView, row: Words, is_relevant: NDArray[np.bool_], wanted: Words) -> None:
    """Drop from `row` what no future run needs, so that equal futures are equal states."""
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    relevance(p, row, is_relevant, wanted)
    for j in range(p.must_end_on.size):
        if has(wanted, 0, j) or p.must_end_on[j] == ANYWHERE:
            continue
        result, place = p.result_of[j], p.must_end_on[j]
        if result >= 0:
            if not has(row, p.must_end_on[result] * words, result):
                continue  # it may have to be at home when its result comes there
            place = NOWHERE
            for d in range(devices):
                row[devices * words + d] &= ~(ONE << np.uint64(p.mark[j]))
        elif place >= 0 and (p.update_of[j] < 0 or not has(row, place * words, j)):
            continue
        # A result that came home stays there, so it need not be elsewhere.
        for d in range(devices):
            if d != place:
                take(row, d * words, j)


@inlined
def is_finished(p: StateView, row: Words) -> bool:
    """Whether everything that must exist at the end exists."""
    devices, words = p.is_capacitated.size, p.reads.shape[1]
    for j in range(p.must_end_on.size):
        if p.must_end_on[j] == NOWHERE:
            continue
        is_there = False
        for d in range(devices):
            if p.must_end_on[j] in (ANYWHERE, d) and has(row, d * words, j):
                is_there = True
        if not is_there:
            return False
    return True
