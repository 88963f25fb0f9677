"""Makes room on a device: chooses tensors to evict, and whether to drop or move them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_xengine.solvers.greedy.future import NEVER, Future
from tvm_xengine.solvers.greedy.prices import Prices
from tvm_xengine.solvers.indexed import ANYWHERE, NONE, Floats, Ints
from tvm_xengine.solvers.state import ScheduleState

_SOON = 0.5
"""Distance, in ops, of what is needed by the op that is being run."""
_LEAST_PRICE = 1e-9
"""Added to every price, so that among tensors that cost nothing to bring back size decides."""


@dataclass(frozen=True)
class Weights:
    """How a victim is chosen: the least ``price^p / (size^b * distance^d)``.

    `may_move` is false where nothing is moved to another device to make room.
    """

    price: float = 1.0
    size: float = 1.0
    distance: float = 1.0
    may_move: bool = True


class DeadEndError(Exception):
    """A walk cannot go on within the budgets."""


class Eviction:
    """Chooses what leaves a device.

    Attributes
    ----------
    pins
        How many steps under way need tensor j on device d, shape (D, J).
    dropped
        Tensors that were dropped and may have to be made once more, in that order.
    has_evicted
        Whether anything had to leave so far.
    """

    def __init__(
        self,
        state: ScheduleState,
        future: Future,
        prices: Prices,
        weights: Weights,
        copy: Callable[[int, int, int], None],
    ) -> None:
        self._problem, self._state = state.problem, state
        self._future, self._prices, self._weights, self._copy = future, prices, weights, copy
        self._producer: list[int] = state.problem.producer.tolist()
        self._updated_by: list[int] = state.problem.updated_by.tolist()
        self.pins = np.zeros(state.on.shape, dtype=np.int32)
        self.dropped: dict[int, None] = {}
        self.has_evicted = False

    def make_room(self, d: int, units: int) -> None:
        """Evict from device d until so many units more fit."""
        banned: set[int] = set()
        while self._state.free_units[d] < units:
            self.has_evicted = True
            j, away, target = self._choose(d, banned)
            if not self._evict(j, d, away, target):
                banned.add(j)

    def leave(self, j: int, d: int) -> None:
        """Drop tensor j from device d."""
        self._state.free(j, d)
        self._prices.update_results_of(j)

    def can_drop(self, j: int, until: int) -> bool:
        """Whether tensor j can still be made once more at position `until`."""
        p, stack, seen = self._problem, [j], {j}
        while stack:
            i = self._producer[stack.pop()]
            if i == NONE or not p.recomputable[i]:
                return False
            for u in p.reads[i]:
                if NONE != self._updated_by[u] < until:
                    return False
                if u not in seen and not self._state.copies[u]:
                    seen.add(u)
                    stack.append(u)
        return True

    def _choose(self, d: int, banned: set[int]) -> tuple[int, float, int]:
        """The tensor that leaves, the value of moving it away and back, and where it would go."""
        p, future, weights = self._problem, self._future, self._weights
        held = np.flatnonzero(self._state.on[d] & (self.pins[d] == 0) & (p.size > 0))
        held = held[[j not in banned for j in held.tolist()]] if banned else held
        if not len(held):
            raise DeadEndError
        for j in held[future.next_need[held] < future.now].tolist():
            future.refresh(j)
        is_useless = future.next_need[held] >= NEVER
        away, targets = self._away(d, held)
        price = np.minimum(self._prices.remake[held], away)
        is_elsewhere = self._state.on[:, held].sum(axis=0) > 1
        price[(is_elsewhere & ~np.isfinite(price)) | is_useless] = 0.0
        distance = np.maximum(future.next_need[held] - future.now, _SOON)
        score = (price + _LEAST_PRICE) ** weights.price / (
            p.size[held].astype(np.float64) ** weights.size * distance**weights.distance
        )
        score[is_useless] = -1.0
        score[~np.isfinite(price)] = np.inf
        k = int(np.argmin(score))
        if not np.isfinite(score[k]):
            raise DeadEndError
        return int(held[k]), float(away[k]), int(targets[k])

    def _away(self, d: int, held: Ints) -> tuple[Floats, Ints]:
        """Value of moving each held tensor off d and back, and the device to move it to.

        Where a copy is elsewhere already only the way back is paid.
        """
        p = self._problem
        best, target = np.full(len(held), np.inf), np.full(len(held), NONE)
        ends_anywhere = (self._future.next_need[held] == p.op_count) & (
            p.must_end_on[held] == ANYWHERE
        )
        for e in range(p.device_count if self._weights.may_move else 0):
            if e == d:
                continue
            there = self._state.on[e, held]
            out, back = p.transfer_value[d, e, held], p.transfer_value[e, d, held]
            value = np.where(there, 0.0, out) + np.where(ends_anywhere, 0.0, back)
            value[~there & (p.size[held] > self._state.free_units[e])] = np.inf
            is_better = value < best
            best[is_better], target[is_better] = value[is_better], e
        return best, target

    def _evict(self, j: int, d: int, away: float, target: int) -> bool:
        """Drop j from d or move it away, whichever is cheaper and safe; False if neither is."""
        state, need = self._state, int(self._future.next_need[j])
        if need >= NEVER:
            self.leave(j, d)
            return True
        if state.copies[j] > 1:
            # With the derived frees a result survives where it was made last.
            if self._problem.must_end_on[j] == ANYWHERE and state.last_made_on[j] == d:
                return False
            self.leave(j, d)
            return True
        if self._prices.remake[j] <= away and self.can_drop(j, need):
            self.leave(j, d)
            self.dropped[j] = None
            self._expect_remake(j, need)
            return True
        if away == np.inf or state.overwritten[target, j]:
            return False
        self._copy(j, d, target)
        self.leave(j, d)
        return True

    def _expect_remake(self, j: int, need: int) -> None:
        """Record that the inputs of j's producer are needed when j is."""
        p, stack, seen = self._problem, [j], {j}
        while stack:
            for u in p.reads[self._producer[stack.pop()]]:
                if u in seen:
                    continue
                seen.add(u)
                self._future.add(u, need)
                if not self._state.copies[u]:
                    stack.append(u)
