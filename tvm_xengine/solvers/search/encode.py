"""Reads the decisions of the search off a schedule, so that it can start from one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tvm_xengine.residency import Instance, trace_residency
from tvm_xengine.schedule import Compute, Schedule
from tvm_xengine.solvers.search.arrays import END_NOWHERE, Arrays
from tvm_xengine.solvers.search.decoder import Decisions, keep_everything


def decisions_of(arrays: Arrays, schedule: Schedule) -> Decisions:
    """Decisions that decode to `schedule` or to something close to it.

    Not every valid schedule can be expressed: a tensor that is held until another one is
    recomputed and dropped in the same gap is taken to be held all through or not at all.
    """
    graph, index = arrays.problem.graph, arrays.problem.platform.index
    residency = trace_residency(arrays.problem, schedule)
    position = {tensor.name: t for t, tensor in enumerate(graph.bases)}
    stays: list[list[Instance]] = [[] for _ in graph.bases]
    for instance in residency.instances:
        stays[position[instance.tensor]].append(instance)
        if instance.tensor in graph.updated_by:  # the result lives on in the same bytes
            stays[position[graph.updated_by[instance.tensor][1]]].append(instance)

    x = keep_everything(arrays, np.zeros(arrays.n_ops, dtype=np.int64))
    needed = set(arrays.needed_ops.tolist())
    first_step: dict[int, int] = {}
    for step_index, step in enumerate(schedule.steps):
        if isinstance(step, Compute) and (i := graph.op_index[step.op]) in needed:
            if i not in first_step:
                first_step[i] = step_index
                x.device[i] = index[step.device]
            elif index[step.device] != x.device[i]:
                x.redevice[i] = index[step.device]
    x.order[:] = list(first_step)
    x.position[x.order] = np.arange(len(x.order))

    served_from = _served_from(first_step, len(schedule.steps))
    touches: list[list[tuple[int, int]]] = [[] for _ in graph.bases]  # (step, gap) of each tensor
    for i, step_index in first_step.items():
        for gap in range(arrays.touch_ptr[i], arrays.touch_ptr[i + 1]):
            touches[arrays.touch_tensor[gap]].append((step_index, gap))
    for t, own in enumerate(touches):
        if arrays.home[t] >= 0:
            own.insert(0, (-1, len(arrays.touch_tensor) + t))
        if not own:
            continue  # made by an op that need not run
        ends = [served_from[step_index] for step_index, _ in own[1:]]
        delivered = arrays.end_device[t] != END_NOWHERE
        ends.append(served_from[len(schedule.steps)] if delivered else -1)
        for (begin, gap), end in zip(own, ends, strict=True):
            _decide(x, gap, begin, end, stays[t], index)
    return x


def _served_from(first_step: dict[int, int], steps: int) -> dict[int, int]:
    """For each first run the step from which on steps serve it, and the same for the end."""
    result, previous = {}, 0
    for step_index in (*first_step.values(), steps):
        result[step_index] = previous
        previous = step_index + 1
    return result


def _decide(
    x: Decisions, gap: int, begin: int, end: int, stays: list[Instance], index: Mapping[str, int]
) -> None:
    """Set the decision of a gap from step `begin` until something is done for its end.

    An `end` of -1 means that no op must touch the tensor after the gap.
    """
    later = [stay for stay in stays if stay.start > begin]
    if end < 0:
        if any(stay.start > begin for stay in stays):
            x.keep[gap] = 0
        return
    held = [stay for stay in stays if stay.start <= begin < stay.end]
    kept = [stay for stay in held if stay.end >= end]
    returned = [stay for stay in later if stay.start < end]
    still_there = [stay for stay in returned if stay.end >= end]
    if kept and len(kept) == len(held):
        return
    if kept:
        x.keep[gap] = sum({1 << index[stay.device] for stay in kept})
        return
    x.keep[gap] = 0
    elsewhere = {stay.device for stay in still_there} - {stay.device for stay in held}
    if held and elsewhere and len(returned) == 1:
        x.push[gap] = x.keep[gap] = sum(1 << index[device] for device in elsewhere)
    else:
        x.level[gap] = max(1, len(returned) + (0 if still_there else 1))
