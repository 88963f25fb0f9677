"""Reads the decisions of the search off a schedule, so that it can start from one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tvm_xengine.scheduling.residency import Instance, trace_residency
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer
from tvm_xengine.solvers.indexed import NONE, NOWHERE, IndexedProblem, Ints
from tvm_xengine.solvers.local_search.compiled.decisions import (
    BRING,
    DROP,
    EVERYWHERE,
    NEVER,
    Decisions,
    keep_all_decisions,
    moved,
)


class Doubt(NamedTuple):
    """An alternative decision for an interval, which may follow a schedule more closely.

    Where it drops a tensor in the middle of a use interval, which decisions express only for one tensor
    behind the first run of an op: `ahead` of `op`, if that is not `NONE`. And where it drops for good
    what would make up for a copy: decisions repeat what they can where that is cheaper.
    """

    interval: int
    keep: int
    push: int
    op: int = NONE
    ahead: int = NONE


def decisions_of(indexed: IndexedProblem, schedule: Schedule) -> Decisions:
    """Decisions that decode to `schedule` or close to it, see `encoded`."""
    return encoded(indexed, schedule)[0]


def encoded(indexed: IndexedProblem, schedule: Schedule) -> tuple[Decisions, list[Doubt]]:
    """Decisions that decode to `schedule` or close to it, with alternatives where they differ.

    Not every valid schedule can be expressed: a tensor that is held until another one is
    recomputed and dropped in the same use interval is taken to be held all through or not at all.
    """
    p, steps = indexed, schedule.steps
    residency = trace_residency(p.problem, schedule)
    x, first_step = _first_runs(p, schedule)
    stays = _stays_of(p, residency.instances)
    behind_copies = {
        u
        for step in steps
        if isinstance(step, Transfer) and step.tensor in p.tensor_index
        for u in _sources(p, p.tensor_index[step.tensor])
    }
    first_steps = np.array(list(first_step.values()))
    served_from = _served_from(first_step, len(steps))
    index = p.problem.platform.index
    doubts: list[Doubt] = []
    for j, own in enumerate(touches_of_first_runs(p, first_step.items())):
        if not own:
            continue
        ends: list[int | None] = [served_from[at] for at, _ in own[1:]]
        is_delivered = p.must_end_on[j] != NOWHERE
        ends.append(served_from[len(steps)] if is_delivered else None)
        before = [begin for begin, _ in (own[0], *own[:-1])]
        for (begin, interval), end, since in zip(own, ends, before, strict=True):
            held_by = _Stays(tuple(stays[j]), schedule, index)
            _decide(x, interval, since, begin, end, held_by)
            if end is not None:
                doubts += _doubts(x, p, j, (interval, begin, end), held_by, first_steps)
            elif j in behind_copies:
                doubts.append(Doubt(interval, 0, 0))
    _bring_ahead(x, p, schedule, residency.instances, first_steps)
    return x, doubts


def _first_runs(indexed: IndexedProblem, schedule: Schedule) -> tuple[Decisions, dict[int, int]]:
    """Decisions with the order and the devices of the schedule, and the step of each first run."""
    index = indexed.problem.platform.index
    x = keep_all_decisions(indexed, np.zeros(indexed.op_count, dtype=np.int64))
    first_step: dict[int, int] = {}
    for at, step in enumerate(schedule.steps):
        if isinstance(step, Compute) and (i := indexed.op_index.get(step.op)) is not None:
            if i not in first_step:
                first_step[i] = at
                x.device[i] = index[step.device]
            elif index[step.device] != x.device[i]:
                x.redevice[i] = index[step.device]
    x.order[:] = list(first_step)
    x.position[x.order] = np.arange(len(x.order))
    return x, first_step


def _stays_of(indexed: IndexedProblem, instances: Iterable[Instance]) -> list[list[Instance]]:
    """The stays of each tensor; the result of an update lives on in the same bytes as its state."""
    graph, index = indexed.problem.graph, indexed.tensor_index
    stays: list[list[Instance]] = [[] for _ in indexed.tensor_names]
    for instance in instances:
        names = [instance.tensor]
        if instance.tensor in graph.updated_by:
            names.append(graph.updated_by[instance.tensor][1])
        for name in names:
            if name in index:
                stays[index[name]].append(instance)
    return stays


def touches_of_first_runs(
    indexed: IndexedProblem, first_runs: Iterable[tuple[int, int]]
) -> list[list[tuple[int, int]]]:
    """(place, use interval that then begins) of each tensor's touches, in order, from (op, place)."""
    touches: list[list[tuple[int, int]]] = [[] for _ in indexed.tensor_names]
    start, item = indexed.touches
    for j in np.flatnonzero(indexed.home != NONE).tolist():
        touches[j].append((NONE, len(item) + j))
    for i, place in first_runs:
        for k in range(start[i], start[i + 1]):
            touches[item[k]].append((place, k))
    return touches


