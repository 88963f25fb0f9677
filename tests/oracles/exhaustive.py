"""An independent judge: the optimum of tiny problems, from the definition of a schedule alone.

It uses the dataclasses of a problem and of a schedule, and none of the code that it judges: views,
required ops, budgets, costs and frees are worked out here once more. Every order of first
computations, every repetition and every copy is considered.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tvm_xengine.scheduling.graph import Op
from tvm_xengine.scheduling.platform import Link
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Step, Transfer

MOST_STATES = 150_000
"""States that are looked at before a question is given up, some ten seconds' worth."""


@dataclass(frozen=True)
class Optimum:
    """What exhaustive search has shown.

    Attributes
    ----------
    is_proven
        False where the search was given up; `value` and `schedule` then say nothing.
    value, schedule
        The optimum and a schedule with that value; None where no schedule exists.
    """

    is_proven: bool
    value: float | None
    schedule: Schedule | None

    @property
    def is_infeasible(self) -> bool:
        """Whether it is proven that no schedule exists."""
        return self.is_proven and self.schedule is None


class _State(NamedTuple):
    """What the past leaves behind, as sets of bits; bit ``d * J + j`` is tensor j on device d.

    Attributes
    ----------
    resident
        Tensors that are there.
    overwritten
        State whose bytes an update has taken over there.
    done
        Ops that have run: all of them where the order is given, else those that must not be
        repeated.
    """

    resident: int
    overwritten: int
    done: int


def solve_exhaustively(
    problem: Problem,
    *,
    objective: str = "cost",
    in_given_order: bool = False,
    most_states: int = MOST_STATES,
) -> Optimum:
    """The cheapest schedule of all, or of those whose first computations are in the graph's order.

    Dijkstra's algorithm over what is resident where. Memory is only freed when a step needs it,
    and then in minimal sets: whatever can be freed now can be freed later.

    Parameters
    ----------
    objective
        ``"cost"`` or ``"energy"``; the makespan is not a sum over steps.
    """
    if objective not in ("cost", "energy"):
        raise ValueError(f"expected the objective cost or energy, not the {objective}")
    rules = _Rules(problem, objective, in_given_order)
    first = rules.first_state()
    if any(rules.used_bytes(first, d) > rules.budget[d] for d in range(len(rules.devices))):
        return Optimum(True, None, None)
    paid: dict[_State, float] = {first: 0.0}
    came_from: dict[_State, tuple[_State, tuple[Step, ...]]] = {}
    heap: list[tuple[float, int, _State]] = [(0.0, 0, first)]
    pushed = 0
    looked_at: set[_State] = set()
    while heap:
        value, _, state = heapq.heappop(heap)
        if state in looked_at:
            continue
        looked_at.add(state)
        if rules.is_complete(state):
            return Optimum(True, value, _schedule(came_from, state))
        if len(looked_at) > most_states:
            return Optimum(False, None, None)
        for price, steps, following in rules.moves(state):
            if value + price < paid.get(following, float("inf")):
                paid[following] = value + price
                came_from[following] = state, steps
                pushed += 1
                heapq.heappush(heap, (value + price, pushed, following))
    return Optimum(True, None, None)


def _schedule(came_from: dict[_State, tuple[_State, tuple[Step, ...]]], state: _State) -> Schedule:
    moves: list[tuple[Step, ...]] = []
    while state in came_from:
        state, steps = came_from[state]
        moves.append(steps)
    return Schedule(tuple(step for steps in reversed(moves) for step in steps))


def _transfer_us(link: Link, size_bytes: int) -> float:
    assert link.latency_us is not None
    assert link.bandwidth_gb_s is not None
    return link.latency_us + size_bytes / (1000.0 * link.bandwidth_gb_s)


def _transfer_uj(link: Link, size_bytes: int) -> float:
    return link.energy_uj_per_copy + link.energy_nj_per_byte * size_bytes / 1000.0


