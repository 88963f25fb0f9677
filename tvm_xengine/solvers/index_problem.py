"""The arrays of a problem.

Ops that no output and no update depends on are left out, as are views and state that nothing
touches and that may be freed at once. Bytes are divided by their greatest common divisor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tvm_xengine.scheduling.graph import Op
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.indexed import (
    ANYWHERE,
    NONE,
    NOWHERE,
    Floats,
    IndexedProblem,
    Ints,
    Kernels,
)
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.working_set import required_ops, room_alone


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
