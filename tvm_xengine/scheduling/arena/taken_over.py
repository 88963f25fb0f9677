"""When the bytes of arenas are free to be taken over, where devices and links run side by side."""

from __future__ import annotations

import numpy as np

from tvm_xengine.scheduling.arena.plan import ArenaPlan, workspaces
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule

_Place = tuple[str, slice]
"""A device, and the pieces of its arena; bytes used alike are one piece."""


class TakenOver:
    """When each byte of the arenas was last touched.

    Parameters
    ----------
    arenas
        Of `schedule`.
    """

    def __init__(self, problem: Problem, schedule: Schedule, arenas: ArenaPlan) -> None:
        instances = arenas.residency.instances
        stays = [(each.device, arenas.offset_bytes[each.id], each.size_bytes) for each in instances]
        scratch = {
            position: (device, arenas.workspace_offset_bytes[position], size_bytes)
            for device in problem.platform.index
            for position, size_bytes in workspaces(problem, schedule, device)
        }
        ends: dict[str, set[int]] = {device.name: set() for device in problem.platform.devices}
        for device, offset_bytes, size_bytes in (*stays, *scratch.values()):
            ends[device] |= {offset_bytes, offset_bytes + size_bytes}
        edges = {device: np.array(sorted(found)) for device, found in ends.items()}
        self._touched_at_us = {device: np.zeros(len(found)) for device, found in edges.items()}

        def place(device: str, offset_bytes: int, size_bytes: int) -> _Place:
            whole = (offset_bytes, offset_bytes + size_bytes)
            return device, slice(*np.searchsorted(edges[device], whole).tolist())

        places = [place(*stay) for stay in stays]
        self._touched: list[list[_Place]] = []
        self._taken: list[list[_Place]] = []
        for position, access in enumerate(arenas.residency.accesses):
            own = [place(*scratch[position])] if position in scratch else []
            used = {*access.reads.values(), *access.writes.values()}
            new = (each for each in access.writes.values() if instances[each].start == position)
            self._touched.append([*(places[each] for each in used), *own])
            self._taken.append([*(places[each] for each in new), *own])

    def ready_us(self, position: int) -> float:
        """When the bytes that a step newly takes are no longer in use."""
        return max(
            (
                float(self._touched_at_us[device][pieces].max(initial=0.0))
                for device, pieces in self._taken[position]
            ),
            default=0.0,
        )

    def touch(self, position: int, end_us: float) -> None:
        """Record when a step ends."""
        for device, pieces in self._touched[position]:
            touched = self._touched_at_us[device][pieces]
            np.maximum(touched, end_us, out=touched)
