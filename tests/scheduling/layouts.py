"""What holds for the layouts of every schedule."""

import numpy as np

from tvm_xengine.scheduling.arena.plan import ArenaPlan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule


def check_layout(problem: Problem, schedule: Schedule, arenas: ArenaPlan) -> None:
    """Addresses are aligned, and nothing that lives during the same step shares a byte."""
    alignment = problem.platform.alignment_bytes
    for device in problem.platform.devices:
        owner = np.full((len(schedule.steps), arenas.arena_bytes[device.name]), -1)
        pieces = [
            (max(i.start, 0), i.end, arenas.offset_bytes[i.id], i.size_bytes)
            for i in arenas.residency.instances
            if i.device == device.name
        ]
        for position, step in enumerate(schedule.steps):
            if isinstance(step, Compute) and step.device == device.name:
                size = problem.run_cost(step.op, device.name, step.variant).workspace_bytes
                if size:
                    offset = arenas.workspace_offset_bytes[position]
                    pieces.append((position, position, offset, size))
        for name, (start, end, offset, size) in enumerate(pieces):
            assert offset % alignment == 0
            area = owner[start : end + 1, offset : offset + size]
            assert (area == -1).all()
            area[:] = name
