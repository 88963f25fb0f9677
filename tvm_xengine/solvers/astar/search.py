"""The proven optimum by A* over states, in slices between which it can be stopped or learn better values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.astar.bounds.affordable import without_costly_runs
from tvm_xengine.solvers.astar.bounds.covers import make_covers
from tvm_xengine.solvers.astar.counted import Counted, counted_first, to_count, with_counted
from tvm_xengine.solvers.astar.memory import (
    EXPANDED,
    GOAL,
    Memory,
    known_after,
    new_memory,
    nothing_known,
)
from tvm_xengine.solvers.astar.move_scratch import new_move_scratch
from tvm_xengine.solvers.astar.shortest import EXHAUSTED, FOUND, RUNNING, advance, begin
from tvm_xengine.solvers.astar.view import (
    WORD,
    Words,
    first_state,
    is_within_reach,
    view_of,
)
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.indexed import (
    ANYWHERE,
    IndexedProblem,
)
from tvm_xengine.solvers.presolve import without_dominated_runs
from tvm_xengine.solvers.request import PROOF_RATIO
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import MACHINE_TIME, TimeSource

_STATES = 3_000_000
"""States remembered at most, some 60 bytes each and as much again for the heap."""
_COUNTED_SHARE = 0.01
"""Tensors below this share of a budget are not counted before a schedule shows that they must."""
_FACTOR = 16.0
"""By how much more than what is missing is counted, from one time to the next."""
_SLICE = 10_000
"""Ways to make room tried between two looks at the clock and the incumbent."""

_SLICE_S = 0.01
"""Work of a slice."""


@dataclass(frozen=True)
class ShortestPath:
    """Bound and schedule that the search has found.

    Attributes
    ----------
    bound
        What every schedule costs at least; infinite when there is none.
    schedule
        One that costs no more than the bound; None where the search was stopped, or where
        nothing costs less than what was known.
    is_over
        Whether there is nothing left to look at.
    expanded
        States looked at.
    """

    bound: float
    schedule: Schedule | None
    is_over: bool
    expanded: int


@dataclass(frozen=True)
class Exchange:
    """What the search tells others after every slice, and hears from them.

    Attributes
    ----------
    known
        The value of the best schedule so far; only cheaper ones are looked for.
    should_stop
        Whether to end with the bound so far.
    on_bound
        Told the bound.
    """

    known: Callable[[], float | None] = lambda: None
    should_stop: Callable[[], bool] = lambda: False
    on_bound: Callable[[float], None] = lambda _bound: None


ALONE = Exchange()


def shortest_path(
    problem: Problem,
    objective: Objective,
    exchange: Exchange = ALONE,
    *,
    capacity: int = _STATES,
    counted_share: float = _COUNTED_SHARE,
    clock: TimeSource = MACHINE_TIME,
) -> ShortestPath | None:
    """The cheapest schedule of all, or a bound when it is stopped; None where it does not apply.

    It applies to few ops on devices that are all linked to each other, each link being the
    cheapest way (`view.is_within_reach`).

    Parameters
    ----------
    exchange
        With others that work on the same problem.
    capacity
        States that may be remembered.
    counted_share
        Smaller tensors, as shares of a budget, are only counted once it shows that they must.
    clock
        Is told of every slice.
    """
    indexed = index_problem(problem, objective)
    if not is_within_reach(indexed):
        return None
    if not problem.state_fits:
        return ShortestPath(np.inf, None, True, 0)
    search = _Search(indexed, exchange, capacity, clock)
    # What a run takes depends on all that is there, where it has a choice of kernels.
    share = counted_share if indexed.kernels.count == 1 else 0.0
    counted, factor = counted_first(view_of(indexed), share), 1.0
    while True:
        answer = search.advance(counted)
        if answer == EXHAUSTED:
            return ShortestPath(search.bound, None, True, search.expanded)
        if answer != FOUND:
            return ShortestPath(search.bound, None, False, search.expanded)
        schedule = _schedule(indexed, search.memory)
        more = to_count(indexed, counted, schedule, factor)
        if not more.any():
            return ShortestPath(search.bound, schedule, True, search.expanded)
        counted, factor = counted | more, _FACTOR * factor


class _Search:
    """Repeated A* searches, each with more sizes counted."""

    def __init__(
        self, indexed: IndexedProblem, exchange: Exchange, capacity: int, clock: TimeSource
    ) -> None:
        self._indexed, self._exchange = indexed, exchange
        self._capacity, self._clock = capacity, clock
        self._known_states = nothing_known(len(first_state(indexed)))
        self.bound, self.expanded = 0.0, 0

    def advance(self, counted: Counted) -> int:
        """Search until an answer or a stop; raises `bound` and `expanded`."""
        self._indexed = without_dominated_runs(without_costly_runs(self._indexed, self._cut()))
        view = with_counted(view_of(self._indexed), counted)
        covers = make_covers(self._indexed, view)
        first = first_state(self._indexed)
        move_scratch = new_move_scratch(view, covers, len(first))
        self.memory = memory = new_memory(self._capacity, self._known_states)
        begin(view, covers, memory, move_scratch, first)
        reached, answer = np.zeros(1), RUNNING
        while answer == RUNNING and not self._exchange.should_stop():
            cut = self._cut()
            answer = advance(view, covers, memory, move_scratch, cut, _SLICE, reached)
            self._clock.worked(_SLICE_S)
            least = cut if answer == EXHAUSTED else min(reached[0], cut)
            self.bound = max(self.bound, float(least))
            self._exchange.on_bound(self.bound)
        self.expanded += int(memory.counter[EXPANDED])
        if answer == FOUND:
            self._known_states = known_after(memory, float(memory.paid[memory.counter[GOAL]]))
        return answer

    def _cut(self) -> float:
        """The cost from which on schedules are of no interest."""
        best = self._exchange.known()
        return np.inf if best is None else best - 0.5 * PROOF_RATIO * abs(best)


def _schedule(indexed: IndexedProblem, memory: Memory) -> Schedule:
    """The steps that lead to the goal, and the frees that follow from them."""
    path = [int(memory.counter[GOAL])]
    while (parent := int(memory.parent[path[-1]])) >= 0:
        path.append(parent)
    path.reverse()
    steps: list[Step] = []
    for before, after in pairwise(path):
        code = int(memory.move[after])
        steps += _steps(indexed, memory.rows[before], memory.rows[after], code)
    last = _where(indexed, memory.rows[path[-1]])
    survivors = {
        indexed.tensor_names[j]: indexed.device_names[d]
        for d, j in last
        if indexed.must_end_on[j] == ANYWHERE
    }
    return with_frees(indexed.problem, steps, survivors=survivors)


def _steps(indexed: IndexedProblem, before: Words, after: Words, code: int) -> list[Step]:
    """The copies and the run of one move: saved, then fetched, then run or copied."""
    was, stays = _where(indexed, before), _where(indexed, after)
    which, d = divmod(code, indexed.device_count)
    is_run = which < indexed.op_count
    moved = () if is_run else (which - indexed.op_count,)
    fetched = [j for j in indexed.reads[which] if (d, j) not in was] if is_run else [*moved]
    made = set(indexed.makes[which]) if is_run else set()
    steps: list[Step] = [
        indexed.transfer(j, d, r)
        for r, j in sorted(stays - was)
        if r != d and (d, j) in was and j not in made
    ]
    for j in fetched:
        sources = [a for a in range(indexed.device_count) if a != d and (a, j) in was]
        steps.append(
            indexed.transfer(j, min(sources, key=lambda a: indexed.transfer_value[a, d, j]), d)
        )
    return [*steps, indexed.compute(which, d)] if is_run else steps


def _where(indexed: IndexedProblem, row: Words) -> set[tuple[int, int]]:
    """The (device, tensor) pairs of a state."""
    words = (len(row) - 2) // indexed.device_count - 1
    return {
        (d, j)
        for d in range(indexed.device_count)
        for j in range(indexed.tensor_count)
        if int(row[d * words + j // WORD]) >> (j % WORD) & 1
    }
