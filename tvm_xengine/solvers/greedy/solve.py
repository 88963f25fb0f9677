"""The best of several greedy walks: placements, orders, and ways to choose what is evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import Simulation, simulate
from tvm_xengine.solvers.greedy.eviction import DeadEndError, Weights
from tvm_xengine.solvers.greedy.lean_order import in_grouped_order, in_lean_order
from tvm_xengine.solvers.greedy.walk import Walk
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.indexed import (
    Floats,
    IndexedProblem,
)
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import MACHINE_TIME, TimeSource

_CLOSE_RATIO = 1.005
"""From this multiple of the cheapest possible on, a leaner order is tried too. Chosen: from 1.0 to 1.02
nothing changes in `benchmarks.solvers.sensitivity`."""
_DEAR_RATIO = 1.25
"""From this multiple of the cheapest possible on, more than one way to weigh is tried. It trades time for
quality: 1.1 or less gives schedules that are 1 % cheaper in `benchmarks.solvers.sensitivity`, after more
walks; the search that follows gains more."""
_MOST_OPS = 12_000
"""Once something is found, so many ops are walked through in all, in search of something better: about
a second's work. Chosen: from 6,000 to 24,000 nothing changes in `benchmarks.solvers.sensitivity`."""
_MOST_STEPS, _MOST_STEPS_PER_OP = 60_000, 30.0
"""Where nothing is found, steps of all walks, whichever is more: some ten seconds' work on a thousand ops.
Walks that go in circles take five steps an op, and all of them took minutes."""
_UNASKED_S, _UNASKED_OPS = 0.25, 250
"""Processor time before it is asked whether to go on, on so many ops: greedy ends on a hundred in less, so
that what it finds there does not depend on how busy the machine is. On more ops it would end later anyway."""
_COUNTED_S = 1.6e-3
"""Work between two questions whether to go on: 16 steps of a walk."""
_MOST_GROUPED_OPS = 2000
"""Where nothing is found, ops of up to so many are ordered by groups, too: a third of a second's work on a
thousand, which grows with the square."""
_ELSEWHERE_FACTOR = 1000.0
"""A placement on one device counts runs elsewhere as so many of the longest runs: a last resort. Chosen:
from 100 to 10,000 nothing changes in `benchmarks.solvers.sensitivity`."""

_LAX = (Weights(), Weights(may_move=False))
_FRUGAL = (
    Weights(distance=0.0),
    Weights(price=0.0, distance=0.0),
    Weights(price=0.5),
    Weights(price=0.0),
    Weights(price=0.0, size=0.0),
    Weights(price=0.5, size=2.0),
    Weights(size=0.5, distance=2.0),
)
"""Ways to weigh, in the order in which they are tried."""


def greedy_schedule(
    problem: Problem,
    *,
    objective: Objective = Objective.COST,
    on_schedule: Callable[[Schedule, float], None] | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
    clock: TimeSource = MACHINE_TIME,
) -> Schedule | None:
    """A schedule within the budgets that the validator accepts, or None when none was found.

    Keeps all tensors if they fit. Otherwise the ops run in the order of the graph, and
    tensors are evicted by the price of bringing them back / (bytes x distance to the
    next use), as in DTR (Kirisame et al., ICLR 2021) but with the future known: dropped and
    recomputed, or moved to another device. Several placements and several ways to weigh are
    tried, from lax to frugal; the best result under `objective` wins (the makespan is weighed as
    cost while running).

    Parameters
    ----------
    on_schedule
        Called with each schedule that is better than those before, and its value.
    may_go_on
        Asked every few steps, on a small graph after a quarter of a second of work; the best so far is
        returned once it says no.
    clock
        By which that quarter passes.
    """
    if not problem.state_fits:
        return None
    indexed = index_problem(problem, summed(objective))
    until_s = clock.thread_s() + _UNASKED_S * (len(problem.graph.ops) <= _UNASKED_OPS)

    was_over = False

    def is_over() -> bool:
        nonlocal was_over
        clock.worked(_COUNTED_S)
        was_over = clock.thread_s() > until_s and not may_go_on()
        return was_over

    best = _Best(indexed, objective, on_schedule, is_over)
    orders = [*_with_rooms(indexed)]
    has_lean_order = False
    for weights in (*_LAX, *_FRUGAL):
        for ordered in orders:
            best.try_placements(ordered, weights)
        is_dear = best.value > indexed.cheapest * _CLOSE_RATIO
        if is_dear and not has_lean_order and not was_over:
            has_lean_order = True
            for reorder in (in_lean_order, in_grouped_order):
                is_needed = best.schedule is None and indexed.op_count <= _MOST_GROUPED_OPS
                if reorder is in_grouped_order and not is_needed:
                    break
                leaner = [*_with_rooms(reorder(indexed))]
                orders += leaner
                for ordered in leaner:
                    best.try_placements(ordered, weights)
        is_enough = (
            weights not in _LAX and best.schedule is not None and best.ops_walked > _MOST_OPS
        )
        if best.value <= indexed.cheapest * _DEAR_RATIO or is_enough or is_over():
            break
    return best.schedule


