"""Writes a schedule as a solution of a time point relaxation, for a backend to begin from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Step, Transfer, with_frees
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.relaxation.time_points import TimePointModel
from tvm_xengine.solvers.relaxation.uncapacitated import there_at_once

_ABSENT = -1  # where a grid of columns has none


def encode_time_points(model: TimePointModel, schedule: Schedule) -> NDArray[np.float64] | None:
    """The solution of `model` to which `schedule` projects; None when it has none.

    It has none when first runs follow another order than the model's periods allow, and for
    the makespan, whose model has more columns. Its objective is at most that of the schedule.
    On devices with room for everything, what is ever there is so from its first run on.
    """
    p, may_be = model.indexed, model.periods.may_be
    x = np.zeros(model.program.column_count)
    op_index, tensor_index, device_index = p.op_index, p.tensor_index, p.problem.platform.index
    link_index = {link: e for e, link in enumerate(p.links)}
    at_once = there_at_once(p)
    steps = with_frees(p.problem, schedule.steps).steps
    is_early = at_once & _ever_there(p, steps)
    resident = p.at_home | (is_early & (p.producer < 0))
    first_period = np.full(p.op_count, _ABSENT)
    first_device = np.full(p.op_count, _ABSENT)
    period = 0
    for step in steps:
        match step:
            case Compute(op, device) if op in op_index:
                i, d = op_index[op], device_index[device]
                is_first = first_period[i] < 0
                if is_first and period < len(may_be) and may_be[period, i]:
                    _set_where_there_is_one(x, model.keep[period], resident)
                    columns = model.at[period, d, i]
                    period += 1
                elif at_once[d, list(p.makes[i])].all() and not is_first:
                    columns = model.run[first_period[i], d, i]
                else:
                    columns = model.run[period, d, i]
                _set_where_there_is_one(x, columns, np.True_)
                if is_first:
                    first_period[i], first_device[i] = period, d
                for j in p.makes[i]:
                    resident[d, j] = True
                    if is_first:
                        resident[:, j] |= is_early[:, j]
                    if p.update_of[j] >= 0:
                        resident[d, p.update_of[j]] = False
            case Transfer(tensor, src, dst) if tensor in tensor_index:
                j, a, b = tensor_index[tensor], device_index[src], device_index[dst]
                when, made_by = period, int(p.producer[j])
                if at_once[b, j]:
                    when = 0 if made_by < 0 else int(first_period[made_by])
                    a = int(p.home[j]) if made_by < 0 else int(first_device[made_by])
                if a != b:
                    _set_where_there_is_one(x, model.copy[when, link_index[a, b], j], np.True_)
                resident[b, j] = True
                if p.update_of[j] >= 0 and p.home[p.update_of[j]] == b:
                    resident[b, p.update_of[j]] = False
            case Free(tensor, device) if tensor in tensor_index:
                d, j = device_index[device], tensor_index[tensor]
                resident[d, j] = is_early[d, j] and p.updated_by[j] < 0
    _set_where_there_is_one(x, model.keep[len(may_be)], resident)
    _set_holds(model, x)
    return x if model.program.is_satisfied_by(x) else None


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
    exists = columns != _ABSENT
    x[columns[exists]] = np.broadcast_to(values, np.shape(columns))[exists]


def _set_holds(model: TimePointModel, x: NDArray[np.float64]) -> None:
    """What is kept at a time point, and neither made nor copied before it, was held until then."""
    p = model.indexed
    held = np.zeros(model.held.shape)
    for k, d, j in zip(*(axis.tolist() for axis in np.nonzero(model.hold != _ABSENT)), strict=True):
        run = int(model.run[k, d, p.producer[j]]) if p.producer[j] >= 0 else _ABSENT
        copies = [int(model.copy[k, e, j]) for e, (_, b) in enumerate(p.links) if b == d]
        renewed = any(column != _ABSENT and x[column] > 0.5 for column in (run, *copies))
        if x[model.keep[k, d, j]] > 0.5 and not renewed:
            x[model.hold[k, d, j]] = 1.0
            held[k, d] += p.size[j] / p.budget[d]
    exists = model.held != _ABSENT
    x[model.held[exists]] = held[exists]
