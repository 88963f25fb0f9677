"""The anytime search: greedy start, annealing in rounds, the referee's word on what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np

from tvm_xengine.scheduling.platform import UNLIMITED_BYTES
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.walk import accepted, greedy_schedule
from tvm_xengine.solvers.local_search.anneal import (
    BEST,
    EXCESS,
    FEASIBLE_SHARE,
    LEAST_EXCESS,
    MOST_PENALTY,
    PENALTY,
    SCALE,
    TEMPERATURE,
    VALUE,
    anneal,
)
from tvm_xengine.solvers.local_search.arrays import Arrays, Floats, arrays_of
from tvm_xengine.solvers.local_search.blocks import surroundings_of
from tvm_xengine.solvers.local_search.chance import chance
from tvm_xengine.solvers.local_search.decisions import (
    Decisions,
    copied,
    drop_in_long_gaps,
    keep_everything,
)
from tvm_xengine.solvers.local_search.decoder import decode
from tvm_xengine.solvers.local_search.guide import Guide
from tvm_xengine.solvers.local_search.mend import mended_decisions_of
from tvm_xengine.solvers.local_search.static import Static, static_of
from tvm_xengine.solvers.local_search.work import schedule_left_in, workspace_of
from tvm_xengine.solvers.result import Limits, Objective

_HOT = (0.03, 0.1, 0.01, 0.3)
"""Temperatures at which rounds start, in turn, as multiples of the mean price of an op."""
_COOLED = 0.01
_MOST_PENALTY = (1e4, 100.0, 20.0)
"""Limits of the penalty in turn, as long as nothing within the budgets is known."""
_LOOSER = (1.1, 1.25, 1.5, 2.0, 3.0, 6.0)
"""Factors on the budgets under which the greedy solver is asked when it fails under them."""
_LONGEST_HELD = (1, 4, 16, 32, 64, 128)
"""Lengths of the longest gaps, in ops, through which frugal starts hold tensors."""
_FOLLOWED = ((0.01, 10.0), (0.03, 1.0))
"""Temperatures and first penalties of the rounds from what a relaxation suggests, and of those in
which an op is tried on another device."""
_LEAST_FOLLOWED = 30_000
"""So many evaluations at least go into each, in several tries where the graph is small."""
_MOST_SHAKEN = 8
"""Random changes with which a round begins; a new start gets up to one for each op more."""
_PATIENCE = 3
"""After so many rounds without an improvement another start is tried."""
_MOST_NEEDY = 4
"""Before each new start one of so many ops, which need most memory, is tried on another device."""
_PLACED_TIMES = 4
_MOST_PLACED = 80_000
"""That takes so many times as long as a round, and so many evaluations at most."""
_CHUNK_S = 0.05
_LEAST_ROUNDS = 3
"""Rounds are made so short that the time limit allows for this many."""

Improvement = Callable[[float, Schedule], None]


def search(
    problem: Problem,
    *,
    objective: Objective = Objective.COST,
    limits: Limits | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    start: Schedule | None = None,
    on_improvement: Improvement | None = None,
    should_stop: Callable[[], bool] | None = None,
    guide: Guide | None = None,
) -> Schedule | None:
    """The best schedule found within the limits; None when none was found.

    Starts from `start`, or else from the greedy schedule, and never returns a worse one than
    either. Stops early only when the sum of the cheapest prices is reached (cost and energy).

    Parameters
    ----------
    limits
        Wall clock; by default that of `Limits`.
    evaluations
        Stop after this many decodes. Two runs that stop for this reason return the same
        schedule, whatever the speed of the machine.
    on_improvement
        Called with (value, schedule) after each improvement, at most a few times a second.
    should_stop
        Asked as often; the search ends when it says so.
    guide
        What it is handed from relaxations is followed as it comes.
    """
    if not problem.state_fits:
        return None
    limits = limits or Limits()
    return _Search(problem, objective, seed, on_improvement, should_stop, guide).run(
        limits, evaluations, start
    )


class _Search:
    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        seed: int,
        on_improvement: Improvement | None = None,
        should_stop: Callable[[], bool] | None = None,
        guide: Guide | None = None,
    ) -> None:
        self.problem = problem
        self.objective = objective
        self.on_improvement = on_improvement
        self.should_stop = should_stop
        self.guide = guide
        self.speed = 1.0
        self.best_schedule: Schedule | None = None
        self.best_value = np.inf
        self.arrays: Arrays = arrays_of(problem)
        self.static = static_of(self.arrays, objective)
        self.surroundings = surroundings_of(self.arrays)
        self.work = workspace_of(self.arrays)
        self.apart = workspace_of(self.arrays)
        self.random = np.random.default_rng(seed)
        self.chance = chance(seed, 8 * len(self.arrays.touch_tensor) + 64)
        price = self.arrays.op_price(objective)[self.arrays.needed_ops]
        self.places = int(np.isfinite(price).any(axis=0).sum()) > 1
        self.cheapest = float(price.min(axis=1).sum())
        self.status = np.zeros(9)
        self.scale = self.cheapest or self._mean_copy_price() or 1.0
        self.status[SCALE] = self.scale

    def run(
        self, limits: Limits, evaluations: int | None, start: Schedule | None
    ) -> Schedule | None:
        deadline = time.perf_counter() + limits.time_limit_s
        first = start or greedy_schedule(self.problem, objective=self.objective)
        simulation = accepted(self.problem, first)
        if first is not None and simulation is not None:
            self._take(self.objective.of(simulation), first)
        x = self._first_decisions(first)
        if x is None:
            return self.best_schedule
        chain = self._chain_from(x)
        champion = copied(x)
        record = self.status[[LEAST_EXCESS, BEST]]
        starts = self._restarts(copied(x), champion)
        places = self._other_places(champion)
        left = evaluations if evaluations is not None else 2**62
        longest = int(np.clip(20 * len(x.keep), 400, 40000))
        self.speed = self._evaluations_per_s(x)
        n_round, since_improved = 0, 0
        while left > 0 and time.perf_counter() < deadline and not self._is_done():
            length = longest
            if evaluations is None:
                affordable = self.speed * (deadline - time.perf_counter()) / _LEAST_ROUNDS
                length = int(np.clip(affordable, 500, longest))
            hint = self.guide.next_hint() if self.guide is not None else None
            if hint is not None:
                for _ in range(max(1, _LEAST_FOLLOWED // length)):
                    left -= self._follow(hint, chain, max(0, min(left, length)), deadline)
                continue
            if since_improved >= _PATIENCE:
                self._accept(chain, self.status)
                if tuple(self.status[[LEAST_EXCESS, BEST]]) < tuple(record):
                    _assign(champion, chain)
                    record = self.status[[LEAST_EXCESS, BEST]]
                    places = self._other_places(champion)
                _assign(chain, champion)
                self.status[[LEAST_EXCESS, BEST]] = record
                if (place := next(places, None)) is not None:
                    most = min(left, _PLACED_TIMES * length, _MOST_PLACED)
                    left -= self._place(*place, chain, max(0, most), deadline)
                if (self.status[[LEAST_EXCESS, BEST]] < record).any():
                    since_improved = 0
                    continue
                x, changes = next(starts)
                left -= self._shake(x, changes)
                chain = self._chain_from(x)
                since_improved = 0
                continue
            status, before = self.status, self.status[[BEST, LEAST_EXCESS]]
            found = status[LEAST_EXCESS] == 0.0
            status[PENALTY] = 1.0 if found else 10.0
            status[MOST_PENALTY] = _MOST_PENALTY[0 if found else n_round % 3]
            # Until the budgets hold, most rounds do not ask what anything costs.
            status[SCALE] = np.inf if not found and n_round % 4 else self.scale
            status[TEMPERATURE] = _HOT[n_round % len(_HOT)] / len(x.order)
            _assign(x, chain)
            if n_round % 2:
                left -= self._shake(x, 1 + n_round % _MOST_SHAKEN)
            left -= self._round(status, x, chain, min(left, length), deadline)
            n_round += 1
            is_better = (status[[BEST, LEAST_EXCESS]] < before).any()
            since_improved = 0 if is_better else since_improved + 1
        self._accept(chain, self.status)
        return self.best_schedule

    def _chain_from(self, x: Decisions) -> Decisions:
        """Begin a chain of rounds: the best of it, and in `status` what that comes to."""
        self._note_start(self.status, x)
        return copied(x)

    def _note_start(self, status: Floats, x: Decisions) -> None:
        """Let what `x` comes to be the best that rounds with `status` know."""
        value, excess = decode(self.static, x, self.work)
        status[LEAST_EXCESS] = excess
        status[BEST] = value if excess == 0.0 else np.inf

    def _restarts(self, first: Decisions, champion: Decisions) -> Iterator[tuple[Decisions, int]]:
        """Where chains begin, and after how many random changes: the best so far every other time,
        else where the search began, and plain starts in turn.
        """
        for start in cycle(self._plain_starts(is_frugal=True)):
            for x in (first, champion, start, champion):
                yield copied(x), int(self.random.integers(len(x.order) + _MOST_SHAKEN))

    def _other_places(self, x: Decisions) -> Iterator[tuple[int, int]]:
        """(op, device), over and over: where `x` does not run the ops that need most memory."""
        price = self.arrays.op_price(self.objective)
        neediest = sorted(x.order.tolist(), key=self._needed_bytes, reverse=True)[:_MOST_NEEDY]
        devices = range(self.arrays.n_devices if self.places else 0)
        yield from cycle(
            (i, d)
            for i in neediest
            for d in devices
            if x.device[i] != d and np.isfinite(price[i, d])
        )

    def _needed_bytes(self, op: int) -> int:
        """Bytes of all that an op touches, and its least workspace."""
        arrays = self.arrays
        touched = arrays.touch_tensor[arrays.touch_ptr[op] : arrays.touch_ptr[op + 1]]
        return int(arrays.size_bytes[touched].sum() + arrays.workspace_bytes[op].min())

    def _place(self, op: int, device: int, best: Decisions, most: int, deadline: float) -> int:
        """Anneal from `best` with an op on another device, and nowhere else, until all around it fits.

        Elsewhere it would be moved back at once: what it needs there has to be evicted first.
        """
        x, run = copied(best), self.static.run.copy()
        x.device[op], x.redevice[op] = device, -1
        run["price"][op, np.arange(self.arrays.n_devices) != device] = np.inf
        static = self.static._replace(run=run)
        return self._follow(x, best, most, deadline, static)

    def _follow(
        self,
        hint: Decisions,
        best: Decisions,
        most: int,
        deadline: float,
        static: Static | None = None,
    ) -> int:
        """Anneal from `hint`; take over into `best` what is better there."""
        x, own, status = copied(hint), copied(hint), self.status.copy()
        status[SCALE] = self.scale
        self._note_start(status, x)
        done = 0
        for heat, penalty in _FOLLOWED:
            status[PENALTY], status[MOST_PENALTY] = penalty, _MOST_PENALTY[0]
            status[TEMPERATURE] = heat / len(x.order)
            _assign(x, own)
            done += self._round(status, x, own, most // len(_FOLLOWED), deadline, static)
        is_better = status[LEAST_EXCESS] < self.status[LEAST_EXCESS] or (
            status[LEAST_EXCESS] == 0.0 and status[BEST] < self.status[BEST]
        )
        if is_better:
            _assign(best, own)
            self.status[[BEST, LEAST_EXCESS]] = status[[BEST, LEAST_EXCESS]]
        return max(1, done)

    def _round(
        self,
        status: Floats,
        x: Decisions,
        best: Decisions,
        length: int,
        deadline: float,
        static: Static | None = None,
    ) -> int:
        """One annealing from `x`; returns how many decisions were evaluated."""
        static = static or self.static
        value, excess = decode(static, x, self.work)
        status[[VALUE, EXCESS, FEASIBLE_SHARE]] = value, excess, 0.5
        left = length
        cooling = _COOLED ** (1.0 / max(1, length))
        while left > 0 and time.perf_counter() < deadline and not self._is_done():
            count = min(left, max(1, int(self.speed * _CHUNK_S)))
            before, began = status[BEST], time.perf_counter()
            self._anneal(static, status, x, best, cooling, count)
            self.speed = count / max(1e-6, time.perf_counter() - began)
            left -= count
            if status[BEST] < before and self.on_improvement is not None:
                self._accept(best, status)
            if self.guide is not None and self.guide.has_hint and status is self.status:
                break  # what the relaxation suggests is worth more than the rest of the round
        return length - left

    def _mean_copy_price(self) -> float:
        fixed, per_byte = self.arrays.copy_price(self.objective)
        price = (fixed + per_byte * self.arrays.size_bytes.mean())[np.isfinite(fixed)]
        return float(price.mean()) if price.size else 0.0

    def _shake(self, x: Decisions, changes: int) -> int:
        """Change `x` at random whatever comes of it; returns how many decisions were evaluated."""
        status = self.status.copy()
        status[[VALUE, EXCESS]] = decode(self.static, x, self.work)
        status[TEMPERATURE] = np.inf
        self._anneal(self.static, status, x, copied(x), cooling=1.0, count=changes)
        return changes

    def _anneal(
        self,
        static: Static,
        status: Floats,
        x: Decisions,
        best: Decisions,
        cooling: float,
        count: int,
    ) -> None:
        anneal(
            static,
            self.surroundings,
            x,
            best,
            self.work,
            self.chance,
            status,
            cooling,
            count,
            self.places,
        )

    def _evaluations_per_s(self, x: Decisions) -> float:
        began = time.perf_counter()
        for _ in range(5):
            decode(self.static, x, self.apart)
        return 5.0 / max(1e-6, time.perf_counter() - began)

    def _first_decisions(self, schedule: Schedule | None) -> Decisions | None:
        """Decisions to start from that can be carried out, the closer to the budgets the better."""
        best, best_key = None, (np.inf, np.inf)
        for x in self._candidates(schedule):
            value, excess = decode(self.static, x, self.work)
            if np.isfinite(value) and (excess, value) < best_key:
                best, best_key = x, (excess, value)
        return best

    def _candidates(self, schedule: Schedule | None) -> Iterator[Decisions]:
        if schedule is not None:
            yield self._decisions_of(schedule)
        else:
            for factor in _LOOSER:
                looser = {
                    device.name: min(UNLIMITED_BYTES, int(factor * device.budget_bytes))
                    for device in self.problem.platform.devices
                }
                lax = greedy_schedule(self.problem.with_budgets(looser), objective=self.objective)
                if lax is not None:
                    yield self._decisions_of(lax)
                    break
        yield from self._plain_starts(is_frugal=schedule is None)

    def _decisions_of(self, schedule: Schedule) -> Decisions:
        return mended_decisions_of(
            self.arrays, schedule, self.best_value * (1 + 1e-9), self.static, self.work
        )

    def _plain_starts(self, *, is_frugal: bool) -> Iterator[Decisions]:
        """All is kept, on the cheapest or on one device, and, if frugal, much is dropped."""
        price = self.arrays.op_price(self.objective)
        cheapest = price.argmin(axis=1)
        computing = np.flatnonzero(np.isfinite(price).any(axis=0))
        single = [np.where(np.isfinite(price[:, d]), d, cheapest) for d in computing]
        for device in (cheapest, *single):
            yield keep_everything(self.arrays, device)
            if is_frugal:
                for longest in _LONGEST_HELD:
                    yield drop_in_long_gaps(self.arrays, device, longest)

    def _is_done(self) -> bool:
        if self.should_stop is not None and self.should_stop():
            return True
        reached = self.status[BEST] <= self.cheapest * (1 + 1e-12)
        return bool(reached) and self.objective is not Objective.MAKESPAN

    def _accept(self, best: Decisions, status: Floats) -> None:
        """Let the referee judge the best decisions, and take them if they are an improvement."""
        if not status[BEST] < self.best_value:
            return
        decode(self.static, best, self.apart)
        schedule = schedule_left_in(self.arrays, self.apart)
        simulation = accepted(self.problem, schedule)
        if simulation is not None:
            self._take(self.objective.of(simulation), schedule)

    def _take(self, value: float, schedule: Schedule) -> None:
        if value < self.best_value:
            self.best_value, self.best_schedule = value, schedule
            if self.on_improvement is not None:
                self.on_improvement(value, schedule)


def _assign(to: Decisions, x: Decisions) -> None:
    """Make `to` equal to `x`."""
    for field, value in zip(to, x, strict=True):
        field[:] = value
