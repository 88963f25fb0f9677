"""What else could be done with an op: run it on another device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm_xengine.planning.alternatives.changed_schedule import Alternative, PlannedSteps, Way
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer

_MOST_RUNS = 4
"""Runs of an op that are weighed one by one."""


def op_alternatives(planned: PlannedSteps, op: str) -> tuple[Alternative, ...]:
    """Every other device for each run of an op, the best first.

    What it reads is copied there where it is not, and what it makes is copied back where that is
    needed.
    """
    found = []
    for position, step in _runs(planned, op)[:_MOST_RUNS]:
        for device in planned.plan.problem.platform.computing:
            if device.name == step.device:
                continue
            what = f"run it on {device.name} in place of {step.device} (step {position})"
            steps = _moved(planned, position, step, device.name)
            found.append(planned.changed(Way.PLACE, what, [(planned.position[position], steps)]))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.rank))


def _runs(planned: PlannedSteps, op: str) -> Sequence[tuple[int, Compute]]:
    return [
        (position, step)
        for position, step in enumerate(planned.plan.schedule.steps)
        if isinstance(step, Compute) and step.op == op
    ]


def _moved(planned: PlannedSteps, position: int, step: Compute, device: str) -> list[Step]:
    graph = planned.plan.problem.graph
    there = set(_present(planned, position, device))
    missing = [name for name in graph.reads[step.op] if name not in there]
    arriving: list[Step] = [Transfer(name, step.device, device) for name in missing]
    leaving = [Transfer(name, device, step.device) for name in graph.op[step.op].outputs]
    return [*arriving, Compute(step.op, device), *leaving]


def _present(planned: PlannedSteps, position: int, device: str) -> Iterator[str]:
    for instance in planned.plan.arenas.residency.instances:
        if instance.device == device and instance.start < position <= instance.end + 1:
            yield instance.tensor
