"""A problem as arrays over positions, reduced to the decisions of a solver.

Ops that no output and no update depends on are left out, as are views and state that nothing
touches and that may be freed at once. Bytes are divided by their greatest common divisor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.graph import Op
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.ragged import Ragged, ragged
from tvm_xengine.scheduling.schedule import Compute, Schedule, Step, Transfer
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.working_set import required_ops, room_alone

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NONE = -1
"""Stands for an op, a tensor or a device where there is none."""
NOWHERE = NONE
"""`must_end_on` of a tensor that need not exist when the step ends."""
ANYWHERE = -2
"""`must_end_on` of an output that may be on any device when the step ends."""


@dataclass(frozen=True)
class Routes:
    """The cheapest chain of copies of tensor j from device a to b, each of shape (D, D, J).

    Attributes
    ----------
    value
        Sum over the copies of the chain; infinite where there is none.
    next_hop
        The device that the first copy goes to; `NONE` where there is no chain.
    """

    value: Floats
    next_hop: Ints


@dataclass(frozen=True)
class Kernels:
    """The kernels among which a run chooses, from the leanest to the cheapest; each of shape (n, D, V).

    None needs as much workspace as the next, or is as cheap. Where there are fewer than V, the last is
    repeated.

    Attributes
    ----------
    value
        Of a run.
    workspace
        Units of scratch memory.
    """

    value: Floats
    workspace: Ints

    @property
    def count(self) -> int:
        """The largest number of kernels, V; 1 where no run has a choice."""
        return int(self.value.shape[2])

    def choices(self, i: int, d: int) -> range:
        """Positions of the kernels of op i on device d but the leanest."""
        distinct = np.unique(self.workspace[i, d]).size
        return range(1, distinct)


@dataclass(frozen=True)
class IndexedProblem:
    """A problem as arrays; ops ``i``, tensors ``j`` and devices ``d`` are positions.

    A *value* is an amount of the objective: microseconds for the cost, microjoules for the energy.

    Attributes
    ----------
    op_names, tensor_names, device_names
        Names by position. Ops are in the order of the graph.
    compute_value
        Of running op i on device d with its cheapest kernel, shape (n, D); infinite where it cannot
        run, or where what it touches exceeds the budget.
    transfer_value
        Of copying tensor j from device a to b, shape (D, D, J); infinite without link.
    workspace
        Units of scratch memory of the kernel that needs the least, shape (n, D).
    kernels
        The kernels that op i may take on device d.
    size, budget
        Units of memory, shapes (J,) and (D,); budgets are rounded down.
    unit_bytes
        What one unit of memory stands for.
    reads, makes
        For each op, the tensors it reads and makes.
    producer
        For each tensor the op that makes it, `NONE` for resident state, shape (J,).
    home
        For each resident tensor its home device, else `NONE`, shape (J,).
    must_end_on
        For each tensor the device on which it must be when the step ends, or `ANYWHERE`,
        or `NOWHERE`, shape (J,).
    update_of
        For each update result the state it overwrites, else `NONE`, shape (J,).
    updated_by
        For each updated state the op that overwrites it, else `NONE`, shape (J,).
    recomputable
        Shape (n,).
    """

    problem: Problem
    op_names: tuple[str, ...]
    tensor_names: tuple[str, ...]
    device_names: tuple[str, ...]
    compute_value: Floats
    transfer_value: Floats
    workspace: Ints
    kernels: Kernels
    size: Ints
    budget: Ints
    unit_bytes: int
    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    producer: Ints
    home: Ints
    must_end_on: Ints
    update_of: Ints
    updated_by: Ints
    recomputable: NDArray[np.bool_]

    @property
    def op_count(self) -> int:
        """Number of ops, n."""
        return len(self.op_names)

    @property
    def tensor_count(self) -> int:
        """Number of tensors, J."""
        return len(self.tensor_names)

    @property
    def device_count(self) -> int:
        """Number of devices, D."""
        return len(self.device_names)

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Position of each op by name."""
        return {name: i for i, name in enumerate(self.op_names)}

    @cached_property
    def tensor_index(self) -> dict[str, int]:
        """Position of each tensor by name."""
        return {name: j for j, name in enumerate(self.tensor_names)}

    @cached_property
    def can_run(self) -> NDArray[np.bool_]:
        """Whether op i can run on device d, shape (n, D)."""
        return np.isfinite(self.compute_value)

    @cached_property
    def at_home(self) -> NDArray[np.bool_]:
        """Whether tensor j is on device d before the step begins, shape (D, J)."""
        return np.asarray(self.home == np.arange(self.device_count)[:, None], np.bool_)

    @cached_property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Ordered pairs of devices joined by a link."""
        index = self.problem.platform.index
        return tuple((index[k.src], index[k.dst]) for k in self.problem.platform.links)

    @cached_property
    def copy_stream(self) -> Ints:
        """The stream of copies from device a to b, shape (D, D): device d, or D + a D + b, the link's own."""
        count, platform = self.device_count, self.problem.platform
        streams = count + np.arange(count * count).reshape(count, count)
        for a, b in self.links:
            engine, *others = platform.copy_stream(self.device_names[a], self.device_names[b])
            if not others:
                streams[a, b] = platform.index[engine]
        return streams

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the ops that read it, in order."""
        consumers: list[list[int]] = [[] for _ in self.tensor_names]
        for i, tensors in enumerate(self.reads):
            for j in tensors:
                consumers[j].append(i)
        return tuple(tuple(ops) for ops in consumers)

    @cached_property
    def touches(self) -> Ragged:
        """The tensors that each op reads and then those that it makes."""
        return ragged((*r, *m) for r, m in zip(self.reads, self.makes, strict=True))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each op the ops whose first run comes before its own, in order.

        Producers of what it reads and, where it updates a state, the readers of the old value.
        """
        result: list[tuple[int, ...]] = []
        for i, (reads, makes) in enumerate(zip(self.reads, self.makes, strict=True)):
            before = {int(self.producer[j]) for j in reads} - {NONE}
            states = [int(self.update_of[j]) for j in makes if self.update_of[j] != NONE]
            before |= {reader for j in states for reader in self.consumers[j]} - {i}
            result.append(tuple(sorted(before)))
        return tuple(result)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each op the ops that have it among their `predecessors`, in order."""
        result: list[list[int]] = [[] for _ in self.op_names]
        for i, before in enumerate(self.predecessors):
            for earlier in before:
                result[earlier].append(i)
        return tuple(map(tuple, result))

    @cached_property
    def routes(self) -> Routes:
        """The cheapest chains of copies between devices."""
        return _cheapest_routes(self.transfer_value)

    @cached_property
    def last_read(self) -> tuple[int, ...]:
        """For each tensor the last stage in which it can be read; n if it must survive the step.

        A tensor can be read in the stage of a consumer's first run, and later in any stage in
        which that consumer may be repeated.
        """
        last_read = [-1] * self.tensor_count
        for j in range(self.tensor_count):
            if self.must_end_on[j] != NOWHERE:
                last_read[j] = self.op_count
        last_run = [0] * self.op_count
        for i in reversed(range(self.op_count)):
            last_run[i] = i
            if self.recomputable[i]:
                last_run[i] = max([i, *(last_read[j] for j in self.makes[i])])
            for j in self.reads[i]:
                last_read[j] = max(last_read[j], last_run[i])
        for j in range(self.tensor_count):
            if self.updated_by[j] >= 0:
                last_read[j] = self.op_count
        return tuple(last_read)

    @cached_property
    def last_run(self) -> tuple[int, ...]:
        """For each op the last stage in which running it can be of use."""
        return tuple(
            max(i, *(self.last_read[j] for j in self.makes[i])) if self.recomputable[i] else i
            for i in range(self.op_count)
        )

    @cached_property
    def cheapest(self) -> float:
        """Sum of every op's smallest value: no schedule has a smaller one."""
        return float(self.compute_value.min(axis=1).sum())

    def first_runs(self, schedule: Schedule) -> tuple[int, ...]:
        """The ops in the order in which `schedule` first runs them."""
        names = (step.op for step in schedule.steps if isinstance(step, Compute))
        return tuple(dict.fromkeys(self.op_index[op] for op in names if op in self.op_index))

    def compute(self, i: int, d: int) -> Step:
        """The step that runs op i on device d."""
        return Compute(self.op_names[i], self.device_names[d])

    def transfer(self, j: int, a: int, b: int) -> Step:
        """The step that copies tensor j from device a to device b."""
        return Transfer(self.tensor_names[j], self.device_names[a], self.device_names[b])