class _Rules:
    """The problem definition: what each step needs, takes and leaves behind."""

    def __init__(self, problem: Problem, objective: str, in_given_order: bool) -> None:
        graph, platform = problem.graph, problem.platform
        self.in_given_order = in_given_order
        self.devices = [device.name for device in platform.devices]
        self.budget = [device.budget_bytes for device in platform.devices]
        parent = {tensor.name: tensor.alias_of for tensor in graph.tensors}

        def base(name: str) -> str:
            above = parent[name]
            return name if above is None else base(above)

        own = [tensor for tensor in graph.tensors if tensor.alias_of is None]
        number = {tensor.name: j for j, tensor in enumerate(own)}
        self.names = [tensor.name for tensor in own]
        self.size = [tensor.size_bytes for tensor in own]
        self.home = {
            number[t.name]: self.devices.index(problem.home[t.name])
            for t in own
            if t.role.is_resident
        }
        self.replaces = {number[o]: number[s] for op in graph.ops for o, s in op.updates}
        replaced_by = {state: output for output, state in self.replaces.items()}
        self.at_the_end = {
            replaced_by.get(number[t.name], number[t.name]): self.home[number[t.name]]
            for t in own
            if t.role.is_persistent
        }
        self.results = {number[base(name)] for name in graph.outputs}
        self.ops = self._required(graph.ops, {base(name) for name in graph.outputs}, base)
        self.reads = [sorted({number[base(name)] for name in op.inputs}) for op in self.ops]
        self.makes = [[number[name] for name in op.outputs] for op in self.ops]
        self.costs = [
            [
                (
                    self.devices.index(device),
                    variant,
                    cost.compute_us if objective == "cost" else cost.energy_uj,
                    cost.workspace_bytes,
                )
                for device, main in problem.costs[op.name].items()
                if problem.constraints.pinned.get(op.name, device) == device
                for variant, cost in {"": main, **main.variants}.items()
            ]
            for op in self.ops
        ]
        self.may_repeat = [
            op.recomputable and op.name not in problem.constraints.kept for op in self.ops
        ]
        self.copy_price = {
            (self.devices.index(link.src), self.devices.index(link.dst), j): (
                _transfer_us(link, size) if objective == "cost" else _transfer_uj(link, size)
            )
            for link in platform.links
            for j, size in enumerate(self.size)
        }

    @staticmethod
    def _required(ops: tuple[Op, ...], wanted: set[str], base: Callable[[str], str]) -> list[Op]:
        """The ops without which an output or an update is missing; no optimum runs another."""
        required: list[Op] = []
        for op in reversed(ops):
            if op.updates or wanted & set(op.outputs):
                required.insert(0, op)
                wanted |= {base(name) for name in op.inputs}
        return required

    def bit(self, j: int, d: int) -> int:
        """The bit of tensor j on device d."""
        return 1 << d * len(self.names) + j

    def bits(self, tensors: list[int], d: int) -> int:
        """The bits of several tensors on device d."""
        return sum(self.bit(j, d) for j in tensors)

    def used_bytes(self, state: _State, d: int) -> int:
        """Bytes that are taken on device d."""
        return sum(size for j, size in enumerate(self.size) if state.resident & self.bit(j, d))

    def first_state(self) -> _State:
        """All resident state is at home."""
        return _State(sum(self.bit(j, d) for j, d in self.home.items()), 0, 0)

    def is_complete(self, state: _State) -> bool:
        """Whether every update has been made, and all that must be delivered is there."""
        there = state.resident
        return (
            all(there & self.bit(j, d) for j, d in self.at_the_end.items())
            and all(
                any(there & self.bit(j, d) for d in range(len(self.devices))) for j in self.results
            )
            and all(state.done >> i & 1 for i, op in enumerate(self.ops) if op.updates)
        )

    def moves(self, state: _State) -> Iterator[tuple[float, tuple[Step, ...], _State]]:
        """(price, steps, following state) of every computation and copy that may come next."""
        for i, costs in enumerate(self.costs):
            if self._may_run(state, i):
                for d, variant, price, workspace_bytes in costs:
                    yield from self._computations(state, i, d, variant, price, workspace_bytes)
        for (a, b, j), price in self.copy_price.items():
            if state.resident & self.bit(j, a) and not state.resident & self.bit(j, b):
                yield from self._copies(state, j, a, b, price)

    def _may_run(self, state: _State, i: int) -> bool:
        if state.done >> i & 1:
            return self.may_repeat[i]
        return not self.in_given_order or state.done == (1 << i) - 1

    def _computations(
        self, state: _State, i: int, d: int, variant: str, price: float, workspace_bytes: int
    ) -> Iterator[tuple[float, tuple[Step, ...], _State]]:
        reads, makes = self.bits(self.reads[i], d), self.bits(self.makes[i], d)
        if reads & ~state.resident:
            return
        updated = [self.replaces[j] for j in self.makes[i] if j in self.replaces]
        fresh = [
            j
            for j in self.makes[i]
            if j not in self.replaces and not state.resident & self.bit(j, d)
        ]
        taken = self.bits(updated, d)
        is_noted = self.in_given_order or not self.may_repeat[i]
        done = state.done | 1 << i if is_noted else state.done
        needed = sum(self.size[j] for j in fresh) + workspace_bytes
        for gone in self._evictions(state, d, needed, pinned=reads | makes):
            resident = (state.resident & ~self.bits(gone, d) | makes) & ~taken
            following = _State(resident, state.overwritten | taken, done)
            step = Compute(self.ops[i].name, self.devices[d], variant)
            yield price, (*self._frees(gone, d), step), following

    def _copies(
        self, state: _State, j: int, a: int, b: int, price: float
    ) -> Iterator[tuple[float, tuple[Step, ...], _State]]:
        step = Transfer(self.names[j], self.devices[a], self.devices[b])
        old = self.replaces.get(j)
        if old is not None and self.home[old] == b:
            taken = self.bit(old, b)
            if state.resident & taken:
                resident = state.resident & ~taken | self.bit(j, b)
                yield price, (step,), _State(resident, state.overwritten | taken, state.done)
            return
        if state.overwritten & self.bit(j, b):
            return
        for gone in self._evictions(state, b, self.size[j], pinned=0):
            resident = state.resident & ~self.bits(gone, b) | self.bit(j, b)
            steps = (*self._frees(gone, b), step)
            yield price, steps, _State(resident, state.overwritten, state.done)

    def _evictions(
        self, state: _State, d: int, needed_bytes: int, *, pinned: int
    ) -> Iterator[list[int]]:
        """The minimal sets of tensors, other than the pinned, without which the bytes fit."""
        excess = self.used_bytes(state, d) + needed_bytes - self.budget[d]
        if excess <= 0:
            yield []
            return
        movable = state.resident & ~pinned
        candidates = [j for j in range(len(self.names)) if movable & self.bit(j, d)]
        for choice in range(1, 1 << len(candidates)):
            chosen = [j for k, j in enumerate(candidates) if choice >> k & 1]
            total = sum(self.size[j] for j in chosen)
            if total >= excess and all(total - self.size[j] < excess for j in chosen):
                yield chosen

    def _frees(self, tensors: list[int], d: int) -> tuple[Free, ...]:
        return tuple(Free(self.names[j], self.devices[d]) for j in tensors)
