"""Finds ops and use intervals that correspond to each other in repeated blocks, such as layers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from tvm_xengine.scheduling.ragged import ragged
from tvm_xengine.solvers.indexed import NONE, IndexedProblem, Ints

_ROUNDS = 3
"""So far away neighbours are told apart: enough for the layers of one block."""


class Surroundings(NamedTuple):
    """What the moves need to know in addition to the problem; lists are packed as in `Ragged`.

    Attributes
    ----------
    touch_at, touch
        The touches of each tensor.
    before_at, before, after_at, after
        Ops that must run before and after each op.
    interval_members_at, interval_members
        Members of each class of use intervals, in order.
    op_members_at, op_members
        Members of each class of ops, in order.
    interval_class, op_class
        Class of each use interval and op.
    has_places
        Whether there are several devices to compute on.
    """

    touch_at: Ints
    touch: Ints
    before_at: Ints
    before: Ints
    after_at: Ints
    after: Ints
    interval_members_at: Ints
    interval_members: Ints
    op_members_at: Ints
    op_members: Ints
    interval_class: Ints
    op_class: Ints
    has_places: bool


def surroundings_of(indexed: IndexedProblem) -> Surroundings:
    """Touches of the tensors, precedence of the ops, and the classes of ops and use intervals."""
    touches: list[list[int]] = [[] for _ in indexed.tensor_names]
    for k, j in enumerate(indexed.touches.item.tolist()):
        touches[j].append(k)
    op_class = _op_classes(indexed)
    interval_class = _interval_classes(indexed, op_class)
    return Surroundings(
        *ragged(touches),
        *ragged(indexed.predecessors),
        *ragged(indexed.successors),
        *ragged(_members(interval_class)),
        *ragged(_members(op_class)),
        interval_class=interval_class,
        op_class=op_class,
        has_places=int(indexed.can_run.any(axis=0).sum()) > 1,
    )


def _op_classes(indexed: IndexedProblem) -> Ints:
    """Class of each op: equal kernel, and equal classes of its neighbours (Weisfeiler-Leman)."""
    graph = indexed.problem.graph
    colour = _numbered([graph.op[name].kernel for name in indexed.op_names])
    for _ in range(_ROUNDS):
        colour = _numbered(
            [
                (
                    own,
                    tuple(sorted(colour[i] for i in before)),
                    tuple(sorted(colour[i] for i in after)),
                )
                for own, before, after in zip(
                    colour, indexed.predecessors, indexed.successors, strict=True
                )
            ]
        )
    return np.array(colour, dtype=np.int64)


def _interval_classes(indexed: IndexedProblem, op_class: Ints) -> Ints:
    """Same operand of ops of one class; each interval before a first touch is a class of its own."""
    keys: list[tuple[int, int]] = []
    for i, (reads, makes) in enumerate(zip(indexed.reads, indexed.makes, strict=True)):
        keys.extend((int(op_class[i]), slot) for slot in range(len(reads) + len(makes)))
    keys.extend((NONE, j) for j in range(indexed.tensor_count))
    return np.array(_numbered(keys), dtype=np.int64)


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]


def _members(classes: Ints) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(int(classes.max()) + 1)]
    for k, c in enumerate(classes.tolist()):
        members[c].append(k)
    return members
