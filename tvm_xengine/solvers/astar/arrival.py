"""Compiled: the states that a move leads to."""

# Compiled code has no generators, so loops stay loops.

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.astar.bits import ONE, assign, has, put, take
from tvm_xengine.solvers.astar.estimate import estimate
from tvm_xengine.solvers.astar.memory import COUNT, OPEN, find, push
from tvm_xengine.solvers.astar.move_scratch import SAVE, STAY, Expansion, Move
from tvm_xengine.solvers.astar.view import StateView, Words
from tvm_xengine.solvers.astar.walk import DEAD_END, forget, overwrite
from tvm_xengine.solvers.compiled import inlined


@inlined
def finish(p: StateView, row: Words, move: Move) -> None:
    """Apply a move to a state whose inputs are present."""
    words, devices, d = p.reads.shape[1], p.is_capacitated.size, move.device
    if move.op >= 0:
        for j in range(p.must_end_on.size):
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


@inlined
def arrive(e: Expansion, move: Move, depth: int, paid: float) -> None:
    """Open the states that a move leads to; outputs that no op reads may be kept for good or dropped."""
    p, m, b = e.problem, e.memory, e.scratch
    words, d = p.reads.shape[1], move.device
    finals = 0
    if move.op >= 0 and p.is_capacitated[d]:
        for j in range(p.must_end_on.size):
            if p.is_final[j] and p.size[j] > 0 and has(p.makes[move.op], 0, j):
                is_new = True
                for a in range(p.is_capacitated.size):
                    is_new = is_new and not has(m.rows[e.state], a * words, j)
                if is_new:
                    b.final[finals] = j
                    finals += 1
    for dropped in range(1 << finals):
        assign(b.following, b.base)
        for k in range(depth):
            if b.choice[k] == STAY:
                continue
            take(b.following, d * words, b.candidate[k])
            if b.choice[k] >= SAVE:
                put(b.following, (b.choice[k] - SAVE) * words, b.candidate[k])
        finish(p, b.following, move)
        for k in range(finals):
            if dropped >> k & 1:
                take(b.following, d * words, b.final[k])
        _open(e, move, paid)


@inlined
def _open(e: Expansion, move: Move, paid: float) -> None:
    p, m, b = e.problem, e.memory, e.scratch
    forget(p, b.following, b.is_relevant_next, b.wanted_next)
    slot = find(m, b.following)
    state = m.table[slot]
    if state < 0:
        least = estimate(p, e.covers, b.following, b.inner)
        seen = m.known.table[find(m.known, b.following)]
        if seen >= 0 and least != DEAD_END:
            least = max(least, m.known.least[seen])
        if least == DEAD_END or paid + least >= e.cut or m.counter[COUNT] >= m.paid.size:
            return
        state = m.counter[COUNT]
        m.counter[COUNT] += 1
        m.table[slot] = state
        assign(m.rows[state], b.following)
        m.paid[state] = np.inf
        m.least[state] = least
    if paid < m.paid[state] - 1e-12 and paid + m.least[state] < e.cut:
        m.paid[state] = paid
        m.parent[state] = e.state
        m.move[state] = move.code
        if m.counter[OPEN] < m.key.size:
            push(m, max(e.key, paid + m.least[state]), paid, state)