def summed(objective: Objective) -> Objective:
    """The objective whose values are added up: the cost in place of the makespan."""
    return Objective.COST if objective is Objective.MAKESPAN else objective


def index_problem(
    problem: Problem, objective: Objective, *, budgets_may_grow: bool = False
) -> IndexedProblem:
    """The arrays of `problem`, with the values of `objective`.

    Parameters
    ----------
    budgets_may_grow
        Whether kernels count for whose workspace there is room in no schedule within the budgets.

    Raises
    ------
    ValueError
        For the makespan, which is not a sum over steps.
    """
    if objective is Objective.MAKESPAN:
        raise ValueError("the makespan is not a sum over steps; index the cost or the energy")
    if problem.has_variants:
        problem = replace(problem, saves_energy=objective is Objective.ENERGY)
    graph, platform = problem.graph, problem.platform
    required = required_ops(graph)
    ops = [op for op in graph.ops if op.name in required]
    touched = _touched(problem, ops)
    tensors = [tensor for tensor in graph.bases if tensor.name in touched]
    index = {tensor.name: j for j, tensor in enumerate(tensors)}
    op_index = {op.name: i for i, op in enumerate(ops)}
    kernels = _kernels_of_runs(problem, ops, objective, budgets_may_grow=budgets_may_grow)
    size_bytes = np.array([tensor.size_bytes for tensor in tensors], np.int64)
    unit_bytes = math.gcd(*size_bytes.tolist(), *kernels.workspace.ravel().tolist()) or 1
    kernels = replace(kernels, workspace=kernels.workspace // unit_bytes)

    def positions(found: Mapping[str, str], place: Mapping[str, int]) -> Ints:
        """For each tensor the place of what is found for it."""
        return np.array(
            [place[found[t.name]] if t.name in found else NONE for t in tensors], np.int64
        )

    return IndexedProblem(
        problem=problem,
        op_names=tuple(op_index),
        tensor_names=tuple(index),
        device_names=tuple(platform.index),
        compute_value=np.ascontiguousarray(kernels.value[:, :, -1]),
        workspace=kernels.workspace[:, :, 0],
        kernels=kernels,
        transfer_value=_transfer_value(problem, size_bytes, objective),
        size=size_bytes // unit_bytes,
        budget=np.array([d.budget_bytes // unit_bytes for d in platform.devices], np.int64),
        unit_bytes=unit_bytes,
        reads=tuple(tuple(index[name] for name in graph.reads[op.name]) for op in ops),
        makes=tuple(tuple(index[name] for name in op.outputs) for op in ops),
        producer=positions(graph.producer, op_index),
        home=positions(
            {t.name: problem.home[t.name] for t in tensors if t.role.is_resident}, platform.index
        ),
        must_end_on=_must_end_on(problem, index),
        update_of=positions(graph.update_of, index),
        updated_by=positions({name: by[0] for name, by in graph.updated_by.items()}, op_index),
        recomputable=np.array([op.recomputable for op in ops], np.bool_),
    )


def _touched(problem: Problem, ops: Sequence[Op]) -> set[str]:
    """Tensors that an op touches, that an output shows, or that outlive the step."""
    graph = problem.graph
    return {
        *(name for op in ops for name in (*graph.reads[op.name], *op.outputs)),
        *(graph.base[name] for name in graph.outputs),
        *(tensor.name for tensor in graph.bases if tensor.role.is_persistent),
    }


def _kernels_of_runs(
    problem: Problem, ops: Sequence[Op], objective: Objective, *, budgets_may_grow: bool
) -> Kernels:
    """The kernels of each op on each device, in bytes; infinite values where it cannot run.

    Those for whose workspace there is no room beside what the op touches are left out.
    """
    room_bytes = room_alone(problem, tuple(op.name for op in ops))
    offered = {
        (i, problem.platform.index[name]): cost
        for i, op in enumerate(ops)
        for name, cost in problem.costs[op.name].items()
    }
    fronts = {
        (i, d): _front(
            cost, UNLIMITED_BYTES if budgets_may_grow else int(room_bytes[i, d]), objective
        )
        for (i, d), cost in offered.items()
        if room_bytes[i, d] >= 0
    }
    most = max(map(len, fronts.values()), default=1)
    value = np.full((len(ops), len(problem.platform.devices), most), np.inf)
    workspace_bytes = np.zeros(value.shape, np.int64)
    for place, front in fronts.items():
        value[place], workspace_bytes[place] = zip(
            *front, *[front[-1]] * (most - len(front)), strict=True
        )
    return Kernels(value, workspace_bytes)


def _front(cost: OpCost, room_bytes: int, objective: Objective) -> list[tuple[float, int]]:
    """(value, bytes of workspace) of the kernels that may be worth a run, the leanest first.

    Parameters
    ----------
    room_bytes
        What the leanest kernel leaves of the budget.
    """
    most_bytes = cost.least_workspace_bytes + room_bytes
    front: list[tuple[float, int]] = []
    for kernel in sorted(cost.kernels.values(), key=lambda one: one.workspace_bytes):
        value = kernel.compute_us if objective is Objective.COST else kernel.energy_uj
        if kernel.workspace_bytes > most_bytes or (front and value >= front[-1][0]):
            continue
        if front and kernel.workspace_bytes == front[-1][1]:
            front.pop()
        front.append((value, kernel.workspace_bytes))
    return front


def in_order(indexed: IndexedProblem, order: Sequence[int]) -> IndexedProblem:
    """The same problem with its ops in another order."""
    place = np.empty(indexed.op_count + 1, np.int64)
    place[list(order)] = np.arange(indexed.op_count)
    place[NONE] = NONE
    at = list(order)
    return replace(
        indexed,
        op_names=tuple(indexed.op_names[i] for i in order),
        compute_value=indexed.compute_value[at],
        workspace=indexed.workspace[at],
        kernels=Kernels(indexed.kernels.value[at], indexed.kernels.workspace[at]),
        reads=tuple(indexed.reads[i] for i in order),
        makes=tuple(indexed.makes[i] for i in order),
        producer=place[indexed.producer],
        updated_by=place[indexed.updated_by],
        recomputable=indexed.recomputable[at],
    )


def _cheapest_routes(transfer_value: Floats) -> Routes:
    """Floyd and Warshall's algorithm, for all tensors at once."""
    value = transfer_value.copy()
    count = len(value)
    value[np.arange(count), np.arange(count)] = 0.0
    next_hop = np.where(np.isfinite(value), np.arange(count)[None, :, None], NONE)
    for via in range(count):
        detour = value[:, via, None] + value[None, via]
        is_shorter = detour < value
        value = np.where(is_shorter, detour, value)
        next_hop = np.where(is_shorter, next_hop[:, via, None], next_hop)
    return Routes(value, next_hop)


def _transfer_value(problem: Problem, size_bytes: Ints, objective: Objective) -> Floats:
    platform = problem.platform
    count = len(platform.devices)
    value = np.full((count, count, len(size_bytes)), np.inf)
    for link in platform.links:
        of = link.transfer_us if objective is Objective.COST else link.transfer_uj
        pair = platform.index[link.src], platform.index[link.dst]
        value[pair] = [of(size) for size in size_bytes.tolist()]
    return value


def _must_end_on(problem: Problem, index: dict[str, int]) -> Ints:
    graph = problem.graph
    ends = np.full(len(index), NOWHERE, np.int64)
    for name in graph.outputs:
        ends[index[graph.base[name]]] = ANYWHERE
    for name, device in problem.home.items():
        if graph.tensor[name].role.is_persistent:
            final = graph.updated_by[name][1] if name in graph.updated_by else name
            ends[index[final]] = problem.platform.index[device]
    return ends