def _with_rooms(indexed: IndexedProblem) -> Iterator[IndexedProblem]:
    """The problem in which runs make room for their leanest kernels, and for their cheapest."""
    yield indexed
    if indexed.kernels.count > 1:
        yield replace(indexed, workspace=indexed.kernels.workspace[:, :, -1])


class _Best:
    """The best schedule so far.

    Attributes
    ----------
    ops_walked
        Over how many ops walks went, as a measure of work that is the same on every machine.
    steps_walked
        Steps of all walks, those included that came to nothing.
    settled
        Orders and placements under which nothing had to be evicted, so that weights do not matter.
    """

    def __init__(
        self,
        indexed: IndexedProblem,
        objective: Objective,
        on_schedule: Callable[[Schedule, float], None] | None,
        is_over: Callable[[], bool],
    ) -> None:
        self.problem = indexed.problem
        self.objective = objective
        self.on_schedule = on_schedule
        self.is_over = is_over
        self.schedule: Schedule | None = None
        self.value = np.inf
        self.ops_walked = 0
        self.steps_walked = 0
        self.settled: set[tuple[int, int]] = set()

    @property
    def is_hopeless(self) -> bool:
        """Whether walks that found nothing have taken enough steps."""
        most = max(_MOST_STEPS, _MOST_STEPS_PER_OP * len(self.problem.graph.ops))
        return self.steps_walked > most

    def try_placements(self, indexed: IndexedProblem, weights: Weights) -> None:
        """Walk with every placement and keep the best schedule."""
        for number, compute_value in enumerate(_placements(indexed)):
            if (id(indexed), number) in self.settled:
                continue
            if (self.schedule is None and self.is_hopeless) or self.is_over():
                return
            walk = Walk(indexed, compute_value, weights, self.is_over)
            schedule = _schedule_of(walk)
            self.ops_walked += indexed.op_count
            self.steps_walked += len(walk.state.steps)
            if schedule is not None and not walk.eviction.has_evicted:
                self.settled.add((id(indexed), number))
            simulation = accepted(self.problem, schedule)
            if simulation is not None and self.objective.of(simulation) < self.value:
                self.value, self.schedule = self.objective.of(simulation), schedule
                if self.on_schedule is not None and schedule is not None:
                    self.on_schedule(schedule, self.value)


def accepted(problem: Problem, schedule: Schedule | None) -> Simulation | None:
    """The validator's simulation of `schedule`; None if it is refused."""
    if schedule is None:
        return None
    try:
        return simulate(problem, schedule)
    except InvalidScheduleError:
        return None


def _placements(indexed: IndexedProblem) -> Iterator[Floats]:
    """Value of each op on each device, as each way to place them sees it.

    First every op where it is cheapest, copies considered; then all that is possible on one
    device; the first is skipped when only one device computes.
    """
    value = indexed.compute_value
    computing = np.flatnonzero(indexed.can_run.any(axis=0))
    if len(computing) > 1:
        yield value
    penalty = _ELSEWHERE_FACTOR * float(value[indexed.can_run].max(initial=1.0))
    for d in computing:
        elsewhere = np.full(indexed.device_count, penalty)
        elsewhere[d] = 0.0
        yield value + elsewhere[None, :]


def _schedule_of(walk: Walk) -> Schedule | None:
    """The schedule of the walk; None if it reaches a dead end."""
    try:
        walk.run()
    except (DeadEndError, InvalidScheduleError):
        return None
    return walk.state.schedule()
