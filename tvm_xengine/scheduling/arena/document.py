"""An address layout as plain numbers that can be saved, checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tvm_xengine.checks.documents import reject_unknown_keys, typed_value
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.arena.plan import ArenaPlan, workspaces
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Schedule

_KEYS = ("offset_bytes", "workspace_offset_bytes", "arena_bytes")


def arenas_to_document(arenas: ArenaPlan) -> dict[str, Any]:
    """The addresses of a layout, for JSON."""
    return {
        "offset_bytes": list(arenas.offset_bytes),
        "workspace_offset_bytes": {
            str(step): offset for step, offset in arenas.workspace_offset_bytes.items()
        },
        "arena_bytes": dict(arenas.arena_bytes),
    }


def arenas_from_document(
    problem: Problem, schedule: Schedule, document: Mapping[str, Any]
) -> ArenaPlan:
    """The layout of a valid schedule that `arenas_to_document` wrote.

    Raises
    ------
    InvalidScheduleError
        If an address is missing, not aligned or outside its arena, if two tensors overlap while both
        are live, if state does not keep its address, or if an arena exceeds its budget.
    """
    residency = trace_residency(problem, schedule)
    try:
        reject_unknown_keys("it", document, _KEYS)
        offsets = typed_value(tuple[int, ...], document["offset_bytes"])
        by_step = typed_value(Mapping[str, int], document["workspace_offset_bytes"])
        of_workspaces = {int(step): offset for step, offset in by_step.items()}
        arena_bytes = typed_value(Mapping[str, int], document["arena_bytes"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidScheduleError(f"the layout is damaged: {error}") from error
    arenas = ArenaPlan(residency, offsets, of_workspaces, arena_bytes)
    devices = {device.name: device for device in problem.platform.devices}
    if len(offsets) != len(residency.instances) or arena_bytes.keys() != devices.keys():
        raise InvalidScheduleError("the layout is of another schedule")
    for name, device in devices.items():
        if arena_bytes[name] > device.budget_bytes:
            raise InvalidScheduleError(f"the arena of {name} exceeds its budget")
        _check_device(problem, schedule, arenas, name)
    homes: dict[tuple[str, str], int] = {}
    for instance in residency.instances:
        key = (instance.device, instance.tensor)
        if (
            instance.is_home_state
            and homes.setdefault(key, offsets[instance.id]) != (offsets[instance.id])
        ):
            raise InvalidScheduleError(f"the state {instance.tensor} has two addresses")
    return arenas


def _check_device(problem: Problem, schedule: Schedule, arenas: ArenaPlan, device: str) -> None:
    """Refuse places on a device that are not aligned, outside the arena, or overlap while live."""
    rows = [
        (arenas.offset_bytes[one.id], one.size_bytes, max(one.start, 0), max(one.end, one.start, 0))
        for one in arenas.residency.instances
        if one.device == device
    ]
    for step, size in workspaces(problem, schedule, device):
        if step not in arenas.workspace_offset_bytes:
            raise InvalidScheduleError(f"the workspace of step {step} has no address")
        rows.append((arenas.workspace_offset_bytes[step], size, step, step))
    if not rows:
        return
    begin, size, first, last = np.asarray(rows, dtype=np.int64).T
    end = begin + size
    if np.any(begin % problem.platform.alignment_bytes):
        raise InvalidScheduleError(f"an address on {device} is not aligned")
    if begin.min() < 0 or end.max() > arenas.arena_bytes[device]:
        raise InvalidScheduleError(f"an address on {device} is outside the arena")
    for k in range(len(rows) - 1):
        later = slice(k + 1, None)
        meet = (begin[later] < end[k]) & (begin[k] < end[later])
        if np.any(meet & (first[later] <= last[k]) & (first[k] <= last[later])):
            raise InvalidScheduleError(f"tensors on {device} overlap while both are live")
