"""Scratch arrays of the decoder, and the schedule that it leaves there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_xengine.scheduling.schedule import Schedule, with_frees
from tvm_xengine.solvers.indexed import ANYWHERE, NONE, Floats, IndexedProblem, Ints
from tvm_xengine.solvers.local_search.compiled.view import Records

STEPS, STAYS, TRANSIENTS, HOT, PLACE = range(5)
"""What `Scratch.counted` counts; PLACE is the place of the order that is being served."""
COMPUTE, TRANSFER = range(2)
"""Kinds of steps."""
_STEPS_PER_OP = 8
_LEAST_STEPS = 2000
"""Room for steps; decisions that ask for more than this are not carried out. Schedules of real
networks have at most three steps for each op, copies included."""
_DELIVERIES = 4
"""Room for further copies of each tensor to each device."""


class Scratch(NamedTuple):
    """Scratch arrays of the decoder; after a decode they describe the decoded steps.

    Attributes
    ----------
    step
        ``kind`` COMPUTE: ``item`` is an op that runs on device ``src``; TRANSFER: ``item`` is a
        tensor that is copied from ``src`` to ``dst``. ``place``: place in the order that the step
        serves. ``kernel``: which kernel a run takes, where memory is measured. ``begin_us``, ``end_us``:
        where the makespan is measured.
    stay
        Stays of tensors on devices: the bytes are live from step ``start`` to ``end``.
    hot
        Steps at which a budget is exceeded, or nearly used up where none is.
    counted
        Numbers of steps, stays, transients, hot steps; the place that is being served.
    tensor
        Per tensor: masks of the devices it is ``on`` and where it was ``overwritten``, the
        current use ``interval``, how often it ``returned`` in it, where it was made last.
    stay_of
        Current stay of each tensor on each device, or `NONE`.
    value
        Sum of the values of the steps so far.
    """

    step: Records
    stay: Records
    hot: Records
    counted: Ints
    tensor: Records
    stay_of: Ints
    transient: Records
    stack: Records
    live: Ints
    freed: Records
    freed_count: Ints
    stream_us: Floats
    value: Floats


def scratch_of(indexed: IndexedProblem) -> Scratch:
    """Scratch arrays for decodes of a problem."""
    devices, tensors = indexed.device_count, indexed.tensor_count
    steps = _STEPS_PER_OP * indexed.op_count + _LEAST_STEPS + _DELIVERIES * devices * tensors
    stays = steps * max(map(len, indexed.makes)) + tensors * (1 + devices)

    def integers(shape: int, names: str) -> Records:
        return np.zeros(shape, dtype=[(name, "i8") for name in names.split()])

    def timed(shape: int, names: str, times: str) -> Records:
        whole = [(name, "i8") for name in names.split()]
        return np.zeros(shape, dtype=[*whole, *((name, "f8") for name in times.split())])

    return Scratch(
        step=timed(steps + 2, "kind item src dst place first_ending kernel", "begin_us end_us"),
        stay=timed(
            stays, "tensor device start end next_ending written_by", "written_us touched_us"
        ),
        hot=integers(steps * devices, "step device"),
        counted=np.zeros(5, dtype=np.int64),
        tensor=integers(tensors, "on overwritten interval returned made_last_on"),
        stay_of=np.zeros((tensors, devices), dtype=np.int64),
        transient=integers(tensors * devices, "tensor device"),
        stack=integers(len(indexed.touches.item) + tensors + 16, "tensor device at"),
        live=np.zeros((devices, steps + 2), dtype=np.int64),
        freed=np.zeros((devices, stays), dtype=[("us", "f8"), ("size", "i8")]),
        freed_count=np.zeros(devices, dtype=np.int64),
        stream_us=np.zeros(devices + devices * devices),
        value=np.zeros(1),
    )


def schedule_left_in(indexed: IndexedProblem, w: Scratch) -> Schedule:
    """The schedule of the last decode."""
    p = indexed
    steps = [
        p.compute(item, src) if kind == COMPUTE else p.transfer(item, src, dst)
        for kind, item, src, dst, *_ in w.step[: int(w.counted[STEPS])].tolist()
    ]
    made_last_on = w.tensor["made_last_on"]
    survivors = {
        p.tensor_names[j]: p.device_names[int(made_last_on[j])]
        for j in np.flatnonzero(p.must_end_on == ANYWHERE).tolist()
        if made_last_on[j] != NONE
    }
    return with_frees(p.problem, steps, survivors=survivors)
