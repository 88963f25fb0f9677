"""Lower bounds from state that must leave a capacitated device while some op runs there.

All state homed on device d is there in the end, and what was updated there stays. So while op u
runs on d, state that u does not touch must be out until the rest fits, and each such tensor comes
back later: its copies are paid in full, which no linear relaxation sees. Either u never runs on d
again, or some such *cover* of the excess is paid; copies counted for covers are free in the
potential that is added.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.astar.bounds.potentials import Potential, Rest
from tvm_xengine.solvers.astar.view import WORD, StateView
from tvm_xengine.solvers.indexed import NONE, NOWHERE, IndexedProblem

_TIME_POINTS = 3
_LARGE_STATE = 7
"""Time points and tensors of state that covers look at: an estimate goes through 2^3 sets of time points,
and covers are subsets of 7 tensors, 127 at most. Chosen for that cost."""
_LARGE_SHARE = 0.1
"""State below this share of the largest is taken to be where it disturbs least."""


class Covers(NamedTuple):
    """Arrays for the compiled estimate; M time points, K large tensors of state, S = 2**M.

    Attributes
    ----------
    device
        The capacitated device looked at, `NONE` without any time point.
    op
        The op of each time point, shape (M,).
    state
        Large state homed on the device, shape (K,).
    cover
        For each time point the minimal sets of state that make room, as bits, `NONE` for none, (M, C).
    constant
        Of each potential, shape (2 S,): first those in which the time points of a subset do not run
        on the device, by subset; then the same with free copies of `state` to and from it.
    table
        What each byte of a state's words adds, shape (2 S, B, 256).
    word, shift
        Which word (`NONE` for the needed ops) and which bits of it byte b is, shape (B,).
    """

    device: int
    op: NDArray[np.int64]
    state: NDArray[np.int64]
    cover: NDArray[np.int64]
    constant: NDArray[np.float64]
    table: NDArray[np.float64]
    word: NDArray[np.int64]
    shift: NDArray[np.uint64]


def make_covers(indexed: IndexedProblem, view: StateView) -> Covers:
    """The time points that ask most of the tightest device, their covers and potentials."""
    rest = Rest(indexed)
    device, state, time_points = _tightest(indexed, view)
    covers = [_minimal_covers(indexed, view, device, state, u) for u in time_points]
    free = [
        key
        for j in state
        for a in range(indexed.device_count)
        if a != device
        for key in ((a, device, j), (device, a, j))
    ]
    subsets = [
        [u for k, u in enumerate(time_points) if chosen >> k & 1]
        for chosen in range(1 << len(time_points))
    ]
    potentials = [
        rest.potential(not_run=[(device, u) for u in subset], free=copies)
        for copies in ([], free)
        for subset in subsets
    ]
    width = max((len(sets) for sets in covers), default=0)
    return Covers(
        device,
        np.array(time_points, np.int64),
        np.array(state, np.int64),
        np.array([sets + [-1] * (width - len(sets)) for sets in covers], np.int64).reshape(
            len(time_points), width
        ),
        np.array([potential.constant for potential in potentials]),
        *_tables(indexed, potentials),
    )


def _tightest(indexed: IndexedProblem, view: StateView) -> tuple[int, list[int], list[int]]:
    """(device, its large state, the ops that ask most of it), -1 and nothing if none is short."""
    best: tuple[float, int, list[int], list[int]] = (0.0, NONE, [], [])
    for d in np.flatnonzero(view.is_capacitated).tolist():
        state = _large_state(indexed, view, d)
        excess = {
            u: over
            for u in range(indexed.op_count)
            if indexed.can_run[u, d] and (over := _excess(indexed, view, d, state, u)) > 0
        }
        share = max(excess.values(), default=0.0) / max(1.0, float(indexed.budget[d]))
        if share > best[0]:
            time_points = sorted(excess, key=lambda u: -excess[u])[:_TIME_POINTS]
            best = (share, d, state, time_points)
    return best[1:]


def _large_state(indexed: IndexedProblem, view: StateView, d: int) -> list[int]:
    state = [
        int(j)
        for j in view.by_size
        if indexed.home[j] == d and (view.result_of[j] >= 0 or indexed.must_end_on[j] != NOWHERE)
    ]
    least = _LARGE_SHARE * view.size[state[0]] if state else 0.0
    return [j for j in state if view.size[j] > least][:_LARGE_STATE]


def _excess(indexed: IndexedProblem, view: StateView, d: int, state: list[int], u: int) -> int:
    """Units by which the large state and the tensors of u exceed the budget of d."""
    touched = {*indexed.reads[u], *indexed.makes[u]}
    own = [j for j in touched if j not in state and indexed.update_of[j] < 0]
    total = int(view.size[state].sum() + view.size[own].sum() + indexed.workspace[u, d])
    return total - int(indexed.budget[d])


def _minimal_covers(
    indexed: IndexedProblem, view: StateView, d: int, state: list[int], u: int
) -> list[int]:
    excess = _excess(indexed, view, d, state, u)
    may_leave = [k for k, j in enumerate(state) if j not in indexed.reads[u]]
    covers: list[int] = []
    for count in range(1, len(may_leave) + 1):
        for chosen in combinations(may_leave, count):
            sizes = [int(view.size[state[k]]) for k in chosen]
            if sum(sizes) >= excess and sum(sizes) - min(sizes) < excess:
                covers.append(sum(1 << k for k in chosen))
    return covers


def _tables(
    indexed: IndexedProblem, potentials: list[Potential]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.uint64]]:
    """What every byte of the needed ops and of each device's tensors adds to each potential."""
    words = -(-indexed.tensor_count // WORD)
    ops = [(NONE, b, slice(b, b + 8)) for b in range(0, indexed.op_count, 8)]
    tensors = [
        (d * words + j // WORD, j % WORD, slice(j, j + 8), d)
        for d in range(indexed.device_count)
        for j in range(0, indexed.tensor_count, 8)
    ]
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    table = np.zeros((len(potentials), len(ops) + len(tensors), 256))
    for q, potential in enumerate(potentials):
        for b, (_, _, part) in enumerate(ops):
            values = potential.needed[part]
            table[q, b] = bits[:, : len(values)] @ values
        for b, (_, _, part, d) in enumerate(tensors, len(ops)):
            values = potential.there[d, part]
            table[q, b] = -(bits[:, : len(values)] @ values)
    places = [*((w, s) for w, s, _ in ops), *((w, s) for w, s, _, _ in tensors)]
    return table, np.array([w for w, _ in places]), np.array([s for _, s in places], np.uint64)
