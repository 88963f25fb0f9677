"""Writes a schedule as a solution of the stage model `tight`, for a backend to begin from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Transfer, with_frees
from tvm_xengine.solvers.exact.copies import hop_count
from tvm_xengine.solvers.exact.tight import TightModel
from tvm_xengine.solvers.indexed import ANYWHERE
from tvm_xengine.solvers.program import is_set


def encode_tight(model: TightModel, schedule: Schedule) -> NDArray[np.float64] | None:
    """The solution of `model` that stands for `schedule`; None when it is not of its class.

    Copies move to the place of the tensor's producer in their stage, which may not fit where
    the schedule does; then there is none either.
    """
    p = model.indexed
    x = np.zeros(model.program.column_count)
    op_index, tensor_index, device_index = p.op_index, p.tensor_index, p.problem.platform.index
    resident = np.zeros((p.device_count, p.tensor_count), np.bool_)
    for j, d in enumerate(p.home.tolist()):
        resident[d, j] = d >= 0
    stage, is_boundary = 0, True
    for step in with_frees(p.problem, schedule.steps).steps:
        # Copies of a result right after its first run still belong to the stage of that run.
        is_late = (
            is_boundary
            and isinstance(step, Transfer)
            and p.producer[tensor_index[step.tensor]] == stage - 1
            and is_set(x, model.compute[device_index[step.src], stage - 1, stage - 1])
        )
        if is_boundary and not is_late and not isinstance(step, Free):
            _set(x, model.keep[:, stage], resident)
            is_boundary = False
        match step:
            case Compute(op, device):
                if op not in op_index:
                    return None
                i, d = op_index[op], device_index[device]
                column = model.compute[d, stage, i]
                if i > stage or column < 0 or x[column]:
                    return None
                x[column] = 1.0
                for j in p.makes[i]:
                    resident[d, j] = True
                    if p.update_of[j] >= 0:
                        resident[d, p.update_of[j]] = False
                if i == stage:
                    stage, is_boundary = stage + 1, True
            case Transfer(tensor, src, dst):
                j, b = tensor_index[tensor], device_index[dst]
                t, a = stage - is_late, device_index[src]
                hop = _next_hop(model, x, a, t, j)
                if hop < 0 or not model.copies.take(x, t, j, a, b, hop):
                    return None
                resident[b, j] = True
                if p.update_of[j] >= 0 and p.home[p.update_of[j]] == b:
                    resident[b, p.update_of[j]] = False
            case Free(tensor, device):
                if tensor in tensor_index:
                    resident[device_index[device], tensor_index[tensor]] = False
    if is_boundary:
        _set(x, model.keep[:, stage], resident)
    _make_and_hold(model, x)
    return x if model.program.is_satisfied_by(x) else None


def _set(x: NDArray[np.float64], columns: NDArray[np.int64], values: NDArray[np.bool_]) -> None:
    """Set the columns that exist."""
    exists = columns >= 0
    x[columns[exists]] = values[exists]


def _next_hop(model: TightModel, x: NDArray[np.float64], a: int, t: int, j: int) -> int:
    """The hop of a copy of tensor j from device a in stage t; -1 when it has no source there."""
    producer = int(model.indexed.producer[j])
    is_made = producer >= 0 and is_set(x, model.compute[a, t, producer])
    if is_made or is_set(x, model.keep[a, t, j]):
        return 0
    last = hop_count(model.indexed) - 1
    hops: dict[int, int] = {}
    for source, destination in model.copies.taken(x, t, j):
        hops[destination] = hops.get(source, -1) + 1
    return hops[a] + 1 if hops.get(a, last) < last else -1


def _make_and_hold(model: TightModel, x: NDArray[np.float64]) -> None:
    """Derive `made` and `held` from what is computed, copied and kept."""
    p = model.indexed
    for j in range(p.tensor_count):
        i = int(p.producer[j])
        if i < 0 or len(p.makes[i]) == 1:
            continue
        for d, t in zip(*np.nonzero(model.made[:, :, j] >= 0), strict=True):
            kept = model.keep[d, t, j]
            is_kept = kept >= 0 and x[kept] > 0.5
            x[model.made[d, t, j]] = 0.0 if is_kept else x[model.compute[d, t, i]]
    for (t, j), held in model.held.items():
        for d in range(p.device_count):
            following = model.keep[d, t + 1, j] if t < p.op_count else -1
            is_needed = following >= 0 and x[following] > 0.5
            for q in reversed(range(held.shape[1])):
                slot = model.slots[t, j][q]
                is_needed = is_needed or _is_read(model, x, d, t, j, slot)
                x[held[d, q]] = float(is_needed)


def _is_read(model: TightModel, x: NDArray[np.float64], d: int, t: int, j: int, slot: int) -> bool:
    """Whether tensor j must be on device d in that slot of stage t."""
    p = model.indexed
    if slot == p.op_count:  # the end of the step
        where = int(p.must_end_on[j])
        here = [model.keep[d, t, j], *model.copies.arriving(d, t, j)]
        i = int(p.producer[j])
        here += [model.compute[d, t, i]] if i >= 0 else []
        return where in (d, ANYWHERE) and any(c >= 0 and x[c] > 0.5 for c in here)
    if slot in p.consumers[j]:
        column = model.compute[d, t, slot]
        if column >= 0 and x[column] > 0.5:
            return True
    if p.updated_by[j] == slot and p.home[j] == d:
        landed = [
            column
            for o in p.makes[slot]
            if p.update_of[o] == j
            for column in model.copies.arriving(d, t, o)
        ]
        return any(x[c] > 0.5 for c in landed)
    return False
