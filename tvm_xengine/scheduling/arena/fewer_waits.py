"""Layouts in which streams that run side by side wait as little for each other's memory as a search finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tvm_xengine.scheduling.arena.order_search import (
    AsItRuns,
    Order,
    Scratch,
    Shelves,
    improve_order,
)
from tvm_xengine.scheduling.arena.packing import Ints, Items, live_together, sensible_orders
from tvm_xengine.scheduling.arena.plan import (
    ArenaPlan,
    Pieces,
    pieces_of,
    there_throughout,
    with_addresses,
)
from tvm_xengine.scheduling.arena.timeline import Lives, Timeline
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import Residency
from tvm_xengine.scheduling.schedule import Free, Schedule, stream_of_step
from tvm_xengine.scheduling.simulate import step_us
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES

_MOST_STARTS = 2
"""Orders that are improved, those that wait least to begin with; with all six each gets too few changes."""
_SEED = 88172645463325253
"""State of the random numbers for seed 0; any odd number will do."""


def arenas_with_fewer_waits(
    problem: Problem,
    schedule: Schedule,
    arenas: ArenaPlan,
    timeline: Timeline,
    *,
    effort: int,
    seed: int = 0,
    reserve_home: bool = False,
) -> ArenaPlan:
    """A layout within the budgets of which the search finds that the step ends soonest; else `arenas`.

    Pieces are placed one by one at the lowest address that is free during their steps, as in `packing.pack`.
    A piece may also avoid what is in use at the same times, as long as it finds such a place within the
    budget. The search changes the order and which pieces do, and judges each layout by its makespan.

    Parameters
    ----------
    arenas
        From whose order the search begins, too; they may exceed the budgets.
    timeline
        When steps run that do not wait for addresses.
    effort
        Number of pieces that may be placed.
    reserve_home
        As in `plan_arenas`.
    """
    residency = arenas.residency
    by_step = pieces_of(problem, schedule, residency, None, reserve_home=reserve_home)
    lives = Lives(timeline, residency)
    by_time = pieces_of(problem, schedule, residency, lives, reserve_home=reserve_home)
    fixed = [there_throughout(own.rows, len(schedule.steps)) for own in by_step]
    apart = [
        problem.state_apart and not set(range(own.home_states)) <= set(there)
        for own, there in zip(by_step, fixed, strict=True)
    ]
    count = sum(len(own.rows) for own in by_step)
    # Nothing may lie across a line, of which the search knows nothing.
    if any(apart) or count == sum(map(len, fixed)):
        return arenas
    at = np.cumsum([0, *(len(own.rows) for own in by_step)])
    items = Items.of([row for own in by_step for row in own.rows])
    shelves = Shelves(
        size=items.size,
        device=np.repeat(np.arange(len(by_step)), np.diff(at)),
        at=at,
        movable_at=at[:-1] + [len(there) for there in fixed],
        rivals=live_together(items),
        rivals_by_time=live_together(Items.of([row for own in by_time for row in own.rows])),
        budget=np.array(
            [min(UNLIMITED_BYTES, each.budget_bytes) for each in problem.platform.devices]
        ),
    )
    starts = [
        Order(places.copy(), np.full(count, avoids))
        for places in _orders(items, shelves, fixed, _addresses(arenas, by_step))
        for avoids in (0, 1)
    ]
    steps = _as_it_runs(problem, schedule, residency, by_step, at)
    goal_us = max(end for _, end in timeline.intervals_us)
    best = _best_addresses(steps, shelves, starts, goal_us, effort // count, seed)
    if best is None:
        return arenas
    return with_addresses(residency, by_step, np.split(best, at[1:-1]))


def _best_addresses(
    steps: AsItRuns,
    shelves: Shelves,
    starts: Sequence[Order],
    goal_us: float,
    evaluations: int,
    seed: int,
) -> Ints | None:
    """The addresses with which the step ends soonest, from the best orders; None if all exceed a budget."""
    scratch = Scratch.of(steps, shelves)
    found: list[tuple[float, float, Order]] = []
    for order in starts:
        improve_order(steps, shelves, order, scratch, goal_us, 0, np.uint64(_SEED))
        end_us, beyond = scratch.found.tolist()
        found.append((beyond, end_us, order))
    found.sort(key=lambda one: one[:2])
    best_us, best = np.inf, None
    for number, (_, _, order) in enumerate(found[:_MOST_STARTS]):
        state = np.uint64(_SEED + 2 * (_MOST_STARTS * seed + number))
        improve_order(steps, shelves, order, scratch, goal_us, evaluations // _MOST_STARTS, state)
        end_us, beyond = scratch.found.tolist()
        if beyond == 0 and end_us < best_us:
            best_us, best = end_us, scratch.best.copy()
    return best


def _addresses(arenas: ArenaPlan, every: Sequence[Pieces]) -> Ints:
    """The address of each piece."""
    return np.array(
        [
            address
            for own in every
            for address in (
                *(arenas.offset_bytes[stays[0].id] for stays in own.stays),
                *(arenas.workspace_offset_bytes[at] for at in own.scratch),
            )
        ],
        np.int64,
    )


def _orders(
    items: Items, shelves: Shelves, fixed: Sequence[Sequence[int]], addresses: Ints
) -> Iterator[Ints]:
    """The order of some addresses and other sensible ones, device by device, what is fixed first."""
    number = np.arange(len(items.size))
    is_fixed = np.zeros(len(items.size), np.bool_)
    for first, there in zip(shelves.at.tolist(), fixed, strict=False):
        is_fixed[[first + k for k in there]] = True
    for order in (np.argsort(addresses, kind="stable"), *sensible_orders(items)):
        rank = np.empty_like(number)
        rank[order] = number
        yield np.lexsort((np.where(is_fixed, number, rank), ~is_fixed, shelves.device))


def _as_it_runs(
    problem: Problem, schedule: Schedule, residency: Residency, every: Sequence[Pieces], at: Ints
) -> AsItRuns:
    """The steps but for frees, and the pieces that each of them takes and touches."""
    piece = np.zeros(len(residency.instances), np.int64)
    workspace: dict[int, int] = {}
    for own, first in zip(every, at.tolist(), strict=False):
        for number, stays in enumerate(own.stays, first):
            piece[[instance.id for instance in stays]] = number
        workspace |= {at: number for number, at in enumerate(own.scratch, first + len(own.stays))}
    streams: dict[object, int] = {}
    rows: list[tuple[int, float]] = []
    lists: tuple[list[list[int]], ...] = ([], [], [], [])
    for position, (step, access) in enumerate(zip(schedule.steps, residency.accesses, strict=True)):
        if isinstance(step, Free):
            continue
        stream = stream_of_step(problem.platform, step)
        rows.append((streams.setdefault(stream, len(streams)), step_us(problem, step)))
        scratch = [workspace[position]] if position in workspace else []
        new = [i for i in access.writes.values() if residency.instances[i].start == position]
        used = dict.fromkeys((*access.reads.values(), *access.writes.values()))
        taken, touched = (piece[each].tolist() for each in (new, list(used)))
        for of_steps, of_step in zip(
            lists,
            (
                list(access.reads.values()),
                list(access.writes.values()),
                [*taken, *scratch],
                [*touched, *scratch],
            ),
            strict=True,
        ):
            of_steps.append(of_step)
    return AsItRuns.of(rows, lists, len(residency.instances), problem.platform.handover_us or 0.0)
