"""Keep-all: every op runs once, on a given device, and nothing is dropped early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.indexed import (
    NONE,
    IndexedProblem,
)
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.state import ScheduleState


def keep_all(problem: Problem, request: Request) -> Schedule | None:
    """The best schedule that runs every op once; None when none of those tried fits."""
    indexed = index_problem(problem, summed(request.objective))
    made = (run_once(indexed, placement) for placement in _placements(indexed))
    return request.best_of(problem, made)


def run_once(indexed: IndexedProblem, placement: Sequence[int]) -> Schedule | None:
    """The schedule that runs each op once on its device of `placement`, in the given order.

    Tensors are copied along the cheapest links right before they are read; updates go home
    right after. None when a link is missing.
    """
    state = ScheduleState(indexed)
    try:
        for i, d in enumerate(placement):
            for j in state.missing(i, d):
                _bring(state, j, d)
            landings = state.landings(i, d)
            state.compute(i, d)
            for j, old in landings:
                _bring(state, j, int(indexed.home[old]))
    except InvalidScheduleError:
        return None
    return state.schedule()


def _bring(state: ScheduleState, j: int, d: int) -> None:
    """Copy tensor j to device d from the nearest device that holds it."""
    routes = state.problem.routes
    at = min(state.holders(j), key=lambda e: float(routes.value[e, d, j]), default=NONE)
    while at != d:
        to = NONE if at == NONE else int(routes.next_hop[at, d, j])
        if to == NONE:
            raise InvalidScheduleError(f"no links bring {state.problem.tensor_names[j]} there")
        state.transfer(j, at, to)
        at = to


def _placements(indexed: IndexedProblem) -> Iterator[Sequence[int]]:
    """Placements: all ops on one device, for each that can; every op where it is cheapest."""
    computing = np.flatnonzero(indexed.can_run.any(axis=0)).tolist()
    for d in computing:
        if indexed.can_run[:, d].all():
            yield [d] * indexed.op_count
    if len(computing) > 1:
        yield indexed.compute_value.argmin(axis=1).tolist()
