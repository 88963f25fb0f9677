"""Runs the ops in order within the budgets: brings their inputs, evicts other tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tvm_xengine.solvers.greedy.eviction import DeadEndError, Eviction, Weights
from tvm_xengine.solvers.greedy.future import NEVER, Future
from tvm_xengine.solvers.greedy.prices import Prices
from tvm_xengine.solvers.indexed import ANYWHERE, NONE, Floats, IndexedProblem
from tvm_xengine.solvers.state import ScheduleState

_DEPTH_LIMIT = 40
"""Chains of tensors that are made once more for each other are given up beyond this depth: each
level holds its inputs, so deeper ones hardly ever fit, and Python's stack is limited."""
_STEPS_PER_OP = 5
_LEAST_STEPS = 500
"""A walk is given up after so many steps for each op, and so many more: it thrashes."""
_STEPS_PER_LOOK = 16
"""Steps take 0.1 ms, and a look at the clock up to half of that: each time, it took a sixth of a walk."""


class Walk:
    """Runs the ops in order and holds on every device at most its budget.

    Counts a tensor as held until it is evicted, although the frees that are derived later
    may come earlier: the schedule never needs more than was counted.

    Parameters
    ----------
    compute_value
        Value of each op on each device as the placement sees it, shape (n, D).
    is_over
        Asked every few steps; the walk is given up once it says so.
    """

    def __init__(
        self,
        indexed: IndexedProblem,
        compute_value: Floats,
        weights: Weights,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.problem = indexed
        self.is_over = is_over
        self.state = ScheduleState(indexed)
        self.future = Future(indexed)
        self.prices = Prices(indexed, self.state, compute_value)
        self.eviction = Eviction(self.state, self.future, self.prices, weights, self._copy)
        self.step_limit = _STEPS_PER_OP * indexed.op_count + _LEAST_STEPS
        self.ran_on = [0] * indexed.op_count
        self.depth = 0
        self._size: list[int] = indexed.size.tolist()
        self._home: list[int] = indexed.home.tolist()
        self._hop: list[list[list[int]]] = indexed.routes.next_hop.tolist()

    def run(self) -> None:
        """Run every op once and deliver what the step must deliver.

        Raises
        ------
        DeadEndError
            Where the walk cannot go on.
        """
        p = self.problem
        for i in range(p.op_count):
            self.future.now = i
            self._save_from_updates(i)
            self._compute(i, self._place(i))
            self.future.now = i + 1
            for j in p.reads[i]:
                self.future.refresh(j)
        for j, device in enumerate(p.must_end_on.tolist()):
            if device >= 0:
                self._bring(j, device)
                self.eviction.pins[device, j] += 1
            elif device == ANYWHERE and not self.state.copies[j]:
                self._bring(j, self.ran_on[p.producer[j]])

    def _place(self, i: int) -> int:
        """Device on which op i costs least, copies of its inputs included."""
        best, best_value = NONE, np.inf
        for d, value in enumerate(self.prices.compute[i]):
            if value == np.inf:
                continue
            value += sum(self.prices.bring(j, d) for j in self.state.missing(i, d))
            value += sum(
                self.prices.route(j, d, self._home[old]) for j, old in self.state.landings(i, d)
            )
            if value < best_value:
                best, best_value = d, value
        if best == NONE:
            raise DeadEndError
        return best

    def _save_from_updates(self, i: int) -> None:
        """Before op i overwrites a state, bring back tensors that could not be recomputed afterwards."""
        p, eviction, state = self.problem, self.eviction, self.state
        if all(p.update_of[j] == NONE for j in p.makes[i]):
            return
        eviction.dropped = {j: None for j in eviction.dropped if not state.copies[j]}
        for j in list(eviction.dropped):
            if not state.copies[j] and not eviction.can_drop(j, i + 1):
                self.future.refresh(j)
                if self.future.next_need[j] < NEVER:
                    self._bring(j, self.ran_on[p.producer[j]])

    def _compute(self, i: int, d: int) -> None:
        """Run op i on device d, bringing what it reads and making room first."""
        self._check_length()
        p, state, pins = self.problem, self.state, self.eviction.pins
        reads = sorted(p.reads[i], key=lambda j: -self._size[j] if state.on[d, j] else 0)
        landings = state.landings(i, d)
        pinned: list[tuple[int, int]] = []
        for j, at in [*((j, d) for j in reads), *((old, self._home[old]) for _, old in landings)]:
            self._bring(j, at)
            pins[at, j] += 1
            pinned.append((at, j))
        self.eviction.make_room(d, state.needed_units(i, d))
        for at, j in pinned:
            pins[at, j] -= 1
        fresh = state.fresh(i, d)
        state.compute(i, d)
        self._check_length()
        for j in fresh:
            self.prices.update_results_of(j)
        for j, old in landings:
            self._land(j, d, self._home[old])
        self.ran_on[i] = d
        for j in p.makes[i]:
            self.future.refresh(j)
            self.prices.update(j)

    def _land(self, j: int, d: int, home: int) -> None:
        """Copy update result j from d to the home of its state, over the old value."""
        while (step := self._hop[d][home][j]) != home:
            if step == NONE:
                raise DeadEndError
            self._copy(j, d, step)
            d = step
        self.state.transfer(j, d, home)
        self._check_length()

    def _copy(self, j: int, a: int, b: int) -> None:
        if self.state.on[b, j]:
            return
        if self.state.overwritten[b, j]:
            raise DeadEndError
        self.eviction.pins[a, j] += 1
        self.eviction.make_room(b, self._size[j])
        self.eviction.pins[a, j] -= 1
        self.state.transfer(j, a, b)
        self._check_length()
        self.prices.update_results_of(j)

    def _check_length(self) -> None:
        steps = len(self.state.steps)
        if steps > self.step_limit or (steps % _STEPS_PER_LOOK == 0 and self.is_over()):
            raise DeadEndError

    def _bring(self, j: int, d: int) -> None:
        """Have tensor j on device d: it is there, is copied there, or is recomputed."""
        state = self.state
        if state.on[d, j]:
            return
        if state.overwritten[d, j]:
            raise DeadEndError
        if state.copies[j]:
            at = min(state.holders(j), key=lambda e: self.prices.route(j, e, d))
            value = self.prices.route(j, at, d)
            if value < np.inf and not self._is_cheap_here(j, d, value):
                while at != d:
                    step = self._hop[at][d][j]
                    self._copy(j, at, step)
                    at = step
                return
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise DeadEndError
        for i in self._chain(j):
            if self.problem.producer[j] != i and all(
                map(state.copies.__getitem__, self.problem.makes[i])
            ):
                continue
            self._compute(i, d if self.prices.compute[i][d] < np.inf else self.ran_on[i])
        self.depth -= 1
        if not state.on[d, j]:
            self._bring(j, d)

    def _is_cheap_here(self, j: int, d: int, copy_value: float) -> bool:
        """Whether running the producer of j again on d, inputs there, beats a copy."""
        i = int(self.problem.producer[j])
        return (
            i != NONE
            and bool(self.problem.recomputable[i])
            and self.prices.compute[i][d] < copy_value
            and not self.state.missing(i, d)
        )

    def _chain(self, j: int) -> list[int]:
        """Ops to repeat, in order, so that j can be made from what is held."""
        p = self.problem
        if p.producer[j] == NONE:
            raise DeadEndError
        found, stack = {int(p.producer[j])}, [int(p.producer[j])]
        while stack:
            for u in p.reads[stack.pop()]:
                if self.state.copies[u]:
                    continue
                i = int(p.producer[u])
                if i == NONE or (self.state.has_run[i] and not p.recomputable[i]):
                    raise DeadEndError
                self.future.add(u, self.future.now)
                if i not in found:
                    found.add(i)
                    stack.append(i)
        return sorted(found)
