"""Compiled: A* over states, each move a run or a copy with the evictions that it needs.

Schedules are only looked at in one form that loses nothing: what an op reads arrives right
before it; a tensor leaves a capacitated device only when its bytes are needed, and then in minimal
sets; what leaves is dropped or saved on an uncapacitated device, as is state right
before it is overwritten. What runs on an uncapacitated device waits until a run on a
capacitated device, or one that leads to it, reads it, or until nothing more will run on those. Copies
between capacitated devices may come at any time, and results go home when nothing else is left to do
or when they are on a capacitated device.
"""

# Compiled code has no generators, so loops stay loops.

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.astar.bits import assign
from tvm_xengine.solvers.astar.bounds.covers import Covers
from tvm_xengine.solvers.astar.estimate import estimate
from tvm_xengine.solvers.astar.eviction import make_room
from tvm_xengine.solvers.astar.memory import (
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
from tvm_xengine.solvers.astar.move_scratch import Expansion, Move, MoveScratch
from tvm_xengine.solvers.astar.moves import copy, may_copy, run
from tvm_xengine.solvers.astar.view import StateView, Words
from tvm_xengine.solvers.astar.walk import DEAD_END, is_finished, needs, relevance
from tvm_xengine.solvers.compiled import entry, inlined
from tvm_xengine.solvers.indexed import NONE

RUNNING, EXHAUSTED, FOUND, FULL = range(4)
"""What `advance` answers."""


@entry
def begin(p: StateView, c: Covers, m: Memory, b: MoveScratch, first: Words) -> None:
    """Open the first state."""
    assign(m.rows[0], first)
    m.paid[0] = 0.0
    m.parent[0] = NONE
    m.least[0] = estimate(p, c, first, b.inner)
    m.table[find(m, first)] = 0
    m.counter[COUNT] = 1
    if m.least[0] != DEAD_END:
        push(m, m.least[0], 0.0, 0)


@entry
def advance(
    p: StateView,
    c: Covers,
    m: Memory,
    b: MoveScratch,
    cut: float,
    ways: int,
    reached: NDArray[np.float64],
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
        _expand(Expansion(p, c, m, b, state, key, cut))
        if m.counter[WAYS] - before >= m.counter[MOST_WAYS]:
            return FULL
    return RUNNING


@inlined
def _expand(e: Expansion) -> None:
    p, b = e.problem, e.scratch
    row = e.memory.rows[e.state]
    relevance(p, row, b.is_relevant, b.wanted)
    needs(p, row, b.outer.anywhere, b.outer.need, b.outer.wanted)
    is_needed = False
    for i in range(p.floor.size):
        is_needed = is_needed or b.outer.need[i]
    ops, devices, kernels = p.floor.size, p.is_capacitated.size, p.workspace.shape[2]
    # One loop and one call of `make_room`, as all of it is compiled wherever it is called.
    for number in range((ops * kernels + p.must_end_on.size) * devices):
        d, which = number % devices, number // devices
        if which < ops * kernels:
            i, j, kernel = which // kernels, NONE, which % kernels
            code = i * devices + d
            if not b.is_relevant[i] or not np.isfinite(p.compute_value[i, d]):
                continue
            if kernel < kernels - 1 and not _is_choice(p, i, d, kernel):
                continue
            weight, units, unread = run(e, i, d, kernel)
        else:
            i, j = NONE, which - ops * kernels
            code = (ops + j) * devices + d
            if not may_copy(p, row, b, j, d, is_needed):
                continue
            weight, units, unread = copy(e, j, d)
        if e.memory.paid[e.state] + weight < e.cut:
            make_room(e, Move(code, i, j, d, weight, units, unread))


@inlined
def _is_choice(p: StateView, i: int, d: int, kernel: int) -> bool:
    """Whether a kernel that is not the cheapest may be worth a run: it is leaner, and memory is short."""
    return bool(p.is_capacitated[d] and p.workspace[i, d, kernel] < p.workspace[i, d, kernel + 1])
