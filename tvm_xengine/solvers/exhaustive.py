"""Exhaustive search: the optimum of tiny problems, straight from the rules of a schedule.

Nothing here is shared with the formulations or with the referee, so that they can be checked
against it. Every order of first computations, every repetition and every copy is considered.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Step, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.indexed import ANYWHERE, NOWHERE, IndexedProblem, index_problem
from tvm_xengine.solvers.result import Limits, Objective, Scope, SolveResult, Status


@dataclass(frozen=True)
class _State:
    """What is where, and what can no longer happen.

    Attributes
    ----------
    resident
        For each device the set of tensors there, as bits.
    overwritten
        For each device the state tensors that an update has replaced there, as bits.
    done
        The ops that have run, as far as that matters, as bits.
    """

    resident: tuple[int, ...]
    overwritten: tuple[int, ...]
    done: int


def solve_exhaustively(
    problem: Problem,
    *,
    objective: Objective = Objective.COST,
    limits: Limits | None = None,
    scope: Scope = Scope.EVERY_SCHEDULE,
) -> SolveResult:
    """The proven optimum in `scope`, by shortest paths over what is resident where.

    Dijkstra's algorithm over states (resident tensors on each device, overwritten state, ops
    that must not be repeated). A tensor is only freed when memory is needed, and then in
    minimal sets: holding more never hurts, because freeing later is always possible. The
    number of states is exponential, so this is for about six ops.

    Raises
    ------
    ValueError
        If the objective is the makespan, which is no sum over steps, or the scope is another
        solver's.
    """
    if scope is Scope.STAGE_MODEL:
        raise ValueError("expected the scope EVERY_SCHEDULE or GIVEN_ORDER, got STAGE_MODEL")
    limits = limits or Limits()
    started = time.perf_counter()
    walk = _Walk(index_problem(problem, objective), scope)
    best: dict[_State, float] = {}
    came_from: dict[_State, tuple[_State, Step] | None] = {}
    heap: list[tuple[float, int, _State]] = []
    for state in walk.initial():
        best[state], came_from[state] = 0.0, None
        heap.append((0.0, 0, state))
    pushed, reached = 0, 0.0
    while heap:
        reached, _, state = heapq.heappop(heap)
        if reached > best[state]:
            continue
        elapsed_s = time.perf_counter() - started
        if walk.is_goal(state):
            steps = _path(came_from, state)
            schedule = with_frees(problem, steps, survivors=walk.survivors(state))
            value = objective.of(simulate(problem, schedule))
            return SolveResult(
                Status.OPTIMAL,
                schedule,
                objective,
                value,
                min(value, reached),
                elapsed_s,
                "exhaustive",
                f"optimal among {scope.value}",
                scope=scope,
            )
        if elapsed_s > limits.time_limit_s:
            status, message = Status.NO_SOLUTION, f"time limit after {len(best)} states"
            break
        for weight, step, following in walk.moves(state):
            total = reached + weight
            if total < best.get(following, math.inf):
                best[following], came_from[following] = total, (state, step)
                pushed += 1
                heapq.heappush(heap, (total, pushed, following))
    else:
        status, message = Status.INFEASIBLE, f"none of {scope.value} fits the budgets"
    return SolveResult(
        status,
        None,
        objective,
        None,
        reached,
        time.perf_counter() - started,
        "exhaustive",
        message,
        scope=scope,
    )


class _Walk:
    """The moves between states."""

    def __init__(self, indexed: IndexedProblem, scope: Scope) -> None:
        self.p = indexed
        self.keeps_order = scope is Scope.GIVEN_ORDER
        self.size: list[int] = indexed.size.tolist()
        self.budget: list[int] = indexed.budget.tolist()
        self.reads = [_bits(tensors) for tensors in indexed.reads]
        self.makes = [_bits(tensors) for tensors in indexed.makes]

    def initial(self) -> Iterator[_State]:
        """The state from which every schedule starts: all state at home, if it fits there."""
        at_home = [0] * self.p.device_count
        for j, d in enumerate(self.p.home.tolist()):
            if d >= 0:
                at_home[d] |= 1 << j
        if self.p.problem.state_fits:
            yield _State(tuple(at_home), (0,) * self.p.device_count, 0)

    def is_goal(self, state: _State) -> bool:
        """Whether every update has run and all that must be there at the end is there."""
        anywhere = 0
        for there in state.resident:
            anywhere |= there
        for j, where in enumerate(self.p.must_end_on.tolist()):
            if where == NOWHERE:
                continue
            there = anywhere if where == ANYWHERE else state.resident[where]
            if not there >> j & 1:
                return False
        return all(
            state.done >> i & 1
            for i, tensors in enumerate(self.p.makes)
            if any(self.p.update_of[j] >= 0 for j in tensors)
        )

    def survivors(self, state: _State) -> dict[str, str]:
        """For each output a device on which it is in `state`."""
        return {
            self.p.tensor_names[j]: self.p.device_names[d]
            for j in range(self.p.tensor_count)
            for d, there in enumerate(state.resident)
            if self.p.must_end_on[j] == ANYWHERE and there >> j & 1
        }

    def moves(self, state: _State) -> Iterator[tuple[float, Step, _State]]:
        """(weight, step, following state) of everything that can be done next."""
        for i in range(self.p.op_count):
            if self._may_run(state.done, i):
                for d in range(self.p.device_count):
                    if self.p.can_run[i, d]:
                        yield from self._runs(state, i, d)
        for a, b in self.p.links:
            for j in range(self.p.tensor_count):
                if state.resident[a] >> j & 1 and not state.resident[b] >> j & 1:
                    yield from self._copies(state, j, a, b)

    def _may_run(self, done: int, i: int) -> bool:
        if done >> i & 1:
            return bool(self.p.recomputable[i])
        earlier = (1 << i) - 1
        return not self.keeps_order or done & earlier == earlier

    def _runs(self, state: _State, i: int, d: int) -> Iterator[tuple[float, Step, _State]]:
        there = state.resident[d]
        if self.reads[i] & ~there:
            return
        taken = _bits(int(self.p.update_of[j]) for j in self.p.makes[i] if self.p.update_of[j] >= 0)
        fresh = [j for j in self.p.makes[i] if self.p.update_of[j] < 0 and not there >> j & 1]
        needed = sum(self.size[j] for j in fresh) + int(self.p.workspace[i, d])
        weight = float(self.p.run_weight[i, d])
        is_noted = self.keeps_order or not self.p.recomputable[i]
        done = state.done | 1 << i if is_noted else state.done
        movable = there & ~self.reads[i] & ~self.makes[i]
        for evicted in self._evictions(there, movable, self._excess(there, d, needed)):
            resident = (there & ~evicted | self.makes[i]) & ~taken
            yield (
                weight,
                self.p.compute(i, d),
                _State(
                    _replaced(state.resident, d, resident),
                    _replaced(state.overwritten, d, state.overwritten[d] | taken),
                    done,
                ),
            )

    def _copies(
        self, state: _State, j: int, a: int, b: int
    ) -> Iterator[tuple[float, Step, _State]]:
        weight, step = float(self.p.copy_weight[a, b, j]), self.p.transfer(j, a, b)
        there = state.resident[b]
        overwrites = int(self.p.update_of[j])
        if overwrites >= 0 and self.p.home[overwrites] == b:
            if there >> overwrites & 1:
                gone = 1 << overwrites
                yield (
                    weight,
                    step,
                    _State(
                        _replaced(state.resident, b, there & ~gone | 1 << j),
                        _replaced(state.overwritten, b, state.overwritten[b] | gone),
                        state.done,
                    ),
                )
            return
        if state.overwritten[b] >> j & 1:
            return
        for evicted in self._evictions(there, there, self._excess(there, b, self.size[j])):
            resident = _replaced(state.resident, b, there & ~evicted | 1 << j)
            yield weight, step, _State(resident, state.overwritten, state.done)

    def _excess(self, there: int, d: int, needed: int) -> int:
        held: int = sum(size for j, size in enumerate(self.size) if there >> j & 1)
        return held + needed - self.budget[d]

    def _evictions(self, there: int, movable: int, excess: int) -> Iterator[int]:
        """The minimal subsets of `movable` whose sizes total at least `excess`."""
        if excess <= 0:
            yield 0
            return
        candidates = [j for j in range(self.p.tensor_count) if movable & there & 1 << j]
        for choice in range(1, 1 << len(candidates)):
            chosen = [j for k, j in enumerate(candidates) if choice >> k & 1]
            total = sum(self.size[j] for j in chosen)
            if total >= excess and all(total - self.size[j] < excess for j in chosen):
                yield _bits(chosen)


def _bits(positions: Iterable[int]) -> int:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits


def _replaced(values: tuple[int, ...], position: int, value: int) -> tuple[int, ...]:
    return (*values[:position], value, *values[position + 1 :])


def _path(came_from: dict[_State, tuple[_State, Step] | None], state: _State) -> list[Step]:
    steps: list[Step] = []
    while (previous := came_from[state]) is not None:
        state, step = previous
        steps.append(step)
    return steps[::-1]
