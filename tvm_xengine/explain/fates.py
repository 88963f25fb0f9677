"""What a schedule does with each tensor: kept, recomputed, moved, freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.residency import Instance
from tvm_xengine.scheduling.schedule import Compute, Transfer, describe

COPIED_FROM = "copied from "
"""How the arrival of a stay by a copy begins; the device follows."""


class Fate(Enum):
    """The short answer to what happens to a tensor; the first that holds, from the top."""

    RECOMPUTED = "recomputed"
    MOVED = "moved"
    STATE = "state"  # there from the beginning, or what replaces that in its bytes
    KEPT = "kept"
    UNUSED = "unused"  # made, and read by nothing


@dataclass(frozen=True)
class Stay:
    """One stay of a tensor in the memory of a device.

    Attributes
    ----------
    came_by
        ``given``, ``made``, ``made again`` or ``copied from`` a device.
    first_step, last_step
        Positions in the schedule; -1 where it is there from the beginning.
    last_use
        What last reads it before it is freed; empty where nothing does.
    is_freed
        False where it outlasts the schedule.
    """

    device: str
    came_by: str
    first_step: int
    last_step: int
    last_use: str
    is_freed: bool


@dataclass(frozen=True)
class TensorFate:
    """What happens to a tensor.

    Attributes
    ----------
    recomputed
        How often it is made again after its bytes were freed.
    moves
        How often it is copied between devices.
    """

    fate: Fate
    recomputed: int
    moves: int
    stays: tuple[Stay, ...]


def fates(plan: Plan) -> Mapping[str, TensorFate]:
    """The fate of each tensor with bytes of its own; one that the schedule never makes is left out."""
    uses = plan.arenas.residency.uses
    stays: dict[str, list[Stay]] = {}
    steps = plan.schedule.steps
    for instance in plan.arenas.residency.instances:
        before = stays.setdefault(instance.tensor, [])
        before.append(_stay(plan, instance, uses[instance.id], is_first=not before))
    for tensor, device in plan.arenas.residency.final:
        if tensor not in stays:  # it took over the bytes of the state that it replaces
            stays[tensor] = [Stay(device, "made", _first_run(plan, tensor), len(steps), "", False)]
    return {name: _fate(plan, name, found) for name, found in stays.items()}


def _stay(plan: Plan, instance: Instance, uses: Sequence[int], *, is_first: bool) -> Stay:
    steps = plan.schedule.steps
    step = steps[instance.start] if instance.start >= 0 else None
    match step:
        case None:
            came_by = "given"
        case Transfer(_, src, _):
            came_by = f"{COPIED_FROM}{src}"
        case _:
            came_by = "made" if is_first else "made again"
    last_use = describe(steps[uses[-1]]) if uses else ""
    is_freed = instance.end < len(steps)
    return Stay(instance.device, came_by, instance.start, instance.end, last_use, is_freed)


def _fate(plan: Plan, name: str, stays: Sequence[Stay]) -> TensorFate:
    graph = plan.problem.graph
    recomputed = sum(stay.came_by == "made again" for stay in stays)
    moves = sum(stay.came_by.startswith(COPIED_FROM) for stay in stays)
    is_needed = name in map(graph.base.__getitem__, graph.outputs)
    if recomputed:
        fate = Fate.RECOMPUTED
    elif moves:
        fate = Fate.MOVED
    elif graph.tensor[name].role.is_resident or name in graph.update_of:
        fate = Fate.STATE
    elif any(stay.last_use for stay in stays) or is_needed:
        fate = Fate.KEPT
    else:
        fate = Fate.UNUSED
    return TensorFate(fate, recomputed, moves, tuple(stays))


def _first_run(plan: Plan, tensor: str) -> int:
    maker = plan.problem.graph.producer.get(tensor)
    return next(
        position
        for position, step in enumerate(plan.schedule.steps)
        if (isinstance(step, Compute) and step.op == maker)
        or (isinstance(step, Transfer) and step.tensor == tensor)
    )