def _sources(indexed: IndexedProblem, j: int) -> tuple[int, ...]:
    """The inputs of tensor j's producer."""
    return () if indexed.producer[j] == NONE else indexed.reads[indexed.producer[j]]


def _bring_ahead(
    x: Decisions,
    indexed: IndexedProblem,
    schedule: Schedule,
    stays: Iterable[Instance],
    first_step: Ints,
) -> None:
    """Note what is brought back ahead of the op that needs it, one tensor for each op.

    That is what the next op does nothing with, and what leaves another device before something
    that the op before has touched goes there. `first_step` has the step of each first run, in
    their order.
    """
    p, device = indexed, indexed.problem.platform.index
    used = _uses(indexed, schedule)
    for stay in stays:
        place = int(np.searchsorted(first_step, stay.start))
        is_first_run = not 0 < place < len(first_step) or stay.start == first_step[place]
        if is_first_run or stay.tensor not in p.tensor_index:
            continue
        j, before = p.tensor_index[stay.tensor], int(x.order[place - 1])
        touched = (*p.reads[before], *p.makes[before])
        uses = used.get((stay.tensor, stay.device), [])
        is_at_once = any(stay.start < at <= first_step[place] for at in uses)
        later = schedule.steps[stay.start + 1 : first_step[place]]
        frees_memory = any(
            isinstance(step, Transfer) and p.tensor_index.get(step.tensor) in touched
            for step in later
        )
        is_ahead = frees_memory or (not is_at_once and stay.end > first_step[place])
        if is_ahead and j not in touched:
            x.ahead[before] = moved(j, device[stay.device], p.device_count, BRING)


def _uses(indexed: IndexedProblem, schedule: Schedule) -> dict[tuple[str, str], list[int]]:
    """For each (tensor, device) the steps that read it there."""
    used: dict[tuple[str, str], list[int]] = {}
    for at, step in enumerate(schedule.steps):
        match step:
            case Compute(op, device):
                for name in indexed.problem.graph.reads[op]:
                    used.setdefault((name, device), []).append(at)
            case Transfer(tensor, src, _):
                used.setdefault((tensor, src), []).append(at)
    return used


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
    indexed: IndexedProblem,
    j: int,
    interval: tuple[int, int, int],
    stays: _Stays,
    first_steps: Ints,
) -> Iterator[Doubt]:
    """Ways to hold what is dropped in the middle of a use interval of tensor j, given as in `_decide`."""
    k, begin, end = interval
    held = [stay for stay in stays.all if stay.start <= begin < stay.end]
    for stay in held:
        d = stays.index[stay.device]
        if stay.end < end and not (x.push[k] >> d) & 1:
            keep = x.keep[k] if x.keep[k] != EVERYWHERE else stays.mask(s.device for s in held)
            behind = int(np.searchsorted(first_steps, stay.end))
            if behind < len(x.order):
                drop = moved(j, d, indexed.device_count, DROP)
                yield Doubt(k, keep | 1 << d, int(x.push[k]), int(x.order[behind]), drop)
            yield Doubt(k, keep | 1 << d, int(x.push[k]))


def _decide(
    x: Decisions, interval: int, since: int, begin: int, end: int | None, stays: _Stays
) -> None:
    """Set the decision of a use interval from step `begin` until something is done for its end.

    An `end` of None means that no op must touch the tensor after the interval. The interval before began
    at step `since`; what was held in it and is not held in this one is dropped when this interval begins.
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
    x.push[interval] = stays.mask(pushed)
    x.keep[interval] = stays.mask(pushed | {stay.device for stay in kept})
    returned = [stay for stay in before if stay.device not in pushed]
    if returned and all(stay.end < end for stay in returned):
        x.level[interval] = NEVER
    elif returned:
        x.level[interval] = 1 + sum(stay.end < end for stay in returned)
