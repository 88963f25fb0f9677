"""A problem as flat arrays, for code that looks at every op many thousand times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.working_set import fits

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Records = NDArray[Any]

END_NOWHERE = -2
"""`Arrays.end_device` of a tensor that need not exist when the step ends."""
END_ANYWHERE = -1
"""`Arrays.end_device` of a tensor that must then exist on some device."""


@dataclass(frozen=True)
class Arrays:
    """The numbers of a problem; tensors are the base tensors, without views.

    Attributes
    ----------
    read_ptr, read_tensor
        Op i reads ``read_tensor[read_ptr[i]:read_ptr[i + 1]]``.
    made_ptr, made_tensor
        Op i makes ``made_tensor[made_ptr[i]:made_ptr[i + 1]]``.
    size_bytes, producer, home
        For each tensor; producer and home are -1 where there is none.
    state_of
        For each update result the state tensor it replaces, else -1.
    updater, replaced_by
        For each state tensor the op that updates it and the result, else -1.
    end_device
        For each tensor the device on which it must be when the step ends, or
        `END_ANYWHERE`, or `END_NOWHERE`.
    recomputable
        For each op.
    compute_us, compute_uj, workspace_bytes
        Shape (ops, devices); infinite time where an op cannot run, or never fits.
    copy_us, copy_us_per_byte, copy_uj, copy_uj_per_byte
        Shape (devices, devices); infinite where there is no link.
    budget_bytes
        For each device.
    """

    problem: Problem
    read_ptr: Ints
    read_tensor: Ints
    made_ptr: Ints
    made_tensor: Ints
    size_bytes: Ints
    producer: Ints
    home: Ints
    state_of: Ints
    updater: Ints
    replaced_by: Ints
    end_device: Ints
    recomputable: NDArray[np.bool_]
    compute_us: Floats
    compute_uj: Floats
    workspace_bytes: Ints
    copy_us: Floats
    copy_us_per_byte: Floats
    copy_uj: Floats
    copy_uj_per_byte: Floats
    budget_bytes: Ints

    @property
    def n_ops(self) -> int:
        """Number of ops."""
        return len(self.recomputable)

    @property
    def n_tensors(self) -> int:
        """Number of tensors that occupy bytes of their own."""
        return len(self.size_bytes)

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.budget_bytes)

    @cached_property
    def touch_ptr(self) -> Ints:
        """Op i touches (reads, then makes) ``touch_tensor[touch_ptr[i]:touch_ptr[i + 1]]``."""
        return self.read_ptr + self.made_ptr

    @cached_property
    def touch_tensor(self) -> Ints:
        """Tensors that the ops touch, see `touch_ptr`."""
        parts: list[Ints] = []
        for i in range(self.n_ops):
            parts.append(self.read_tensor[self.read_ptr[i] : self.read_ptr[i + 1]])
            parts.append(self.made_tensor[self.made_ptr[i] : self.made_ptr[i + 1]])
        return np.concatenate(parts)

    @cached_property
    def needed_ops(self) -> Ints:
        """Ops that the step cannot do without, in order: the others need not run at all."""
        wanted = self.end_device != END_NOWHERE
        needed: list[int] = []
        for i in reversed(range(self.n_ops)):
            made = self.made_tensor[self.made_ptr[i] : self.made_ptr[i + 1]]
            if wanted[made].any() or (self.state_of[made] >= 0).any():
                wanted[self.read_tensor[self.read_ptr[i] : self.read_ptr[i + 1]]] = True
                needed.append(i)
        return np.array(needed[::-1], dtype=np.int64)

    @cached_property
    def prerequisites(self) -> tuple[tuple[int, ...], ...]:
        """For each op the ops whose first run comes before its own.

        Producers of what it reads and, where it updates a state, the readers of the old
        value.
        """
        readers: list[list[int]] = [[] for _ in range(self.n_tensors)]
        for i in range(self.n_ops):
            for t in self.read_tensor[self.read_ptr[i] : self.read_ptr[i + 1]]:
                readers[t].append(i)
        result: list[tuple[int, ...]] = []
        for i in range(self.n_ops):
            before = {
                int(self.producer[t])
                for t in self.read_tensor[self.read_ptr[i] : self.read_ptr[i + 1]]
                if self.producer[t] >= 0
            }
            for t in self.made_tensor[self.made_ptr[i] : self.made_ptr[i + 1]]:
                if self.state_of[t] >= 0:
                    before.update(j for j in readers[self.state_of[t]] if j != i)
            result.append(tuple(sorted(before)))
        return tuple(result)

    @cached_property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        """For each op the ops that have it among their `prerequisites`, in order."""
        result: list[list[int]] = [[] for _ in self.prerequisites]
        for i, before in enumerate(self.prerequisites):
            for j in before:
                result[j].append(i)
        return tuple(map(tuple, result))

    def op_price(self, objective: Objective) -> Floats:
        """Price of each op on each device, shape (ops, devices); infinite where it cannot run."""
        if objective is Objective.ENERGY:
            return np.where(np.isfinite(self.compute_us), self.compute_uj, np.inf)
        return self.compute_us

    def copy_price(self, objective: Objective) -> tuple[Floats, Floats]:
        """(fixed, per byte) price of a copy, each of shape (devices, devices)."""
        if objective is Objective.ENERGY:
            return self.copy_uj, self.copy_uj_per_byte
        return self.copy_us, self.copy_us_per_byte

    def steps(self, kinds: Sequence[int], rows: Iterable[tuple[int, int, int]]) -> list[Step]:
        """Steps from rows (op, device, _) where kind is 0, (tensor, src, dst) where it is 1."""
        names = [device.name for device in self.problem.platform.devices]
        graph = self.problem.graph
        return [
            Compute(graph.ops[a].name, names[b])
            if kind == 0
            else Transfer(graph.bases[a].name, names[b], names[c])
            for kind, (a, b, c) in zip(kinds, rows, strict=True)
        ]


def arrays_of(problem: Problem) -> Arrays:
    """The numbers of `problem` as arrays."""
    graph, platform = problem.graph, problem.platform
    position = {tensor.name: t for t, tensor in enumerate(graph.bases)}
    reads = [[position[name] for name in graph.reads[op.name]] for op in graph.ops]
    made = [[position[name] for name in op.outputs] for op in graph.ops]

    def per_tensor(values: dict[int, int], default: int) -> Ints:
        result = np.full(len(position), default, dtype=np.int64)
        for t, value in values.items():
            result[t] = value
        return result

    producer = {t: i for i, outputs in enumerate(made) for t in outputs}
    home = {position[name]: platform.index[device] for name, device in problem.home.items()}
    state_of = {position[o]: position[s] for o, s in graph.update_of.items()}
    end_device = {position[graph.base[name]]: END_ANYWHERE for name in graph.outputs}
    for name, device in problem.home.items():
        if graph.tensor[name].role.is_persistent:
            final = graph.updated_by[name][1] if name in graph.updated_by else name
            end_device[position[final]] = platform.index[device]

    shape = (len(graph.ops), len(platform.devices))
    compute_us, compute_uj = np.full(shape, np.inf), np.zeros(shape)
    workspace = np.zeros(shape, dtype=np.int64)
    for i, op in enumerate(graph.ops):
        for device, cost in problem.costs[op.name].items():
            d = platform.index[device]
            compute_us[i, d] = cost.compute_us
            compute_uj[i, d] = cost.energy_uj
            workspace[i, d] = cost.workspace_bytes
    compute_us[~fits(problem, [op.name for op in graph.ops])] = np.inf

    between = (len(platform.devices), len(platform.devices))
    copy_us, copy_uj = np.full(between, np.inf), np.full(between, np.inf)
    copy_us_per_byte, copy_uj_per_byte = np.zeros(between), np.zeros(between)
    for link in platform.links:
        pair = platform.index[link.src], platform.index[link.dst]
        copy_us[pair] = link.transfer_us(0)
        copy_us_per_byte[pair] = 1.0 / (1000.0 * (link.bandwidth_gb_s or np.inf))
        copy_uj[pair] = link.energy_uj_per_copy
        copy_uj_per_byte[pair] = link.energy_nj_per_byte / 1000.0

    return Arrays(
        problem=problem,
        read_ptr=_pointers(reads),
        read_tensor=_flat(reads),
        made_ptr=_pointers(made),
        made_tensor=_flat(made),
        size_bytes=np.array([tensor.size_bytes for tensor in graph.bases], dtype=np.int64),
        producer=per_tensor(producer, -1),
        home=per_tensor(home, -1),
        state_of=per_tensor(state_of, -1),
        updater=per_tensor({s: producer[o] for o, s in state_of.items()}, -1),
        replaced_by=per_tensor({s: o for o, s in state_of.items()}, -1),
        end_device=per_tensor(end_device, END_NOWHERE),
        recomputable=np.array([op.recomputable for op in graph.ops]),
        compute_us=compute_us,
        compute_uj=compute_uj,
        workspace_bytes=workspace,
        copy_us=copy_us,
        copy_us_per_byte=copy_us_per_byte,
        copy_uj=copy_uj,
        copy_uj_per_byte=copy_uj_per_byte,
        budget_bytes=np.array([device.budget_bytes for device in platform.devices]),
    )


def cheapest_routes(fixed: Floats, per_byte: Floats, size_bytes: float) -> tuple[Floats, Ints]:
    """Price of the cheapest chain of copies of `size_bytes` between devices, and its first hop.

    Both of shape (devices, devices); infinite and -1 where no chain exists (Floyd-Warshall).
    """
    price = fixed + per_byte * size_bytes
    np.fill_diagonal(price, 0.0)
    count = len(price)
    hop = np.where(np.isfinite(price), np.arange(count)[None, :], -1)
    for via in range(count):
        detour = price[:, via : via + 1] + price[via : via + 1, :]
        shorter = detour < price
        price = np.where(shorter, detour, price)
        hop = np.where(shorter, hop[:, via : via + 1], hop)
    return price, hop


def _pointers(lists: list[list[int]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64)


def _flat(lists: list[list[int]]) -> Ints:
    return np.array([item for items in lists for item in items], dtype=np.int64)
