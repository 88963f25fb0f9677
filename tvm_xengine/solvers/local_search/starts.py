"""Decisions that a search begins from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.local_search.compiled.decisions import (
    Decisions,
    drop_in_long_intervals,
    keep_all_decisions,
)
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import TimeSource

_LOOSER = (1.1, 1.25, 1.5, 2.0, 3.0, 6.0)
"""Factors on the budgets under which the greedy solver is asked when it fails under them."""
_LONGEST_HELD = (1, 4, 16, 32, 64, 128)
"""Lengths of the longest use intervals, in ops, through which frugal starts hold tensors."""
_MOST_NEEDY = 4
"""One of so many ops, which need most memory, is tried on another device before each new start: on
real networks the next ones need much less."""


def plain_starts(indexed: IndexedProblem, *, is_frugal: bool) -> Iterator[Decisions]:
    """Keep-all decisions on the cheapest or on one device and, if frugal, ones that drop much."""
    cheapest = indexed.compute_value.argmin(axis=1)
    computing = np.flatnonzero(indexed.can_run.any(axis=0))
    single = [np.where(indexed.can_run[:, d], d, cheapest) for d in computing]
    for device in (cheapest, *single):
        yield keep_all_decisions(indexed, device)
        if is_frugal:
            for longest in _LONGEST_HELD:
                yield drop_in_long_intervals(indexed, device, longest)


def schedule_beyond_budgets(
    problem: Problem, objective: Objective, may_go_on: Callable[[], bool], clock: TimeSource
) -> Schedule | None:
    """A greedy schedule under budgets that are as little larger as possible."""
    for factor in _LOOSER:
        if not may_go_on():
            break
        looser = {
            device.name: min(UNLIMITED_BYTES, int(factor * device.budget_bytes))
            for device in problem.platform.devices
        }
        schedule = greedy_schedule(
            problem.with_budgets(looser), objective=objective, may_go_on=may_go_on, clock=clock
        )
        if schedule is not None:
            return schedule
    return None


def other_places(indexed: IndexedProblem, x: Decisions) -> Iterator[tuple[int, int]]:
    """(op, device), over and over: where `x` does not run the ops that need most memory."""
    neediest = sorted(x.order.tolist(), key=lambda i: needed_units(indexed, i), reverse=True)
    yield from cycle(
        (i, d)
        for i in neediest[:_MOST_NEEDY]
        for d in range(indexed.device_count)
        if x.device[i] != d and indexed.can_run[i, d]
    )


def needed_units(indexed: IndexedProblem, i: int) -> int:
    """Memory for all that op i touches, and its least workspace."""
    touched = [*indexed.reads[i], *indexed.makes[i]]
    return int(indexed.size[touched].sum() + indexed.workspace[i].min())
