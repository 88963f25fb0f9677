"""Reads the decisions of the search off a schedule, so that it can start from one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tvm_xengine.scheduling.residency import Instance, trace_residency
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer
from tvm_xengine.solvers.local_search.arrays import END_NOWHERE, Arrays, Ints
from tvm_xengine.solvers.local_search.decisions import (
    BRING,
    DROP,
    EVERYWHERE,
    NEVER,
    Decisions,
    keep_everything,
    moved,
)


class Doubt(NamedTuple):
    """Another decision for a gap, which may come closer to what a schedule does.

    Where it drops a tensor in the middle of a gap, which decisions express only for one tensor
    behind the first run of an op: `ahead` of `op`, if that is not -1. And where it drops for good
    what would make up for a copy: decisions repeat what they can where that is cheaper.
    """

    gap: int
    keep: int
    push: int
    op: int = -1
    ahead: int = -1


def decisions_of(arrays: Arrays, schedule: Schedule) -> Decisions:
    """Decisions that decode to `schedule` or to something close to it, see `encoded`."""
    return encoded(arrays, schedule)[0]


def encoded(arrays: Arrays, schedule: Schedule) -> tuple[Decisions, list[Doubt]]:
    """Decisions that decode to `schedule` or to something close to it, and where they are in doubt.

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

    doubts: list[Doubt] = []
    behind_copies = {
        position[name]
        for step in schedule.steps
        if isinstance(step, Transfer) and step.tensor in graph.producer
        for name in graph.reads[graph.producer[step.tensor]]
    }
    first_steps = np.array(list(first_step.values()))
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
        ends: list[int | None] = [served_from[step_index] for step_index, _ in own[1:]]
        delivered = arrays.end_device[t] != END_NOWHERE
        ends.append(served_from[len(schedule.steps)] if delivered else None)
        before = [begin for begin, _ in (own[0], *own[:-1])]
        for (begin, gap), end, since in zip(own, ends, before, strict=True):
            held_by = _Stays(tuple(stays[t]), schedule, index)
            _decide(x, gap, since, begin, end, held_by)
            if end is not None:
                doubts += _doubts(x, arrays, t, (gap, begin, end), held_by, first_steps)
            elif t in behind_copies:
                doubts.append(Doubt(gap, 0, 0))
    _bring_ahead(x, arrays, schedule, residency.instances, first_steps)
    return x, doubts


def _bring_ahead(
    x: Decisions, arrays: Arrays, schedule: Schedule, stays: Iterable[Instance], first_step: Ints
) -> None:
    """Note what is brought back ahead of the op that needs it, one tensor for each op.

    That is what the next op does nothing with, and what leaves another device before something
    that the op before has touched goes there. `first_step` has the step of each first run, in
    their order.
    """
    graph, index = arrays.problem.graph, arrays.problem.platform.index
    position = {tensor.name: t for t, tensor in enumerate(graph.bases)}
    used: dict[tuple[str, str], list[int]] = {}
    for step_index, step in enumerate(schedule.steps):
        match step:
            case Compute(op, device):
                for name in graph.reads[op]:
                    used.setdefault((name, device), []).append(step_index)
            case Transfer(tensor, src, _):
                used.setdefault((tensor, src), []).append(step_index)
    for stay in stays:
        place = int(np.searchsorted(first_step, stay.start))
        if not 0 < place < len(first_step) or stay.start == first_step[place]:
            continue
        t, before = position[stay.tensor], x.order[place - 1]
        touched = arrays.touch_tensor[arrays.touch_ptr[before] : arrays.touch_ptr[before + 1]]
        uses = used.get((stay.tensor, stay.device), [])
        is_at_once = any(stay.start < at <= first_step[place] for at in uses)
        later = schedule.steps[stay.start + 1 : first_step[place]]
        makes_way = any(
            isinstance(step, Transfer) and position[step.tensor] in touched for step in later
        )
        is_ahead = makes_way or (not is_at_once and stay.end > first_step[place])
        if is_ahead and t not in touched:
            x.ahead[before] = moved(t, index[stay.device], arrays.n_devices, BRING)


@dataclass(frozen=True)
class _Stays:
    """The stays of one tensor, and what made them."""

    all: tuple[Instance, ...]
    schedule: Schedule
    index: Mapping[str, int]

    def is_copied(self, stay: Instance) -> bool:
        """Whether a copy began the stay."""
        return stay.start >= 0 and isinstance(self.schedule.steps[stay.start], Transfer)

    def mask(self, devices: Iterable[str]) -> int:
        """The devices as bits."""
        return sum(1 << self.index[device] for device in devices)


def _served_from(first_step: dict[int, int], steps: int) -> dict[int, int]:
    """For each first run the step from which on steps serve it, and the same for the end."""
    result, previous = {}, 0
    for step_index in (*first_step.values(), steps):
        result[step_index] = previous
        previous = step_index + 1
    return result


def _doubts(
    x: Decisions,
    arrays: Arrays,
    t: int,
    gap: tuple[int, int, int],
    stays: _Stays,
    first_steps: Ints,
) -> Iterator[Doubt]:
    """Ways to hold what is dropped in the middle of a gap of tensor t, given as in `_decide`."""
    k, begin, end = gap
    held = [stay for stay in stays.all if stay.start <= begin < stay.end]
    for stay in held:
        d = stays.index[stay.device]
        if stay.end < end and not (x.push[k] >> d) & 1:
            keep = x.keep[k] if x.keep[k] != EVERYWHERE else stays.mask(s.device for s in held)
            behind = int(np.searchsorted(first_steps, stay.end))
            if behind < len(x.order):
                drop = moved(t, d, arrays.n_devices, DROP)
                yield Doubt(k, keep | 1 << d, int(x.push[k]), int(x.order[behind]), drop)
            yield Doubt(k, keep | 1 << d, int(x.push[k]))


def _decide(x: Decisions, gap: int, since: int, begin: int, end: int | None, stays: _Stays) -> None:
    """Set the decision of a gap from step `begin` until something is done for its end.

    An `end` of None means that no op must touch the tensor after the gap. The gap before began
    at step `since`; what was held in it and is not any more is dropped when this gap begins.
    """
    known = [stay for stay in stays.all if stay.start <= begin and stay.end >= since]
    held = [stay for stay in known if stay.end > begin]
    later = [stay for stay in stays.all if stay.start > begin]
    if end is None:
        if not later:
            return
        end = max(stay.start for stay in later)
    kept = [stay for stay in held if stay.end >= end]
    if kept and len(kept) == len(known):
        return
    at_begin = {stay.device for stay in held}
    before = [stay for stay in later if stay.start < end]
    copied = [s for s in before if stays.is_copied(s) and s.device not in at_begin]
    pushed = {stay.device for stay in copied} if held else set()
    x.push[gap] = stays.mask(pushed)
    x.keep[gap] = stays.mask(pushed | {stay.device for stay in kept})
    returned = [stay for stay in before if stay.device not in pushed]
    if returned and all(stay.end < end for stay in returned):
        x.level[gap] = NEVER
    elif returned:
        x.level[gap] = 1 + sum(stay.end < end for stay in returned)
