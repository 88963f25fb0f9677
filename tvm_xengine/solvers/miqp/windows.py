"""Exact windows: all is fixed as in a schedule but some ops and tensors, which a backend decides anew.

A window is a connected part of the graph: ops, what they make and state that they read, with
every run, stay and copy of these in every stage. It grows breadth first, in random order, from an op that
the schedule pays more for than its cheapest single run: one that is repeated, that runs on a dearer
device, or whose results are copied. Large-neighbourhood search (Shaw, CP 1998) with exact moves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.exact.tight import TightModel

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Parts:
    """The parts of a problem that a window takes or leaves as a whole.

    Attributes
    ----------
    columns
        For each part, an op with its results or a tensor of the state, its columns.
    beside
        For each part, those that share an op with it.
    """

    columns: tuple[NDArray[np.int64], ...]
    beside: tuple[tuple[int, ...], ...]


def parts_of(model: TightModel) -> Parts:
    """One part for each op, in order, and then for each tensor of the state."""
    p, n = model.indexed, model.indexed.op_count
    state = [j for j in range(p.tensor_count) if p.producer[j] < 0]
    part_of = {j: int(p.producer[j]) for j in range(p.tensor_count) if p.producer[j] >= 0}
    part_of |= {j: n + k for k, j in enumerate(state)}
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(n + len(state))]
    for i in range(n):
        columns[i] += [model.compute[:, :, i].ravel(), model.takes[:, :, i].ravel()]
    held: dict[int, list[NDArray[np.int64]]] = {}
    for (_, j), grid in model.held.items():
        held.setdefault(j, []).append(grid.ravel())
    for j, part in part_of.items():
        grids = (model.keep[:, :, j].ravel(), model.made[:, :, j].ravel())
        columns[part] += [*grids, model.copies.of_tensor(j), *held.get(j, [])]
    beside: list[set[int]] = [set() for _ in columns]
    for i in range(n):
        for j in p.reads[i]:
            beside[i].add(part_of[j])
            beside[part_of[j]].add(i)
    for j in np.flatnonzero(p.update_of >= 0).tolist():
        beside[part_of[j]].add(part_of[int(p.update_of[j])])
        beside[part_of[int(p.update_of[j])]].add(part_of[j])
    return Parts(
        tuple(np.unique(_present(np.concatenate(each))) for each in columns),
        tuple(tuple(sorted(each - {k})) for k, each in enumerate(beside)),
    )


def excess_of_ops(model: TightModel, x: _Values) -> NDArray[np.float64]:
    """For each op what its runs, and the copies of its results, cost above its cheapest single run."""
    p = model.indexed
    paid = np.zeros(p.op_count)
    for i in range(p.op_count):
        for d in range(p.device_count):
            runs = _present(model.compute[d, :, i])
            if len(runs):
                paid[i] += p.kernels.value[i, d, 0] * x[runs].sum()
            for v in range(p.kernels.count):
                taken = _present(model.takes[d, :, i, v])
                if len(taken):
                    saved = p.kernels.value[i, d, 0] - p.kernels.value[i, d, v]
                    paid[i] -= saved * x[taken].sum()
    for j in range(p.tensor_count):
        readers = (int(p.producer[j]),) if p.producer[j] >= 0 else tuple(p.consumers[j])
        for t in range(p.op_count + 1):
            for a, b in model.copies.taken(x, t, j):
                paid[list(readers)] += p.transfer_value[a, b, j] / max(1, len(readers))
    excess: _Values = np.maximum(paid - p.compute_value.min(axis=1), 0.0)
    return excess


def windows(
    model: TightModel, parts: Parts, x: _Values, most_columns: int, draw: random.Random
) -> Iterator[NDArray[np.bool_]]:
    """Which columns are free, for window after window; each op with an excess begins one in turn."""
    excess = excess_of_ops(model, x)
    dear = sorted(np.flatnonzero(excess > 0).tolist(), key=lambda i: -excess[i] * draw.random())
    for seed in dear:
        yield _grown(parts, seed, most_columns, draw, model.program.column_count)


def _grown(
    parts: Parts, seed: int, most_columns: int, draw: random.Random, column_count: int
) -> NDArray[np.bool_]:
    is_free = np.zeros(column_count, np.bool_)
    waiting, seen, taken = [seed], {seed}, 0
    while waiting:
        part = waiting.pop(0)
        taken += len(parts.columns[part])
        if taken > most_columns and part != seed:
            break
        is_free[parts.columns[part]] = True
        following = [other for other in parts.beside[part] if other not in seen]
        draw.shuffle(following)
        waiting += following
        seen.update(following)
    return is_free


def _present(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    return columns[columns >= 0]
