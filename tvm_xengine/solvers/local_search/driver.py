"""The anytime search: greedy start, annealing in rounds, validated results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.solve import accepted, greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.local_search.annealer import Annealer
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions, assign, copied
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.scratch import schedule_left_in, scratch_of
from tvm_xengine.solvers.local_search.compiled.view import Records
from tvm_xengine.solvers.local_search.hints import Hints
from tvm_xengine.solvers.local_search.repair import repaired_decisions_of
from tvm_xengine.solvers.local_search.starts import (
    other_places,
    plain_starts,
    schedule_beyond_budgets,
)
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.solvers.time_source import TimeSource

_ROUND_PER_DECISION = 20
_SHORTEST_ROUND, _LONGEST_ROUND = 400, 40_000
"""Evaluations in a round: so many for each use interval, within these limits. Chosen: with half or twice
as many for each, schedules cost 1 % more in `benchmarks.solvers.sensitivity`, less than seeds differ by."""
_LEAST_ROUNDS = 3
_LEAST_AFFORDABLE = 500
"""Rounds are made so short that the time limit allows for this many, but not shorter than that."""
_LEAST_FOLLOWED = 30_000
"""So many evaluations at least go into each suggestion of a relaxation, in several tries where the
graph is small."""
_MOST_SHAKEN = 8
"""Random changes with which a round begins; a new start gets up to one for each op more."""
_PATIENCE = 3
"""After so many rounds without an improvement another start is tried."""
_PLACED_TIMES = 4
_MOST_PLACED = 80_000
"""Trying an op elsewhere takes so many times as long as a round, and so many evaluations at most."""
_COUNTED_S_PER_OP = 3e-7
"""An evaluation takes 0.23 to 0.76 us for each op of LeNet, DS-CNN, ResNet-8 and gpt_nano."""
_UNLIMITED = 2**62
"""Evaluations of a search that only the clock limits."""
_TIMED_DECODES = 5
"""Decodes that are timed before the first slice, to know how long it may be."""
_WANTED_RATIO = 1 + 1e-9
"""Repaired decisions may cost so much more than their schedule: sums differ in their last digits."""
_REACHED_RATIO = 1 + 1e-12
"""A value so close to the sum of the cheapest is that sum, for the same reason."""


@dataclass(frozen=True)
class Exchange:
    """What a search tells others while it runs, and hears from them.

    Attributes
    ----------
    on_improvement
        Called with (value, schedule) after each improvement, at most a few times a second.
    should_stop
        Asked as often; the search ends when it says so.
    hints
        Decisions that relaxations suggest, followed as they come.
    """

    on_improvement: Callable[[float, Schedule], None] | None = None
    should_stop: Callable[[], bool] = lambda: False
    hints: Hints | None = None


ALONE = Exchange()


def search(
    problem: Problem,
    *,
    objective: Objective = Objective.COST,
    limits: Limits | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    start: Schedule | None = None,
    exchange: Exchange = ALONE,
) -> Schedule | None:
    """The best schedule found within the limits; None when none was found.

    Starts from `start`, or else from the greedy schedule, and never returns a worse one than
    either. Stops early only when the sum of the cheapest values is reached (cost and energy).

    Parameters
    ----------
    limits
        By wall clock or counted work; by default those of `Limits`.
    evaluations
        Stop after this many decodes. Two runs that stop for this reason return the same
        schedule, whatever the speed of the machine.
    exchange
        With others that work on the same problem.
    """
    if not problem.state_fits:
        return None
    limits = limits or Limits()
    run = _Search(problem, objective, seed, exchange, limits.clock)
    return run.run(limits, evaluations, start)


class _Search:
    """One search: a chain of rounds, the best of all chains so far, and new starts."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        seed: int,
        exchange: Exchange,
        clock: TimeSource,
    ) -> None:
        self.problem, self.clock = problem, clock
        self.objective = objective
        self.exchange = exchange
        self.best_schedule: Schedule | None = None
        self.best_value = np.inf
        self.deadline = np.inf
        self.indexed = index_problem(problem, summed(objective))
        self.random = np.random.default_rng(seed)
        self.annealer = Annealer(
            self.indexed,
            by_makespan=objective is Objective.MAKESPAN,
            seed=seed,
            is_over=self._is_over,
            on_better=self._accept if exchange.on_improvement else lambda _best, _status: None,
            has_news=lambda: bool(exchange.hints),
            clock=clock,
        )
        self.status = self.annealer.status[0]
        self._apart = scratch_of(self.indexed)

    def run(
        self, limits: Limits, evaluations: int | None, start: Schedule | None
    ) -> Schedule | None:
        """Search until a limit is reached."""
        self.deadline = self.clock.now_s() + limits.time_limit_s
        first = start or greedy_schedule(
            self.problem,
            objective=self.objective,
            may_go_on=self._may_go_on,
            clock=self.clock,
        )
        simulation = accepted(self.problem, first)
        if first is not None and simulation is not None:
            self._take(self.objective.of(simulation), first)
        x = self._first_decisions(first)
        if x is None:
            return self.best_schedule
        self._begin(x)
        left = _UNLIMITED if evaluations is None else evaluations
        longest = int(np.clip(_ROUND_PER_DECISION * len(x.keep), _SHORTEST_ROUND, _LONGEST_ROUND))
        self.annealer.speed = self._evaluations_per_s(x)
        while left > 0 and not self._is_over():
            length = longest
            if evaluations is None:
                remaining_s = self.deadline - self.clock.now_s()
                affordable = self.annealer.speed * remaining_s / _LEAST_ROUNDS
                length = int(np.clip(affordable, _LEAST_AFFORDABLE, longest))
            hint = self.exchange.hints.take() if self.exchange.hints is not None else None
            if hint is not None:
                for _ in range(max(1, _LEAST_FOLLOWED // length)):
                    left -= self.annealer.follow(hint, self.chain, max(0, min(left, length)))
            elif self.since_improved >= _PATIENCE:
                left -= self._start_anew(left, length)
            else:
                left -= self._improve_chain(left, length)
        self._accept(self.chain, self.annealer.status)
        return self.best_schedule

    def _begin(self, x: Decisions) -> None:
        """Begin a chain from `x`, which is the best so far, too."""
        self.chain = self.annealer.start_from(x)
        self.champion = copied(x)
        self.record = self._reached()
        self.starts = self._restarts(copied(x))
        self.places = self._other_places()
        self.rounds, self.since_improved = 0, 0

    def _improve_chain(self, left: int, length: int) -> int:
        """One round from the best of the chain; returns how many decisions were evaluated."""
        before = self._reached()
        x, shaken = copied(self.chain), 0
        if self.rounds % 2:
            shaken = self.annealer.shake(x, 1 + self.rounds % _MOST_SHAKEN)
        done = self.annealer.round(self.rounds, x, self.chain, min(left - shaken, length))
        self.rounds += 1
        self.since_improved = 0 if self._is_better_than(before) else self.since_improved + 1
        return shaken + done

    def _start_anew(self, left: int, length: int) -> int:
        """Try a memory-hungry op on another device; if that fails, begin a chain from another start."""
        self._accept(self.chain, self.annealer.status)
        if self._reached() < self.record:
            assign(self.champion, self.chain)
            self.record = self._reached()
            self.places = self._other_places()
        assign(self.chain, self.champion)
        self.status["least_excess"], self.status["best"] = self.record
        done = 0
        if (place := next(self.places, None)) is not None:
            most = max(0, min(left, _PLACED_TIMES * length, _MOST_PLACED))
            done = self.annealer.place(*place, self.chain, most)
        self.since_improved = 0
        if self._is_better_than(self.record):
            return done
        x, changes = next(self.starts)
        done += self.annealer.shake(x, changes)
        self.chain = self.annealer.start_from(x)
        return done

    def _reached(self) -> tuple[float, float]:
        """(least excess, best value) of the chain."""
        return float(self.status["least_excess"]), float(self.status["best"])

    def _is_better_than(self, other: tuple[float, float]) -> bool:
        return any(own < old for own, old in zip(self._reached(), other, strict=True))

    def _restarts(self, first: Decisions) -> Iterator[tuple[Decisions, int]]:
        """Where chains begin, and after how many random changes: the best so far every other time,
        else where the search began, and plain starts in turn.
        """
        for start in cycle(plain_starts(self.indexed, is_frugal=True)):
            for x in (first, self.champion, start, self.champion):
                yield copied(x), int(self.random.integers(len(x.order) + _MOST_SHAKEN))

    def _other_places(self) -> Iterator[tuple[int, int]]:
        has_places = self.annealer.surroundings.has_places
        return other_places(self.indexed, self.champion) if has_places else iter(())

    def _evaluations_per_s(self, x: Decisions) -> float:
        if self.clock.counts_work:
            return 1 / (_COUNTED_S_PER_OP * max(1, len(x.order)))
        began = self.clock.now_s()
        for _ in range(_TIMED_DECODES):
            decode(self.annealer.view, x, self._apart)
        return _TIMED_DECODES / max(1e-6, self.clock.now_s() - began)

    def _first_decisions(self, schedule: Schedule | None) -> Decisions | None:
        """Decisions to start from that can be carried out, the closer to the budgets the better."""
        best, best_key = None, (np.inf, np.inf)
        for x in self._candidates(schedule):
            value, excess = decode(self.annealer.view, x, self.annealer.scratch)
            if np.isfinite(value) and (excess, value) < best_key:
                best, best_key = x, (excess, value)
            if not self._may_go_on():
                break
        return best

    def _candidates(self, schedule: Schedule | None) -> Iterator[Decisions]:
        near = schedule or schedule_beyond_budgets(
            self.problem, self.objective, self._may_go_on, self.clock
        )
        if near is not None:
            wanted = self.best_value * _WANTED_RATIO
            view, scratch = self.annealer.view, self.annealer.scratch
            yield repaired_decisions_of(self.indexed, near, wanted, view, scratch)
        yield from plain_starts(self.indexed, is_frugal=schedule is None)

    def _may_go_on(self) -> bool:
        """Whether there is time; before the first round its best value says nothing."""
        return self.clock.now_s() < self.deadline and not self.exchange.should_stop()

    def _is_over(self) -> bool:
        if not self._may_go_on():
            return True
        is_reached = self.status["best"] <= self.indexed.cheapest * _REACHED_RATIO
        return bool(is_reached) and self.objective is not Objective.MAKESPAN

    def _accept(self, best: Decisions, status: Records) -> None:
        """Let the validator judge the best decisions, and take them if they are an improvement."""
        if not status[0]["best"] < self.best_value:
            return
        decode(self.annealer.view, best, self._apart)
        schedule = schedule_left_in(self.indexed, self._apart)
        simulation = accepted(self.problem, schedule)
        if simulation is not None:
            self._take(self.objective.of(simulation), schedule)

    def _take(self, value: float, schedule: Schedule) -> None:
        if value < self.best_value:
            self.best_value, self.best_schedule = value, schedule
            if self.exchange.on_improvement is not None:
                self.exchange.on_improvement(value, schedule)
