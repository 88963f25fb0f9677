"""The two parts of an arena whose home state lies apart: state below a line, everything else above it."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.arena.plan import ArenaPlan, workspaces
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.sizes import round_up


def state_bytes(problem: Problem) -> Mapping[str, int]:
    """Bytes that each device keeps between steps: the persistent tensors whose home it is."""
    total = {device.name: 0 for device in problem.platform.devices}
    for name, device in problem.home.items():
        tensor = problem.graph.tensor[name]
        if tensor.role.is_persistent:
            total[device] += round_up(tensor.size_bytes, problem.platform.alignment_bytes)
    return total


def transient_bytes(problem: Problem, arenas: ArenaPlan) -> Mapping[str, int]:
    """Bytes above the line on each device, which hold nothing between steps."""
    state = state_bytes(problem)
    return {name: size - state[name] for name, size in arenas.arena_bytes.items()}


def check_apart(problem: Problem, schedule: Schedule, arenas: ArenaPlan) -> None:
    """Check that home state lies below the line on each device, and that nothing lies across it.

    Raises
    ------
    InvalidScheduleError
        If it was laid out otherwise, as for a problem without ``state_apart``.
    """
    line = state_bytes(problem)
    alignment = problem.platform.alignment_bytes
    pieces = [
        (i.device, arenas.offset_bytes[i.id], i.size_bytes, i.is_home_state)
        for i in arenas.residency.instances
    ]
    for device in problem.platform.index:
        pieces += [
            (device, arenas.workspace_offset_bytes[at], size, False)
            for at, size in workspaces(problem, schedule, device)
        ]
    for device, start, size, is_state in pieces:
        is_below = start + round_up(size, alignment) <= line[device]
        if not is_below and (is_state or start < line[device]):
            raise InvalidScheduleError(
                f"the state on {device} does not lie apart from the rest of the arena; plan it"
                " with plan_together"
            )
