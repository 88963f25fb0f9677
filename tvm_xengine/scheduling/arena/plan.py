"""Byte addresses for every tensor and workspace of a schedule, one arena for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_xengine.scheduling.arena.packing import Ints, Items, pack
from tvm_xengine.scheduling.arena.timeline import Lives, Timeline
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import Instance, Residency, trace_residency
from tvm_xengine.scheduling.schedule import Compute, Schedule, scratch_bytes
from tvm_xengine.scheduling.sizes import round_up

PACKING_EFFORT = 2_000_000
"""Items placed in the search for a smaller layout; 2.5 s on a U-Net of two devices."""
QUICK_EFFORT = PACKING_EFFORT // 10
"""For one of many layouts, for one of which only the size counts, and where time is short."""
_QUICK_STEPS = 1000
"""Of longer schedules each item is looked past more others: 200,000 of 4,000 steps took half a second."""


@dataclass(frozen=True)
class ArenaPlan:
    """Addresses of all tensors and workspaces of a schedule.

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

    def excess_bytes(self, platform: Platform) -> dict[str, int]:
        """Bytes by which arenas exceed the budgets of their devices; empty where all fit."""
        return {
            device.name: self.arena_bytes[device.name] - device.budget_bytes
            for device in platform.devices
            if self.arena_bytes[device.name] > device.budget_bytes
        }


def plan_arenas(
    problem: Problem,
    schedule: Schedule,
    *,
    effort: int = PACKING_EFFORT,
    seed: int = 0,
    reserve_home: bool = False,
    timeline: Timeline | None = None,
) -> ArenaPlan:
    """Non-overlapping addresses for a valid schedule; arenas are as small as was found.

    State on its home device keeps one address, also when it leaves and comes back; what is
    there throughout lies at the bottom. The layout is searched by `packing.pack`. Of a problem whose
    state lies apart, all home state is at the bottom and nothing lies across the line above it; while
    state is away, its bytes may be used.
    Offsets are multiples of ``problem.platform.alignment_bytes``.

    Parameters
    ----------
    effort
        Number of items that may be placed in the search for a smaller layout.
    reserve_home
        Whether the bytes of home state stay reserved while it is away, so that all of it lies at
        the bottom.
    timeline
        What is in use at the same time on it lies apart, too, so that no stream waits for bytes of
        another one. Without it only what lives during the same step lies apart.
    """
    residency = trace_residency(problem, schedule)
    lives = None if timeline is None else Lives(timeline, residency)
    placed: list[Ints] = []
    every = pieces_of(problem, schedule, residency, lives, reserve_home=reserve_home)
    for own in every:
        below = own.home_states if problem.state_apart else 0
        placed.append(_lay_out(own.rows, len(schedule.steps), effort, seed, below))
    return with_addresses(residency, every, placed)


@dataclass(frozen=True)
class Pieces:
    """What takes bytes on a device.

    Attributes
    ----------
    stays
        Instances that share an address: the stays of home state, else each by itself.
    scratch
        Position of each step that needs a workspace.
    rows
        Size, and when it is in use, of each of the stays and then of each workspace.
    """

    device: str
    stays: Sequence[Sequence[Instance]]
    scratch: Sequence[int]
    rows: Sequence[tuple[int, list[tuple[int, int]]]]

    @property
    def home_states(self) -> int:
        """How many of the rows, which are the first, are home state."""
        return sum(stay[0].is_home_state for stay in self.stays)


