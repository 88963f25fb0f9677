"""A move of the compiled search, and scratch arrays for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.astar.bounds.covers import Covers
from tvm_xengine.solvers.astar.estimate import Scratch, new_scratch
from tvm_xengine.solvers.astar.memory import Memory
from tvm_xengine.solvers.astar.view import StateView, Words

STAY, DROP, SAVE = range(3)
"""What happens to a candidate; `SAVE` + r saves it on device r."""


class MoveScratch(NamedTuple):
    """Scratch arrays for the current move."""

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


def new_move_scratch(view: StateView, covers: Covers, row: int) -> MoveScratch:
    """Scratch arrays for a problem whose states have `row` words."""
    (ops, words), tensors = view.reads.shape, view.size.size
    return MoveScratch(
        new_scratch(view, covers),
        new_scratch(view, covers),
        np.zeros(ops, np.bool_),
        np.zeros(words, np.uint64),
        np.zeros(ops, np.bool_),
        np.zeros(words, np.uint64),
        np.zeros(row, np.uint64),
        np.zeros(row, np.uint64),
        np.zeros(tensors, np.int64),
        np.zeros(tensors, np.int64),
        np.zeros(tensors + 1, np.int64),
        np.zeros(tensors),
        np.zeros(tensors, np.int64),
        np.zeros(tensors, np.int64),
    )


class Expansion(NamedTuple):
    """A state that is expanded, with all that its expansion reads and writes.

    Attributes
    ----------
    key
        Lower bound on every schedule through the state.
    cut
        Only schedules of less than it are of interest.
    """

    problem: StateView
    covers: Covers
    memory: Memory
    scratch: MoveScratch
    state: int
    key: float
    cut: float


class Move(NamedTuple):
    """A move, before evictions make room for it.

    Attributes
    ----------
    code
        ``op * D + device``, or ``n * D + tensor * D + device`` of a copy.
    op, tensor
        What is run or copied, the other is `NONE`.
    device
        Where that happens.
    weight
        Of the run or copy, with what is fetched for it.
    units
        Bytes that are taken on the device.
    unread
        The ops whose runs wait for a reader afterwards.
    """

    code: int
    op: int
    tensor: int
    device: int
    weight: float
    units: int
    unread: np.uint64
