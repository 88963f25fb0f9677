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
    encoding = _Encoding(model)
    for step in with_frees(p.problem, schedule.steps).steps:
        match step:
            case Compute(op, device, variant):
                cost = p.problem.run_cost(op, device, variant)
                fits = op in p.op_index and encoding.run(
                    p.op_index[op], encoding.device[device], cost.workspace_bytes // p.unit_bytes
                )
            case Transfer(tensor, src, dst):
                fits = encoding.copy(
                    p.tensor_index[tensor], encoding.device[src], encoding.device[dst]
                )
            case Free(tensor, device):
                fits = True
                if tensor in p.tensor_index:
                    encoding.resident[encoding.device[device], p.tensor_index[tensor]] = False
        if not fits:
            return None
    return encoding.solution()


class _Encoding:
    """The columns that are set so far, and what is where."""

    def __init__(self, model: TightModel) -> None:
        p = model.indexed
        self._model = model
        self._x = np.zeros(model.program.column_count)
        self._stage = 0
        self._is_boundary = True
        self.device = p.problem.platform.index
        self.resident = p.at_home.copy()

    def run(self, i: int, d: int, workspace: int) -> bool:
        """Run op i on device d within a workspace; False where the model has no column for it."""
        self._enter_stage()
        p, stage = self._model.indexed, self._stage
        column = self._model.compute[d, stage, i]
        if i > stage or column < 0 or self._x[column]:
            return False
        self._x[column] = 1.0
        fitting = np.flatnonzero(p.kernels.workspace[i, d] <= workspace)
        taken = self._model.takes[d, stage, i, fitting]
        self._x[taken[taken >= 0][-1:]] = 1.0
        for j in p.makes[i]:
            self.resident[d, j] = True
            if p.update_of[j] >= 0:
                self.resident[d, p.update_of[j]] = False
        if i == stage:
            self._stage, self._is_boundary = stage + 1, True
        return True

    def copy(self, j: int, a: int, b: int) -> bool:
        """Copy tensor j from device a to b; False where the model has no column for it."""
        p = self._model.indexed
        t = self._stage
        if self._is_boundary and self._was_just_made(j, a):
            t -= 1
        else:
            self._enter_stage()
        hop = _next_hop(self._model, self._x, a, t, j)
        if hop < 0 or not self._model.copies.take(self._x, t, j, a, b, hop):
            return False
        self.resident[b, j] = True
        if p.update_of[j] >= 0 and p.home[p.update_of[j]] == b:
            self.resident[b, p.update_of[j]] = False
        return True

    def solution(self) -> NDArray[np.float64] | None:
        """All columns; None where they break a row."""
        self._enter_stage()
        _make_and_hold(self._model, self._x)
        return self._x if self._model.program.is_satisfied_by(self._x) else None

    def _was_just_made(self, j: int, a: int) -> bool:
        """Whether a copy from device a still belongs to the stage of the first run that made j."""
        made_in = self._stage - 1
        return bool(
            self._model.indexed.producer[j] == made_in
            and is_set(self._x, self._model.compute[a, made_in, made_in])
        )

    def _enter_stage(self) -> None:
        if self._is_boundary:
            _set(self._x, self._model.keep[:, self._stage], self.resident)
            self._is_boundary = False


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
