"""Writes a schedule as a solution of a moment relaxation, for a backend to begin from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.schedule import Compute, Free, Schedule, Transfer, with_frees
from tvm_xengine.solvers.formulations.moments import MomentModel

_ABSENT = -1


def encode_moments(model: MomentModel, schedule: Schedule) -> NDArray[np.float64] | None:
    """The solution of `model` to which `schedule` projects; None when it has none.

    It has none when first runs follow another order than the model's periods allow, and for
    the makespan, whose model has more columns. Its objective is at most that of the schedule.
    """
    p, moments = model.indexed, model.periods.moments
    x = np.zeros(model.program.column_count)
    op_index, tensor_index, device_index = p.op_index, p.tensor_index, p.problem.platform.index
    link_index = {link: e for e, link in enumerate(p.links)}
    resident = np.zeros((p.device_count, p.tensor_count), np.bool_)
    for j, d in enumerate(p.home.tolist()):
        resident[d, j] = d >= 0
    period = 0
    for step in with_frees(p.problem, schedule.steps).steps:
        match step:
            case Compute(op, device) if op in op_index:
                i, d = op_index[op], device_index[device]
                if period < len(moments) and i == moments[period]:
                    _set_where_there_is_one(x, model.keep[period], resident)
                    columns = model.at[period, d]
                    period += 1
                else:
                    columns = model.run[period, d, i]
                _set_where_there_is_one(x, columns, np.True_)
                for j in p.makes[i]:
                    resident[d, j] = True
                    if p.update_of[j] >= 0:
                        resident[d, p.update_of[j]] = False
            case Transfer(tensor, src, dst) if tensor in tensor_index:
                j, a, b = tensor_index[tensor], device_index[src], device_index[dst]
                _set_where_there_is_one(x, model.copy[period, link_index[a, b], j], np.True_)
                resident[b, j] = True
                if p.update_of[j] >= 0 and p.home[p.update_of[j]] == b:
                    resident[b, p.update_of[j]] = False
            case Free(tensor, device) if tensor in tensor_index:
                resident[device_index[device], tensor_index[tensor]] = False
    _set_where_there_is_one(x, model.keep[len(moments)], resident)
    return x if model.program.is_satisfied_by(x) else None


def _set_where_there_is_one(
    x: NDArray[np.float64], columns: NDArray[np.int64], values: NDArray[np.bool_] | np.bool_
) -> None:
    exists = columns != _ABSENT
    x[columns[exists]] = np.broadcast_to(values, np.shape(columns))[exists]
