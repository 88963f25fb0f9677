"""Finds ops and gaps that play the same part in repeated blocks, such as the layers of a network."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from tvm_xengine.solvers.local_search.arrays import Arrays, Ints

_ROUNDS = 3


class Surroundings(NamedTuple):
    """What the moves need to know beside the problem itself; lists are packed as in `Arrays`.

    Attributes
    ----------
    touch_at, touch
        The touches of each tensor.
    before_at, before, after_at, after
        Ops that must run before and after each op.
    twin_at, twin
        Members of each class of gaps, in order.
    gap_class, op_class
        Class of each gap and op.
    kin_at, kin
        Members of each class of ops, in order.
    """

    touch_at: Ints
    touch: Ints
    before_at: Ints
    before: Ints
    after_at: Ints
    after: Ints
    twin_at: Ints
    twin: Ints
    gap_class: Ints
    op_class: Ints
    kin_at: Ints
    kin: Ints


def surroundings_of(arrays: Arrays) -> Surroundings:
    """Touches of the needed ops, their precedence, and the classes of ops and gaps."""
    needed = set(arrays.needed_ops.tolist())
    touches: list[list[int]] = [[] for _ in range(arrays.n_tensors)]
    for i in arrays.needed_ops.tolist():
        for k in range(arrays.touch_ptr[i], arrays.touch_ptr[i + 1]):
            touches[arrays.touch_tensor[k]].append(k)
    before = [
        [j for j in earlier if j in needed] if i in needed else []
        for i, earlier in enumerate(arrays.prerequisites)
    ]
    after = [
        [j for j in later if j in needed] if i in needed else []
        for i, later in enumerate(arrays.dependents)
    ]
    op_class = _classes(arrays, before, after)
    gap_class = _gap_classes(arrays, op_class)
    touch_at, touch = _packed(touches)
    before_at, before_flat = _packed(before)
    after_at, after_flat = _packed(after)
    twin_at, twin = _packed(_members(gap_class))
    kin_at, kin = _packed(_members(op_class))
    return Surroundings(
        touch_at,
        touch,
        before_at,
        before_flat,
        after_at,
        after_flat,
        twin_at,
        twin,
        gap_class,
        op_class,
        kin_at,
        kin,
    )


def _classes(arrays: Arrays, before: list[list[int]], after: list[list[int]]) -> Ints:
    """Class of each op: equal kernel, and equal classes of its neighbours (Weisfeiler-Leman)."""
    colour = _numbered([op.kernel for op in arrays.problem.graph.ops])
    for _ in range(_ROUNDS):
        colour = _numbered(
            [
                (
                    own,
                    tuple(sorted(colour[j] for j in earlier)),
                    tuple(sorted(colour[j] for j in later)),
                )
                for own, earlier, later in zip(colour, before, after, strict=True)
            ]
        )
    return np.array(colour, dtype=np.int64)


def _gap_classes(arrays: Arrays, op_class: Ints) -> Ints:
    """Class of each gap: same operand of ops of one class; gaps before the first touch are alone."""
    keys: list[tuple[int, int]] = []
    for i in range(arrays.n_ops):
        width = int(arrays.touch_ptr[i + 1] - arrays.touch_ptr[i])
        keys.extend((int(op_class[i]), slot) for slot in range(width))
    keys.extend((-1, t) for t in range(arrays.n_tensors))
    return np.array(_numbered(keys), dtype=np.int64)


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]


def _members(classes: Ints) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(int(classes.max()) + 1)]
    for k, c in enumerate(classes.tolist()):
        members[c].append(k)
    return members


def _packed(lists: list[list[int]]) -> tuple[Ints, Ints]:
    pointers = np.concatenate([[0], np.cumsum([len(items) for items in lists])])
    return pointers.astype(np.int64), np.array(
        [item for items in lists for item in items], dtype=np.int64
    )