def pieces_of(
    problem: Problem,
    schedule: Schedule,
    residency: Residency,
    lives: Lives | None,
    *,
    reserve_home: bool,
) -> list[Pieces]:
    """What takes bytes on each device; with `lives` it is in use at times, too."""
    alignment = problem.platform.alignment_bytes
    whole = [(0, len(schedule.steps))]
    found = []
    for device in problem.platform.devices:
        scratch = workspaces(problem, schedule, device.name)
        pieces = _pieces([i for i in residency.instances if i.device == device.name])
        rows = [
            (
                round_up(piece[0].size_bytes, alignment),
                whole if reserve_home and piece[0].is_home_state else _intervals(piece),
            )
            for piece in pieces
        ]
        rows += [(round_up(size, alignment), [(at, at)]) for at, size in scratch]
        if lives is not None:
            used = [list(map(lives.of_instance, piece)) for piece in pieces]
            used += [[lives.of_step(at)] for at, _ in scratch]
            rows = [
                (size, stays if stays == whole else [*stays, *times])
                for (size, stays), times in zip(rows, used, strict=True)
            ]
        found.append(Pieces(device.name, pieces, [at for at, _ in scratch], rows))
    return found


def with_addresses(
    residency: Residency, every: Sequence[Pieces], addresses: Sequence[Ints]
) -> ArenaPlan:
    """The layout in which the rows of each device have these addresses."""
    offsets = [0] * len(residency.instances)
    workspace_offsets: dict[int, int] = {}
    arena_bytes: dict[str, int] = {}
    for own, placed in zip(every, addresses, strict=True):
        for stays, offset in zip(own.stays, placed.tolist(), strict=False):
            for instance in stays:
                offsets[instance.id] = offset
        workspace_offsets |= zip(own.scratch, placed[len(own.stays) :].tolist(), strict=True)
        size = np.array([row[0] for row in own.rows], np.int64)
        arena_bytes[own.device] = int(np.max(placed + size, initial=0))
    return ArenaPlan(residency, tuple(offsets), workspace_offsets, arena_bytes)


def _lay_out(
    rows: Sequence[tuple[int, list[tuple[int, int]]]],
    steps: int,
    effort: int,
    seed: int,
    below: int,
) -> Ints:
    """An address for each (size, intervals) row.

    What is there throughout goes to the bottom, in the order of the rows: nothing else can ever
    use its bytes, so that the rest loses no room. The first `below` rows lie below a line in any case.
    """
    layout = np.zeros(len(rows), dtype=np.int64)
    throughout = there_throughout(rows, steps)
    if not set(range(below)) <= set(throughout):
        throughout = []
    else:
        below = 0
    bottom = 0
    for k in throughout:
        layout[k] = bottom
        bottom += rows[k][0]
    rest = sorted(set(range(len(rows))) - set(throughout))
    items = Items.of([rows[k] for k in rest], below=below)
    layout[rest] = bottom + pack(items, evaluations=effort // max(len(rest), 1), seed=seed)
    return layout


def there_throughout(rows: Sequence[tuple[int, list[tuple[int, int]]]], steps: int) -> list[int]:
    """The rows that are in use from the first step to the end."""
    return [k for k, (_, stays) in enumerate(rows) if stays == [(0, steps)]]


def quick_effort(steps: int) -> int:
    """The effort for a layout of so many steps where time is short."""
    return QUICK_EFFORT * min(steps, _QUICK_STEPS) // max(steps, 1)


def workspaces(problem: Problem, schedule: Schedule, device: str) -> list[tuple[int, int]]:
    """Position of each step on a device that needs a workspace, and the bytes of that."""
    return [
        (position, needed_bytes)
        for position, step in enumerate(schedule.steps)
        if isinstance(step, Compute)
        and step.device == device
        and (needed_bytes := scratch_bytes(problem, step)) > 0
    ]


def _pieces(instances: Sequence[Instance]) -> list[list[Instance]]:
    """Instances that must share one address: the stays of home state, else each by itself."""
    by_state: dict[str, list[Instance]] = {}
    alone = []
    for instance in instances:
        if instance.is_home_state:
            by_state.setdefault(instance.tensor, []).append(instance)
        else:
            alone.append([instance])
    return [*by_state.values(), *alone]


def _intervals(piece: Sequence[Instance]) -> list[tuple[int, int]]:
    """Steps during which a piece is live; what is there before step 0 is there during it."""
    return [(max(i.start, 0), max(i.end, i.start, 0)) for i in piece]
