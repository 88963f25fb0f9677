"""A problem as arrays over positions, reduced to the decisions of a solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.ragged import Ragged, ragged
from tvm_xengine.scheduling.schedule import Compute, Schedule, Step, Transfer

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
