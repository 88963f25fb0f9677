"""Byte addresses for every tensor and workspace of a schedule, one arena for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.byte_sizes import round_up
from tvm_xengine.problem import Problem
from tvm_xengine.residency import Residency, trace_residency
from tvm_xengine.schedule import Compute, Schedule


@dataclass(frozen=True)
class ArenaPlan:
    """Where everything lies.

    Attributes
    ----------
    residency
        The instances that were laid out and the steps that touch them.
    offset_bytes
        Address of each instance inside the arena of its device.
    workspace_offset_bytes
        Address of the workspace of each step that has one, by step position.
    arena_bytes
        Size of each device's arena; at least the peak of the schedule.
    """

    residency: Residency
    offset_bytes: tuple[int, ...]
    workspace_offset_bytes: Mapping[int, int]
    arena_bytes: Mapping[str, int]


def plan_arenas(problem: Problem, schedule: Schedule, *, attempts: int = 60) -> ArenaPlan:
    """Non-overlapping addresses for a valid schedule; arenas are as small as was found.

    State on its home device is laid at the bottom and keeps its address for the whole step.
    Everything else is placed first-fit, in several orders; then items that stick out on
    top are placed earlier and the layout is tried again, until the arena equals the peak of
    live bytes (a lower bound) or `attempts` layouts were tried. Offsets are multiples of
    ``problem.platform.alignment_bytes``.
    """
    residency = trace_residency(problem, schedule)
    alignment = problem.platform.alignment_bytes
    offsets = [0] * len(residency.instances)
    workspace_offsets: dict[int, int] = {}
    arena_bytes: dict[str, int] = {}
    for device in problem.platform.devices:
        instances = [i for i in residency.instances if i.device == device.name]
        workspaces = _workspaces(problem, schedule, device.name)
        items = _Items.of(
            [(i.start, i.end, round_up(i.size_bytes, alignment)) for i in instances]
            + [(at, at, round_up(size, alignment)) for at, size in workspaces]
        )
        pinned: dict[int, int] = {}
        home_offset: dict[str, int] = {}
        bottom = 0
        for k, instance in enumerate(instances):
            if instance.is_home_state:
                if instance.tensor not in home_offset:
                    home_offset[instance.tensor] = bottom
                    bottom += int(items.size[k])
                pinned[k] = home_offset[instance.tensor]
        layout = _pack(items, pinned, attempts)
        for k, instance in enumerate(instances):
            offsets[instance.id] = int(layout[k])
        for k, (at, _) in enumerate(workspaces, start=len(instances)):
            workspace_offsets[at] = int(layout[k])
        arena_bytes[device.name] = int(np.max(layout + items.size, initial=0))
    return ArenaPlan(residency, tuple(offsets), workspace_offsets, arena_bytes)


@dataclass(frozen=True)
class _Items:
    """Things to lay out: steps [start, end] inclusive and bytes, each of shape (N,)."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    size: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> _Items:
        table = np.asarray(rows, dtype=np.int64).reshape(len(rows), 3)
        # State that arrives before the first step is there during it.
        start = np.maximum(table[:, 0], 0)
        return cls(start, np.maximum(table[:, 1], start), table[:, 2])

    def peak_bytes(self) -> int:
        """Largest sum of sizes live at one step."""
        if not len(self.size):
            return 0
        change = np.zeros(int(self.end.max()) + 2, dtype=np.int64)
        np.add.at(change, self.start, self.size)
        np.add.at(change, self.end + 1, -self.size)
        return int(np.cumsum(change).max())


def _workspaces(problem: Problem, schedule: Schedule, device: str) -> list[tuple[int, int]]:
    return [
        (position, problem.costs[step.op][device].workspace_bytes)
        for position, step in enumerate(schedule.steps)
        if isinstance(step, Compute)
        and step.device == device
        and problem.costs[step.op][device].workspace_bytes > 0
    ]


def _pack(items: _Items, pinned: Mapping[int, int], attempts: int) -> NDArray[np.int64]:
    """Offsets of shape (N,) so that no two items that live at the same step overlap."""
    free = np.array([k for k in range(len(items.size)) if k not in pinned], dtype=np.int64)
    goal = items.peak_bytes()
    duration = items.end - items.start + 1
    orders = [
        free[np.lexsort((free, -duration[free], -items.size[free]))],
        free[np.lexsort((free, -items.size[free] * duration[free]))],
        free[np.lexsort((free, -items.size[free], -duration[free]))],
        free[np.lexsort((free, -items.size[free], items.start[free]))],
    ]
    best, best_top = None, -1
    order = orders[0]
    for attempt in range(max(attempts, 1)):
        if attempt < len(orders):
            order = orders[attempt]
        layout = _first_fit(items, pinned, order)
        top = int(np.max(layout + items.size, initial=0))
        if best is None or top < best_top:
            best, best_top, best_order = layout, top, order
        if best_top <= goal:
            break
        if attempt >= len(orders) - 1:
            order = _hoist(items, best_order if attempt == len(orders) - 1 else order, layout, top)
    assert best is not None
    return best


def _hoist(
    items: _Items, order: NDArray[np.int64], layout: NDArray[np.int64], top: int
) -> NDArray[np.int64]:
    """The order with the items that reach the top placed before everything else."""
    sticking_out = layout[order] + items.size[order] >= top
    return np.concatenate([order[sticking_out], order[~sticking_out]])


def _first_fit(
    items: _Items, pinned: Mapping[int, int], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Place the items of `order` one by one at the lowest address that is free throughout."""
    count = len(items.size)
    layout = np.zeros(count, dtype=np.int64)
    placed = np.zeros(count, dtype=bool)
    for k, offset in pinned.items():
        layout[k] = offset
        placed[k] = True
    for k in order:
        if items.size[k] > 0:
            rivals = np.flatnonzero(
                placed
                & (items.start <= items.end[k])
                & (items.end >= items.start[k])
                & (items.size > 0)
            )
            begins = layout[rivals]
            by_begin = np.argsort(begins, kind="stable")
            begins = begins[by_begin]
            ends = np.maximum.accumulate(begins + items.size[rivals][by_begin])
            floors = np.concatenate([np.zeros(1, dtype=np.int64), ends])
            gaps = np.concatenate([begins, [np.iinfo(np.int64).max]]) - floors
            layout[k] = floors[int(np.argmax(gaps >= items.size[k]))]
        placed[k] = True
    return layout
