"""A problem as arrays for the compiled search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.ragged import ragged
from tvm_xengine.solvers.indexed import NOWHERE, IndexedProblem, Ints

Records = NDArray[Any]
"""Arrays of records: few, so that what reads them compiles fast."""


class SearchView(NamedTuple):
    """An `IndexedProblem` for compiled code; fields are named as there.

    Attributes
    ----------
    op
        For each op and one past the last: where its reads, outputs and touches start in
        `read`, `made` and `touch`; whether it is ``recomputable``.
    touch_op
        The op of each touch.
    tensor
        ``size``, ``producer``, ``home``, ``update_of`` and ``updated_by`` of each tensor.
    run
        ``value`` of each op on each device with its cheapest kernel, shape (n, D).
    kernel
        ``value`` and ``workspace`` of each kernel, from the leanest to the cheapest, shape (n, D, V).
    transfer
        ``value`` of a copy, and ``route_value`` and first ``hop`` of the cheapest chain of copies,
        shape (D, D, J).
    device
        ``budget``, and whether that holds everything there is: ``is_uncapacitated``.
    end
        ``tensor`` that must exist at the end, and on which ``device`` (or `ANYWHERE`).
    by_makespan
        Whether the objective is the makespan; values are then times.
    copy_stream
        The stream of copies from device a to b, shape (D, D): a device, or D and more for a link.
    handover
        Time between the end of a call and the begin of one in another stream that waits for it.
    """

    op: Records
    read: Ints
    made: Ints
    touch: Ints
    touch_op: Ints
    tensor: Records
    run: Records
    kernel: Records
    transfer: Records
    device: Records
    end: Records
    by_makespan: bool
    copy_stream: Ints
    handover: float


def view_of(indexed: IndexedProblem, *, by_makespan: bool = False) -> SearchView:
    """`indexed` for a search for the least value, or for the least makespan."""
    p, reads, made = indexed, ragged(indexed.reads), ragged(indexed.makes)
    end_tensor = np.flatnonzero(p.must_end_on != NOWHERE)
    most = p.size.sum() + p.kernels.workspace[:, :, -1].max(axis=0)
    return SearchView(
        op=_records(
            read_at=reads.start,
            made_at=made.start,
            touch_at=p.touches.start,
            recomputable=np.append(p.recomputable, False).astype(np.int64),
        ),
        read=reads.item,
        made=made.item,
        touch=p.touches.item,
        touch_op=np.repeat(np.arange(p.op_count), np.diff(p.touches.start)),
        tensor=_records(
            size=p.size,
            producer=p.producer,
            home=p.home,
            update_of=p.update_of,
            updated_by=p.updated_by,
        ),
        run=_records(value=p.compute_value),
        kernel=_records(value=p.kernels.value, workspace=p.kernels.workspace),
        transfer=_records(
            value=p.transfer_value, route_value=p.routes.value, hop=p.routes.next_hop
        ),
        device=_records(budget=p.budget, is_uncapacitated=(most <= p.budget).astype(np.int64)),
        end=_records(tensor=end_tensor, device=p.must_end_on[end_tensor]),
        by_makespan=by_makespan,
        copy_stream=p.copy_stream,
        handover=float(p.problem.platform.handover_us or 0.0),
    )


def _records(**columns: NDArray[Any]) -> Records:
    """One array of records from columns of equal shape."""
    shape = next(iter(columns.values())).shape
    dtype = [(name, "f8" if column.dtype.kind == "f" else "i8") for name, column in columns.items()]
    result = np.zeros(shape, dtype=dtype)
    for name, column in columns.items():
        result[name] = column
    return result
