"""A feasible schedule in milliseconds: run in order, evict what is cheapest to bring back."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule, with_frees
from tvm_xengine.scheduling.simulate import Simulation, simulate
from tvm_xengine.solvers.local_search.arrays import (
    END_ANYWHERE,
    END_NOWHERE,
    Arrays,
    Floats,
    arrays_of,
    cheapest_routes,
)
from tvm_xengine.solvers.local_search.lean import in_lean_order
from tvm_xengine.solvers.result import Objective

_NEVER = 2**40
_DEPTH_LIMIT = 40
_CLOSE_RATIO = 1.005
"""From this multiple of the cheapest possible on, a leaner order is tried too."""
_DEAR_RATIO = 1.25
"""From this multiple of the cheapest possible on, more than one way to weigh is tried."""
_MOST_OPS = 12_000
"""Once something is found, so many ops are walked through in all, in search of something better."""


def greedy_schedule(
    problem: Problem,
    *,
    objective: Objective = Objective.COST,
    on_schedule: Callable[[Schedule, float], None] | None = None,
) -> Schedule | None:
    """A schedule within the budgets that the referee accepts, or None when none was found.

    Keeps everything where it fits. Otherwise the ops run in the order of the graph, and
    whatever is in the way is evicted by price of bringing it back / (bytes x distance to the
    next use), as in DTR (Kirisame et al., ICLR 2021) but with the future known: dropped and
    recomputed, or moved to another device. Several placements and several ways to weigh are
    tried, from lax to frugal; the best result under `objective` wins (makespan is weighed as
    cost while running).

    Parameters
    ----------
    on_schedule
        Called with each schedule that is better than those before, and its value.
    """
    if not problem.state_fits:
        return None
    arrays = arrays_of(problem)
    best = _Best(arrays, objective, on_schedule)
    orders = [arrays]
    for weights in (*_LAX, *_FRUGAL):
        for ordered in orders:
            best.try_placements(ordered, weights)
        if len(orders) == 1 and best.value > best.cheapest * _CLOSE_RATIO:
            orders.append(arrays_of(in_lean_order(arrays)))
            best.try_placements(orders[1], weights)
        is_enough = (
            weights not in _LAX and best.schedule is not None and best.ops_walked > _MOST_OPS
        )
        if best.value <= best.cheapest * _DEAR_RATIO or is_enough:
            break
    return best.schedule


class _Best:
    """The best schedule so far.

    Attributes
    ----------
    ops_walked
        Over how many ops walks went, as a measure of work that is the same on every machine.
    settled
        Orders and placements under which nothing had to be evicted, so that weights do not matter.
    """

    def __init__(
        self,
        arrays: Arrays,
        objective: Objective,
        on_schedule: Callable[[Schedule, float], None] | None,
    ) -> None:
        self.problem = arrays.problem
        self.objective = objective
        self.on_schedule = on_schedule
        self.schedule: Schedule | None = None
        self.value = np.inf
        self.ops_walked = 0
        self.settled: set[tuple[int, int]] = set()
        self.cheapest = float(arrays.op_price(objective)[arrays.needed_ops].min(axis=1).sum())

    def try_placements(self, arrays: Arrays, weights: _Weights) -> None:
        """Run on every placement and keep what is better."""
        for number, op_price in enumerate(_placements(arrays, self.objective)):
            if (id(arrays), number) in self.settled:
                continue
            walk = _Walk(arrays, op_price, weights, self.objective)
            schedule = _schedule_of(walk)
            self.ops_walked += arrays.n_ops
            if schedule is not None and not walk.has_evicted:
                self.settled.add((id(arrays), number))
            simulation = accepted(self.problem, schedule)
            if simulation is not None and self.objective.of(simulation) < self.value:
                self.value, self.schedule = self.objective.of(simulation), schedule
                if self.on_schedule is not None and schedule is not None:
                    self.on_schedule(schedule, self.value)


def accepted(problem: Problem, schedule: Schedule | None) -> Simulation | None:
    """What the referee says of `schedule`; None when it refuses it."""
    if schedule is None:
        return None
    try:
        return simulate(problem, schedule)
    except InvalidScheduleError:
        return None


@dataclass(frozen=True)
class _Weights:
    """How a victim is chosen: the least ``price^p / (bytes^b * distance^d)``.

    `may_move` is false where nothing is moved to another device to make room.
    """

    price: float = 1.0
    size: float = 1.0
    distance: float = 1.0
    may_move: bool = True


_LAX = (_Weights(), _Weights(may_move=False))
_FRUGAL = (
    _Weights(distance=0.0),
    _Weights(price=0.0, distance=0.0),
    _Weights(price=0.5),
    _Weights(price=0.0),
    _Weights(price=0.0, size=0.0),
    _Weights(price=0.5, size=2.0),
    _Weights(size=0.5, distance=2.0),
)


def _placements(arrays: Arrays, objective: Objective) -> Iterator[Floats]:
    """Price of each op on each device, as each way to place them sees it.

    First every op where it is cheapest, copies considered; then all that is possible on one
    device; the first is skipped when only one device computes.
    """
    price = arrays.op_price(objective)
    fits = _working_set(arrays) <= arrays.budget_bytes[None, :]
    price = np.where(fits, price, np.inf)
    computing = np.flatnonzero(np.isfinite(price).any(axis=0))
    if len(computing) > 1:
        yield price
    penalty = 1000.0 * np.nanmax(np.where(np.isfinite(price), price, np.nan), initial=1.0)
    for d in computing:
        elsewhere = np.full(arrays.n_devices, penalty)
        elsewhere[d] = 0.0
        yield price + elsewhere[None, :]


def _working_set(arrays: Arrays) -> Floats:
    """Bytes without which an op cannot run on a device, shape (ops, devices)."""
    need = arrays.workspace_bytes.astype(np.float64)
    for i in range(arrays.n_ops):
        reads = arrays.read_tensor[arrays.read_ptr[i] : arrays.read_ptr[i + 1]]
        made = arrays.made_tensor[arrays.made_ptr[i] : arrays.made_ptr[i + 1]]
        fresh = made[arrays.state_of[made] < 0]
        need[i] += arrays.size_bytes[reads].sum() + arrays.size_bytes[fresh].sum()
    return need


class _DeadEnd(Exception):
    """The walk cannot go on within the budgets."""


def _schedule_of(walk: _Walk) -> Schedule | None:
    """What the walk comes to; None if it does not get to the end."""
    try:
        walk.run()
    except _DeadEnd:
        return None
    return with_frees(walk.arrays.problem, walk.arrays.steps(walk.kinds, walk.rows))


class _Walk:
    """Runs the ops in order and holds on every device at most its budget.

    Counts a tensor as held until it is evicted, although the frees that are derived later
    may come earlier: the schedule never needs more than was counted.
    """

    def __init__(
        self, arrays: Arrays, op_price: Floats, weights: _Weights, objective: Objective
    ) -> None:
        self.arrays = arrays
        self.weights = weights
        self.reads = _lists(arrays.read_ptr, arrays.read_tensor)
        self.made = _lists(arrays.made_ptr, arrays.made_tensor)
        self.readers: list[list[int]] = [[] for _ in range(arrays.n_tensors)]
        for i, reads in enumerate(self.reads):
            for t in reads:
                self.readers[t].append(i)
        self.size: list[int] = arrays.size_bytes.tolist()
        self.producer: list[int] = arrays.producer.tolist()
        self.home: list[int] = arrays.home.tolist()
        self.state_of: list[int] = arrays.state_of.tolist()
        self.end_device: list[int] = arrays.end_device.tolist()
        self.updated_at = [i if i >= 0 else _NEVER for i in arrays.updater.tolist()]
        self.price: list[list[float]] = op_price.tolist()
        self.fixed, self.per_byte = arrays.copy_price(objective)
        mean = float(arrays.size_bytes.mean())
        _, hop = cheapest_routes(self.fixed, self.per_byte, mean)
        self.hop: list[list[int]] = hop.tolist()
        self.devices = range(arrays.n_devices)

        self.kinds: list[int] = []
        self.rows: list[tuple[int, int, int]] = []
        self.step_limit = 5 * arrays.n_ops + 500
        self.has_evicted = False
        self.now = 0
        self.ran = [False] * arrays.n_ops
        self.ran_on = [0] * arrays.n_ops
        self.room: list[int] = arrays.budget_bytes.tolist()
        self.on = np.zeros((arrays.n_devices, arrays.n_tensors), dtype=bool)
        self.pins = np.zeros((arrays.n_devices, arrays.n_tensors), dtype=np.int32)
        self.overwritten: set[tuple[int, int]] = set()
        self.held = [0] * arrays.n_tensors
        self.dropped: dict[int, None] = {}
        self.made_last_on = [-1] * arrays.n_tensors
        self.depth = 0
        self.uses = self._uses()
        self.next_need = np.array([uses[0] if uses else _NEVER for uses in self.uses])
        self.remake = np.zeros(arrays.n_tensors)
        self.sizes = np.maximum(arrays.size_bytes, 1).astype(np.float64)
        for t, d in enumerate(self.home):
            if d >= 0:
                self.on[d, t] = True
                self.held[t] = 1
                self.room[d] -= self.size[t]
                self.remake[t] = np.inf

    def run(self) -> None:
        """Run every op once and deliver what the step must deliver."""
        for i in self.arrays.needed_ops.tolist():
            self.now = i
            self._save_from_updates(i)
            self._compute(i, self._place(i))
            self.now = i + 1
            for t in self.reads[i]:
                self._refresh(t)
        for t, device in enumerate(self.end_device):
            if device >= 0:
                self._bring(t, device)
                self.pins[device, t] += 1
            elif device == END_ANYWHERE and not self.held[t]:
                self._bring(t, self.ran_on[self.producer[t]])

    def _uses(self) -> list[list[int]]:
        """For each tensor a heap of the positions at which it is needed."""
        uses: list[list[int]] = [[] for _ in self.size]
        for i in self.arrays.needed_ops.tolist():
            for t in self.reads[i]:
                uses[t].append(i)
        for t, device in enumerate(self.end_device):
            if device != END_NOWHERE:
                uses[t].append(self.arrays.n_ops)
        return uses

    def _place(self, i: int) -> int:
        """Device on which op i costs least, copies of its inputs included."""
        best, best_price = -1, np.inf
        for d in self.devices:
            price = self.price[i][d]
            if price == np.inf:
                continue
            for t in self.reads[i]:
                if not self.on[d, t]:
                    price += min(self._copy_price(t, d), self.remake[t])
            for t in self.made[i]:
                state = self.state_of[t]
                if state >= 0 and self.home[state] != d:
                    price += self._route_price(t, d, self.home[state])
            if price < best_price:
                best, best_price = d, price
        if best < 0:
            raise _DeadEnd
        return best

    def _save_from_updates(self, i: int) -> None:
        """Before op i overwrites a state, bring back what could not be recomputed after it."""
        if all(self.state_of[output] < 0 for output in self.made[i]):
            return
        self.dropped = {x: None for x in self.dropped if not self.held[x]}
        for x in list(self.dropped):
            if not self.held[x] and not self._can_drop(x, i + 1):
                self._refresh(x)
                if self.next_need[x] < _NEVER:
                    self._bring(x, self.ran_on[self.producer[x]])

    # -- steps ---------------------------------------------------------------------------

    def _compute(self, i: int, d: int) -> None:
        """Run op i on device d, bringing what it reads and making room first."""
        if len(self.kinds) > self.step_limit:
            raise _DeadEnd
        pinned: list[int] = []
        landings = [
            (t, self.state_of[t])
            for t in self.made[i]
            if self.state_of[t] >= 0 and self.home[self.state_of[t]] != d
        ]
        try:
            for t in sorted(self.reads[i], key=lambda t: -self.size[t] if self.on[d, t] else 0):
                self._bring(t, d)
                self.pins[d, t] += 1
                pinned.append(t)
            fresh = [t for t in self.made[i] if self.state_of[t] < 0 and not self.on[d, t]]
            workspace = int(self.arrays.workspace_bytes[i, d])
            for _, state in landings:
                self._bring(state, self.home[state])
                self.pins[self.home[state], state] += 1
            self._make_room(d, sum(self.size[t] for t in fresh) + workspace)
        finally:
            for t in pinned:
                self.pins[d, t] -= 1
        for _, state in landings:
            self.pins[self.home[state], state] -= 1
        self._emit(0, i, d, 0)
        for t in fresh:
            self._arrive(t, d)
        for t in self.made[i]:
            if self.state_of[t] >= 0:
                self._take_over(self.state_of[t], t, d)
            self.made_last_on[t] = d
        for t, state in landings:
            self._land(t, state, d)
        self.ran[i] = True
        self.ran_on[i] = d
        for t in self.made[i]:
            self._refresh(t)
            self._price_remake(t)

    def _land(self, t: int, state: int, d: int) -> None:
        """Copy update result t from d to the home of its state, over the old value."""
        target = self.home[state]
        at = d
        while (step := self.hop[at][target]) != target:
            if step < 0:
                raise _DeadEnd
            self._copy(t, at, step)
            at = step
        self._emit(1, t, at, target)
        self._take_over(state, t, target)

    def _take_over(self, state: int, output: int, d: int) -> None:
        self.on[d, state] = False
        self.held[state] -= 1
        self.on[d, output] = True
        self.held[output] += 1
        self.overwritten.add((state, d))

    def _copy(self, t: int, src: int, dst: int) -> None:
        if self.on[dst, t]:
            return
        if (t, dst) in self.overwritten:
            raise _DeadEnd
        self.pins[src, t] += 1
        try:
            self._make_room(dst, self.size[t])
        finally:
            self.pins[src, t] -= 1
        self._emit(1, t, src, dst)
        self._arrive(t, dst)
        self.made_last_on[t] = dst

    def _emit(self, kind: int, a: int, b: int, c: int) -> None:
        self.kinds.append(kind)
        self.rows.append((a, b, c))
        if len(self.kinds) > self.step_limit:
            raise _DeadEnd

    def _arrive(self, t: int, d: int) -> None:
        self.on[d, t] = True
        self.held[t] += 1
        self.room[d] -= self.size[t]
        self._price_children(t)

    def _leave(self, t: int, d: int) -> None:
        self.on[d, t] = False
        self.held[t] -= 1
        self.room[d] += self.size[t]
        self._price_children(t)

    # -- bringing back -------------------------------------------------------------------

    def _bring(self, t: int, d: int) -> None:
        """Have tensor t on device d: it is there, is copied there, or is recomputed."""
        if self.on[d, t]:
            return
        if (t, d) in self.overwritten:
            raise _DeadEnd
        if self.held[t]:
            source = min(
                (e for e in self.devices if self.on[e, t]),
                key=lambda e: self._route_price(t, e, d),
            )
            copy_price = self._route_price(t, source, d)
            if copy_price < np.inf and not self._is_cheap_here(t, d, copy_price):
                while source != d:
                    step = self.hop[source][d]
                    self._copy(t, source, step)
                    source = step
                return
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise _DeadEnd
        for i in self._chain(t):
            if self.producer[t] != i and all(self.held[x] for x in self.made[i]):
                continue
            at = d if self.price[i][d] < np.inf else self.ran_on[i]
            self._compute(i, at)
        self.depth -= 1
        if not self.on[d, t]:
            self._bring(t, d)

    def _is_cheap_here(self, t: int, d: int, copy_price: float) -> bool:
        """Whether running the producer of t again on d, inputs there, beats a copy."""
        i = self.producer[t]
        return (
            i >= 0
            and bool(self.arrays.recomputable[i])
            and self.price[i][d] < copy_price
            and all(self.on[d, u] for u in self.reads[i])
        )

    def _chain(self, t: int) -> list[int]:
        """Ops to repeat, in order, so that t can be made from what is held."""
        if self.producer[t] < 0:
            raise _DeadEnd
        found, stack = {self.producer[t]}, [self.producer[t]]
        while stack:
            for u in self.reads[stack.pop()]:
                i = self.producer[u]
                if not self.held[u]:
                    if i < 0 or (self.ran[i] and not self.arrays.recomputable[i]):
                        raise _DeadEnd
                    heapq.heappush(self.uses[u], self.now)
                    self._refresh(u)
                    if i not in found:
                        found.add(i)
                        stack.append(i)
        return sorted(found)

    # -- making room ---------------------------------------------------------------------

    def _make_room(self, d: int, size_bytes: int) -> None:
        """Evict from device d until `size_bytes` more fit."""
        banned: set[int] = set()
        while self.room[d] < size_bytes:
            self.has_evicted = True
            held = np.flatnonzero(self.on[d] & (self.pins[d] == 0) & (self.arrays.size_bytes > 0))
            held = held[[t not in banned for t in held.tolist()]] if banned else held
            if not len(held):
                raise _DeadEnd
            for t in held[self.next_need[held] < self.now].tolist():
                self._refresh(t)
            away, targets = self._away_prices(d, held)
            price = np.minimum(self.remake[held], away)
            elsewhere = self.on[:, held].sum(axis=0) > 1
            price[elsewhere & ~np.isfinite(price)] = 0.0
            price[self.next_need[held] >= _NEVER] = 0.0
            distance = np.maximum(self.next_need[held] - self.now, 0.5)
            weigh = self.weights
            score = (price + 1e-9) ** weigh.price / (
                self.sizes[held] ** weigh.size * distance**weigh.distance
            )
            score[self.next_need[held] >= _NEVER] = -1.0
            score[~np.isfinite(price)] = np.inf
            k = int(np.argmin(score))
            if not np.isfinite(score[k]):
                raise _DeadEnd
            t = int(held[k])
            if not self._evict(t, d, float(away[k]), int(targets[k])):
                banned.add(t)

    def _away_prices(self, d: int, held: np.ndarray) -> tuple[Floats, np.ndarray]:
        """Price of moving each held tensor off d and back, and the device to move it to.

        Where a copy is elsewhere already only the way back is paid.
        """
        best = np.full(len(held), np.inf)
        target = np.full(len(held), -1)
        sizes = self.arrays.size_bytes[held]
        ends_anywhere = (self.next_need[held] == self.arrays.n_ops) & (
            self.arrays.end_device[held] == END_ANYWHERE
        )
        for e in self.devices:
            if e == d or not self.weights.may_move:
                continue
            out = self.fixed[d, e] + self.per_byte[d, e] * sizes
            back = self.fixed[e, d] + self.per_byte[e, d] * sizes
            there = self.on[e, held]
            price = np.where(there, 0.0, out) + np.where(ends_anywhere, 0.0, back)
            price[~there & (sizes > self.room[e])] = np.inf
            better = price < best
            best[better], target[better] = price[better], e
        return best, target

    def _evict(self, t: int, d: int, away: float, target: int) -> bool:
        """Drop t from d or move it away, whichever is cheaper and safe; False if neither is."""
        need = int(self.next_need[t])
        if need >= _NEVER:
            self._leave(t, d)
            return True
        if self.held[t] > 1:
            # With the derived frees a result survives where it was made last.
            if self.end_device[t] == END_ANYWHERE and self.made_last_on[t] == d:
                return False
            self._leave(t, d)
            return True
        if self.remake[t] <= away and self._can_drop(t, need):
            self._leave(t, d)
            self.dropped[t] = None
            self._expect_remake(t, need)
            return True
        if away == np.inf or (t, target) in self.overwritten:
            return False
        self._copy(t, d, target)
        self._leave(t, d)
        return True

    def _can_drop(self, t: int, until: int) -> bool:
        """Whether t can still be recomputed at position `until`."""
        stack, seen = [t], {t}
        while stack:
            i = self.producer[stack.pop()]
            if i < 0 or not self.arrays.recomputable[i]:
                return False
            for u in self.reads[i]:
                if self.updated_at[u] < until:
                    return False
                if u not in seen and not self.held[u]:
                    seen.add(u)
                    stack.append(u)
        return True

    def _expect_remake(self, t: int, need: int) -> None:
        """Note on what t is recomputed from that it is needed when t is."""
        stack, seen = [t], {t}
        while stack:
            for u in self.reads[self.producer[stack.pop()]]:
                if u in seen:
                    continue
                seen.add(u)
                heapq.heappush(self.uses[u], need)
                self._refresh(u)
                if not self.held[u]:
                    stack.append(u)

    def _refresh(self, t: int) -> None:
        uses = self.uses[t]
        while uses and uses[0] < self.now:
            heapq.heappop(uses)
        self.next_need[t] = uses[0] if uses else _NEVER

    # -- prices --------------------------------------------------------------------------

    def _price_remake(self, t: int) -> None:
        """Price of making t again, with all that would have to be made for it."""
        i = self.producer[t]
        if i < 0 or not self.arrays.recomputable[i]:
            self.remake[t] = np.inf
            return
        price = min(self.price[i])
        for u in self.reads[i]:
            if not self.held[u]:
                price += self.remake[u]
        self.remake[t] = price

    def _price_children(self, t: int) -> None:
        for i in self.readers[t]:
            if self.ran[i]:
                for x in self.made[i]:
                    self._price_remake(x)

    def _route_price(self, t: int, src: int, dst: int) -> float:
        price = 0.0
        while src != dst:
            step = self.hop[src][dst]
            if step < 0:
                return float(np.inf)
            price += float(self.fixed[src, step] + self.per_byte[src, step] * self.size[t])
            src = step
        return price

    def _copy_price(self, t: int, d: int) -> float:
        if (t, d) in self.overwritten:
            return float(np.inf)
        return min(
            (self._route_price(t, e, d) for e in self.devices if self.on[e, t]), default=np.inf
        )


def _lists(pointers: np.ndarray, items: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(items, pointers[1:-1])]
