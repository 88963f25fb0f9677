"""What the compiled code reads of a problem."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.local_search.arrays import (
    END_NOWHERE,
    Arrays,
    Ints,
    Records,
    cheapest_routes,
)
from tvm_xengine.solvers.result import Objective


class Static(NamedTuple):
    """What the compiled code reads of a problem: arrays of records, few, so that it compiles fast.

    Attributes
    ----------
    op
        For each op and one past the last: where its reads, outputs and touches start in
        `read`, `made` and `touch`; whether it is recomputable.
    tensor
        For each tensor: bytes, producer, home, the state that it replaces, and the op that updates it.
    run
        Price, time and workspace of each op on each device, shape (ops, devices).
    link
        Price and time of a copy for each (source, destination), and the first hop and price
        of the cheapest route.
    device
        Budget, and whether it holds everything there is.
    end
        Tensors that must exist at the end, and where (-1: anywhere).
    """

    op: Records
    read: Ints
    made: Ints
    touch: Ints
    touch_op: Ints
    tensor: Records
    run: Records
    link: Records
    device: Records
    end: Records
    by_makespan: bool


def static_of(arrays: Arrays, objective: Objective) -> Static:
    """What the compiled code needs to search for the best `objective`."""
    price = arrays.op_price(objective)
    fixed, per_byte = arrays.copy_price(objective)
    mean_bytes = float(arrays.size_bytes.mean())
    route_price, hop = cheapest_routes(fixed, per_byte, mean_bytes)
    end_tensor = np.flatnonzero(arrays.end_device != END_NOWHERE)
    most = arrays.size_bytes.sum() + arrays.workspace_bytes.max(axis=0)
    return Static(
        op=_records(
            read_at=arrays.read_ptr,
            made_at=arrays.made_ptr,
            touch_at=arrays.touch_ptr,
            recomputable=np.append(arrays.recomputable, False).astype(np.int64),
        ),
        read=arrays.read_tensor,
        made=arrays.made_tensor,
        touch=arrays.touch_tensor,
        touch_op=np.repeat(np.arange(arrays.n_ops), np.diff(arrays.touch_ptr)),
        tensor=_records(
            size=arrays.size_bytes,
            producer=arrays.producer,
            home=arrays.home,
            state_of=arrays.state_of,
            updater=arrays.updater,
        ),
        run=_records(price=price, us=arrays.compute_us, workspace=arrays.workspace_bytes),
        link=_records(
            fixed=fixed,
            per_byte=per_byte,
            us=arrays.copy_us,
            us_per_byte=arrays.copy_us_per_byte,
            hop=hop,
            route_price=route_price,
        ),
        device=_records(
            budget=arrays.budget_bytes, is_ample=(most <= arrays.budget_bytes).astype(np.int64)
        ),
        end=_records(tensor=end_tensor, device=arrays.end_device[end_tensor]),
        by_makespan=objective is Objective.MAKESPAN,
    )


def _records(**columns: NDArray[Any]) -> Records:
    """One array of records from columns of equal shape."""
    shape = next(iter(columns.values())).shape
    dtype = [(name, "f8" if column.dtype.kind == "f" else "i8") for name, column in columns.items()]
    result = np.zeros(shape, dtype=dtype)
    for name, column in columns.items():
        result[name] = column
    return result
