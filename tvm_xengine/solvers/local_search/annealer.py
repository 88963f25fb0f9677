"""Rounds of annealing, in slices between which a search can be stopped or learn better schedules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tvm_xengine.solvers.indexed import NONE, IndexedProblem
from tvm_xengine.solvers.local_search.blocks import surroundings_of
from tvm_xengine.solvers.local_search.compiled.anneal import anneal, new_status
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions, assign, copied
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.random_source import random_source
from tvm_xengine.solvers.local_search.compiled.scratch import scratch_of
from tvm_xengine.solvers.local_search.compiled.view import Records, SearchView, view_of
from tvm_xengine.solvers.time_source import MACHINE_TIME, TimeSource

_HOT = (0.03, 0.1, 0.01, 0.3)
"""Temperatures at which rounds start, in turn, as multiples of the mean value of an op. Chosen:
halved or doubled, schedules cost 1 % more in `benchmarks.solvers.sensitivity`, less than seeds differ by."""
_COOLED = 0.01
"""A round ends at this share of the temperature it started at: there nothing worse is accepted.
Chosen: with 0.1 or 0.001 schedules cost 1 % more in `benchmarks.solvers.sensitivity`."""
MOST_PENALTY = (1e4, 100.0, 20.0)
"""Limits of the penalty in turn, as long as nothing within the budgets is known."""
_FOLLOWED = ((0.01, 10.0), (0.03, 1.0))
"""Temperatures and first penalties of the rounds from what a relaxation suggests, and of those in
which an op is tried on another device."""
_BLIND_ROUNDS = 4
"""Until the budgets hold, only one round in so many asks what anything costs."""
_SLICE_S = 0.05
"""Duration of a slice: the longest that interrupts and news wait."""
_LOGGED_PER_TOUCH = 8
_LEAST_LOGGED = 64
"""Room to log the changes of one move: so many for each touch, and so many more."""


class Annealer:
    """Improves decisions by simulated annealing.

    Attributes
    ----------
    status
        What the rounds know, see `compiled.anneal.STATUS`.
    speed
        Evaluations per second, as last seen; where work is counted, as it is counted.

    Parameters
    ----------
    is_over
        Asked between slices: whether the search is to end.
    on_better
        Called with the best decisions and the status when they have become better.
    has_news
        Whether something waits that is worth more than the rest of a round.
    """

    def __init__(
        self,
        indexed: IndexedProblem,
        *,
        by_makespan: bool,
        seed: int,
        is_over: Callable[[], bool] = lambda: False,
        on_better: Callable[[Decisions, Records], None] = lambda _best, _status: None,
        has_news: Callable[[], bool] = lambda: False,
        clock: TimeSource = MACHINE_TIME,
    ) -> None:
        self.indexed, self.clock = indexed, clock
        self.view = view_of(indexed, by_makespan=by_makespan)
        self.scratch = scratch_of(indexed)
        self.scale = indexed.cheapest or _mean_transfer_value(indexed) or 1.0
        self.status = new_status(self.scale)
        self.speed = 1.0
        self._is_over, self._on_better, self._has_news = is_over, on_better, has_news
        self.surroundings = surroundings_of(indexed)
        self._random = random_source(
            seed, _LOGGED_PER_TOUCH * len(indexed.touches.item) + _LEAST_LOGGED
        )

    def start_from(self, x: Decisions, status: Records | None = None) -> Decisions:
        """Make `x` the best decisions known to the rounds; returns a copy."""
        state = (self.status if status is None else status)[0]
        value, excess = decode(self.view, x, self.scratch)
        state["least_excess"] = excess
        state["best"] = value if excess == 0.0 else np.inf
        return copied(x)

    def round(self, number: int, x: Decisions, best: Decisions, length: int) -> int:
        """The round of that number, from `x`; returns how many decisions were evaluated."""
        state = self.status[0]
        is_found = state["least_excess"] == 0.0
        is_blind = not is_found and number % _BLIND_ROUNDS
        state["penalty"] = 1.0 if is_found else 10.0
        state["most_penalty"] = MOST_PENALTY[0 if is_found else number % len(MOST_PENALTY)]
        state["scale"] = np.inf if is_blind else self.scale
        state["temperature"] = _HOT[number % len(_HOT)] / len(x.order)
        return self._run(self.view, self.status, x, best, length)

    def follow(
        self, hint: Decisions, best: Decisions, most: int, view: SearchView | None = None
    ) -> int:
        """Anneal from `hint`; copy improvements into `best`."""
        x, own, status = copied(hint), copied(hint), self.status.copy()
        state, known = status[0], self.status[0]
        state["scale"] = self.scale
        self.start_from(x, status)
        done = 0
        for heat, penalty in _FOLLOWED:
            state["penalty"], state["most_penalty"] = penalty, MOST_PENALTY[0]
            state["temperature"] = heat / len(x.order)
            assign(x, own)
            done += self._run(view or self.view, status, x, own, most // len(_FOLLOWED))
        if state["least_excess"] < known["least_excess"] or (
            state["least_excess"] == 0.0 and state["best"] < known["best"]
        ):
            assign(best, own)
            known["best"], known["least_excess"] = state["best"], state["least_excess"]
        return max(1, done)

    def place(self, op: int, device: int, best: Decisions, most: int) -> int:
        """Anneal from `best` with an op on another device, and nowhere else, until all around it fits.

        Elsewhere it would be moved back at once: what it needs there has to be evicted first.
        """
        x, run = copied(best), self.view.run.copy()
        x.device[op], x.redevice[op] = device, NONE
        run["value"][op, np.arange(self.indexed.device_count) != device] = np.inf
        return self.follow(x, best, most, self.view._replace(run=run))

    def shake(self, x: Decisions, changes: int) -> int:
        """Change `x` at random, for better or worse; returns the number of decisions evaluated."""
        status = self.status.copy()
        status[0]["value"], status[0]["excess"] = decode(self.view, x, self.scratch)
        status[0]["temperature"], status[0]["cooling"] = np.inf, 1.0
        self._anneal(self.view, status, x, copied(x), changes)
        return changes

    def _run(
        self, view: SearchView, status: Records, x: Decisions, best: Decisions, length: int
    ) -> int:
        """Anneal from `x` as `status` says; returns how many decisions were evaluated."""
        state = status[0]
        state["value"], state["excess"] = decode(view, x, self.scratch)
        state["feasible_share"] = 0.5
        state["cooling"] = _COOLED ** (1.0 / max(1, length))
        left = length
        while left > 0 and not self._is_over():
            count = min(left, max(1, int(self.speed * _SLICE_S)))
            before, began = float(state["best"]), self.clock.now_s()
            self._anneal(view, status, x, best, count)
            if self.clock.counts_work:
                self.clock.worked(count / self.speed)
            else:
                self.speed = count / max(1e-6, self.clock.now_s() - began)
            left -= count
            if state["best"] < before:
                self._on_better(best, status)
            if status is self.status and self._has_news():
                break
        return length - left

    def _anneal(
        self, view: SearchView, status: Records, x: Decisions, best: Decisions, count: int
    ) -> None:
        anneal(view, self.surroundings, x, best, self.scratch, self._random, status, count)


def _mean_transfer_value(indexed: IndexedProblem) -> float:
    value = indexed.transfer_value[np.isfinite(indexed.transfer_value)]
    return float(value.mean()) if value.size else 0.0
