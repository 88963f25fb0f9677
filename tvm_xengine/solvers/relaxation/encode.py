"""Writes a schedule as a solution of a time point relaxation, for a backend to begin from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.needless_steps import survivors_of
from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Step, Transfer, with_frees
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.program import ABSENT
from tvm_xengine.solvers.relaxation.time_points import TimePointModel


def encode_time_points(model: TimePointModel, schedule: Schedule) -> NDArray[np.float64] | None:
    """The solution of `model` to which `schedule` projects; None when it has none.

    It has none when first runs follow another order than the model's periods allow, and for
    the makespan, whose model has more columns. Its objective is at most that of the schedule.
    """
    x = projected(model, schedule)
    return x if model.program.is_satisfied_by(x) else None


def projected(model: TimePointModel, schedule: Schedule) -> NDArray[np.float64]:
    """The columns that say what `schedule` does in each period; those of times are 0.

    On devices with room for everything, what is ever there is so from its first run on, if the model
    says so.
    """
    p = model.indexed
    op_index, tensor_index, device = p.op_index, p.tensor_index, p.problem.platform.index
    survivors = survivors_of(p.problem, schedule)
    steps = with_frees(p.problem, schedule.steps, survivors=survivors).steps
    encoding = _Encoding(model, _ever_there(p, steps))
    for step in steps:
        match step:
            case Compute(op, where, variant) if op in op_index:
                cost = p.problem.run_cost(op, where, variant)
                encoding.run(op_index[op], device[where], cost.workspace_bytes // p.unit_bytes)
            case Transfer(tensor, src, dst) if tensor in tensor_index:
                encoding.copy(tensor_index[tensor], device[src], device[dst])
            case Free(tensor, where) if tensor in tensor_index:
                encoding.free(tensor_index[tensor], device[where])
    return encoding.columns()


class _Encoding:
    """The columns that are set so far, and what is where."""

    def __init__(self, model: TimePointModel, ever_there: NDArray[np.bool_]) -> None:
        p = model.indexed
        self._model = model
        self._x = np.zeros(model.program.column_count)
        self._link = {link: e for e, link in enumerate(p.links)}
        self._at_once = model.at_once
        self._is_early = self._at_once & ever_there
        self._resident = p.at_home | (self._is_early & (p.producer < 0))
        self._first_period = np.full(p.op_count, ABSENT)
        self._first_device = np.full(p.op_count, ABSENT)
        self._period = 0

    def run(self, i: int, d: int, workspace: int) -> None:
        model, p = self._model, self._model.indexed
        may_be, is_first = model.periods.may_be, self._first_period[i] < 0
        if is_first and (ahead := np.flatnonzero(may_be[self._period :, i])).size:
            for _ in range(int(ahead[0])):  # places for other ops that stay empty
                self._pass_time_point()
            self._keep_what_is_there()
            columns, takes = model.at[self._period, d, i], model.at_takes[self._period, d, i]
            self._period += 1
        elif self._at_once[d, list(p.makes[i])].all() and not is_first:
            at = self._first_period[i]
            columns, takes = model.run[at, d, i], model.run_takes[at, d, i]
        else:
            columns, takes = model.run[self._period, d, i], model.run_takes[self._period, d, i]
        if columns != ABSENT:
            self._take(takes, p.kernels.workspace[i, d] <= workspace)
        _set_where_there_is_one(self._x, columns, np.True_)
        if is_first:
            self._first_period[i], self._first_device[i] = self._period, d
        for j in p.makes[i]:
            self._resident[d, j] = True
            if is_first:
                self._resident[:, j] |= self._is_early[:, j]
            if p.update_of[j] >= 0:
                self._resident[d, p.update_of[j]] = False

    def _pass_time_point(self) -> None:
        self._keep_what_is_there()
        self._period += 1

    def _keep_what_is_there(self) -> None:
        _set_where_there_is_one(self._x, self._model.keep[self._period], self._resident)

    def _take(self, takes: NDArray[np.int64], fits: NDArray[np.bool_]) -> None:
        """Note the cheapest kernel with which a run of the period is made."""
        taken = takes[fits & (takes != ABSENT)]
        known = takes[takes != ABSENT]
        if taken.size and not self._x[known[known >= taken[-1]]].any():
            self._x[known] = 0.0
            self._x[taken[-1]] = 1.0

    def copy(self, j: int, a: int, b: int) -> None:
        p = self._model.indexed
        when, made_by = self._period, int(p.producer[j])
        if self._at_once[b, j]:
            when = 0 if made_by < 0 else int(self._first_period[made_by])
            a = int(p.home[j]) if made_by < 0 else int(self._first_device[made_by])
        if a != b:
            columns = self._model.copy[when, self._link[a, b], j]
            _set_where_there_is_one(self._x, columns, np.True_)
        self._resident[b, j] = True
        if p.update_of[j] >= 0 and p.home[p.update_of[j]] == b:
            self._resident[b, p.update_of[j]] = False

    def free(self, j: int, d: int) -> None:
        is_updated = self._model.indexed.updated_by[j] >= 0
        self._resident[d, j] = self._is_early[d, j] and not is_updated

    def columns(self) -> NDArray[np.float64]:
        """All columns, when every step is read."""
        model = self._model
        while self._period < len(model.periods.may_be):
            self._pass_time_point()
        self._keep_what_is_there()
        _set_holds(model, self._x)
        return self._x


def _ever_there(p: IndexedProblem, steps: Sequence[Step]) -> NDArray[np.bool_]:
    """Whether tensor j is on device d at some time, shape (D, J)."""
    there = p.at_home.copy()
    for step in steps:
        match step:
            case Compute(op, device) if op in p.op_index:
                there[p.problem.platform.index[device], list(p.makes[p.op_index[op]])] = True
            case Transfer(tensor, _, dst) if tensor in p.tensor_index:
                there[p.problem.platform.index[dst], p.tensor_index[tensor]] = True
    return there


def _set_where_there_is_one(
    x: NDArray[np.float64], columns: NDArray[np.int64], values: NDArray[np.bool_] | np.bool_
) -> None:
    exists = columns != ABSENT
    x[columns[exists]] = np.broadcast_to(values, np.shape(columns))[exists]


def _set_holds(model: TimePointModel, x: NDArray[np.float64]) -> None:
    """What is kept at a time point, and neither made nor copied before it, was held until then."""
    p = model.indexed
    held = np.zeros(model.held.shape)
    for k, d, j in zip(*(axis.tolist() for axis in np.nonzero(model.hold != ABSENT)), strict=True):
        run = int(model.run[k, d, p.producer[j]]) if p.producer[j] >= 0 else ABSENT
        copies = [int(model.copy[k, e, j]) for e, (_, b) in enumerate(p.links) if b == d]
        renewed = any(column != ABSENT and x[column] > 0.5 for column in (run, *copies))
        if x[model.keep[k, d, j]] > 0.5 and not renewed:
            x[model.hold[k, d, j]] = 1.0
            held[k, d] += p.size[j] / p.budget[d]
    exists = model.held != ABSENT
    x[model.held[exists]] = held[exists]
