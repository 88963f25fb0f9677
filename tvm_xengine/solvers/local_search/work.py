"""Scratch memory of the decoder, and the schedule that it leaves there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_xengine.scheduling.schedule import Schedule, with_frees
from tvm_xengine.solvers.local_search.arrays import END_ANYWHERE, Arrays, Floats, Ints, Records

STEPS, STAYS, TRANSIENTS, HOT, PLACE = range(5)
"""What `Work.counted` counts; PLACE is the place of the order that is being served."""


class Work(NamedTuple):
    """Scratch memory of the decoder; after a decode it describes the decoded steps.

    Attributes
    ----------
    step
        ``kind`` 0: ``item`` is an op that runs on device ``src``; 1: ``item`` is a tensor that
        is copied from ``src`` to ``dst``. ``place``: place in the order that the step serves.
    stay
        Stays of tensors on devices: the bytes are live from step ``start`` to ``end``.
    hot
        Steps at which a budget is exceeded, or nearly used up where none is.
    counted
        Numbers of steps, stays, transients, hot steps; the place that is being served.
    tensor
        Per tensor: masks of the devices it is ``on`` and where it was ``overwritten``, the
        current ``gap``, how often it ``returned`` in it, where it was made last.
    stay_of
        Current stay of each tensor on each device, or -1.
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
    price: Floats


def workspace_of(arrays: Arrays) -> Work:
    """Scratch memory for decodes of a problem; steps are cut off at 8 x ops + 2000."""
    devices, tensors = arrays.n_devices, arrays.n_tensors
    steps = 8 * arrays.n_ops + 2000 + 4 * devices * tensors
    stays = steps * int(np.diff(arrays.made_ptr).max()) + tensors * (1 + devices)

    def integers(shape: int, names: str) -> Records:
        return np.zeros(shape, dtype=[(name, "i8") for name in names.split()])

    times = [("written_us", "f8"), ("touched_us", "f8")]
    whole = [(name, "i8") for name in ("tensor", "device", "start", "end", "next_ending")]
    return Work(
        step=integers(steps + 2, "kind item src dst place first_ending"),
        stay=np.zeros(stays, dtype=whole + times),
        hot=integers(steps * devices, "step device"),
        counted=np.zeros(5, dtype=np.int64),
        tensor=integers(tensors, "on overwritten gap returned made_last_on"),
        stay_of=np.zeros((tensors, devices), dtype=np.int64),
        transient=integers(tensors * devices, "tensor device"),
        stack=integers(len(arrays.touch_tensor) + tensors + 16, "tensor device at"),
        live=np.zeros((devices, steps + 2), dtype=np.int64),
        freed=np.zeros((devices, stays), dtype=[("us", "f8"), ("bytes", "i8")]),
        freed_count=np.zeros(devices, dtype=np.int64),
        stream_us=np.zeros(devices + devices * devices),
        price=np.zeros(1),
    )


def schedule_left_in(arrays: Arrays, w: Work) -> Schedule:
    """The schedule of the last decode."""
    graph, devices = arrays.problem.graph, arrays.problem.platform.devices
    step = w.step[: int(w.counted[STEPS])]
    rows = np.stack([step["item"], step["src"], step["dst"]], axis=1).tolist()
    steps = arrays.steps(step["kind"].tolist(), [(a, b, c) for a, b, c in rows])
    survivors = {
        graph.bases[t].name: devices[int(w.tensor["made_last_on"][t])].name
        for t in np.flatnonzero(arrays.end_device == END_ANYWHERE).tolist()
        if w.tensor["made_last_on"][t] >= 0
    }
    return with_frees(arrays.problem, steps, survivors=survivors)
