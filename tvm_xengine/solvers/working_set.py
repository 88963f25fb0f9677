"""Budgets below which no schedule exists, whatever is recomputed, moved or reordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES


@dataclass(frozen=True)
class WorkingSets:
    """The minimal memory of single ops and of the state at home.

    Attributes
    ----------
    op_bytes
        For each required op and each device that can run it: bytes that are live there while
        it runs, state that can never leave included.
    home_bytes
        For each device the state that is there when the step begins.
    """

    problem: Problem
    op_bytes: dict[str, dict[str, int]]
    home_bytes: dict[str, int]

    def least_bytes(self) -> dict[str, int]:
        """For each device a budget below which no schedule exists, the others being ample.

        Ops that another device can run do not count.
        """
        least = dict(self.home_bytes)
        for need in self.op_bytes.values():
            if len(need) == 1:
                ((device, size),) = need.items()
                least[device] = max(least[device], size)
        return least

    def binding(self) -> str:
        """A sentence that names what is closest to, or beyond, a budget."""
        platform = self.problem.platform
        excess: list[tuple[int, str]] = []
        for device in platform.devices:
            size = self.home_bytes[device.name]
            if not size:
                continue
            excess.append(
                (
                    size - device.budget_bytes,
                    f"the state at home on {device.name} has {size} bytes, and its budget is"
                    f" {device.budget_bytes} bytes",
                )
            )
        for op, need in self.op_bytes.items():
            device_name, size = min(
                need.items(), key=lambda item: item[1] - platform.device(item[0]).budget_bytes
            )
            budget = platform.device(device_name).budget_bytes
            excess.append(
                (
                    size - budget,
                    f"op {op} needs {size} bytes on {device_name} while it runs (inputs, outputs,"
                    f" workspace, state that must stay there), and the budget is {budget} bytes",
                )
            )
        largest, sentence = max(excess)
        if largest > 0:
            return sentence
        return (
            "every op fits alone, but not beside the tensors that later ops still need; the closest"
            f" alone: {sentence}"
        )

    def is_infeasible(self) -> bool:
        """Whether the budgets are proven too small."""
        platform = self.problem.platform
        return any(
            size > platform.device(device).budget_bytes for device, size in self.home_bytes.items()
        ) or any(
            all(size > platform.device(device).budget_bytes for device, size in need.items())
            for need in self.op_bytes.values()
        )


def working_sets(problem: Problem) -> WorkingSets:
    """What each required op and the state at home need."""
    graph, platform = problem.graph, problem.platform
    required = required_ops(graph)
    reachable = {dst for _, dst in platform.link_between}
    pinned = {
        name: device
        for name, device in problem.home.items()
        if graph.tensor[name].role.is_persistent and device not in reachable
    }
    pinned_bytes = dict.fromkeys(platform.index, 0)
    for name, device in pinned.items():
        pinned_bytes[device] += graph.tensor[name].size_bytes
    op_bytes: dict[str, dict[str, int]] = {}
    for op in graph.ops:
        if op.name not in required:
            continue
        op_bytes[op.name] = {}
        for device, cost in problem.costs[op.name].items():
            touched = [
                name
                for name in graph.reads[op.name]
                if pinned.get(graph.update_of.get(name, name)) != device
            ]
            touched += [name for name in op.outputs if name not in graph.update_of]
            size = sum(graph.tensor[name].size_bytes for name in touched)
            op_bytes[op.name][device] = pinned_bytes[device] + size + cost.least_workspace_bytes
    return WorkingSets(problem, op_bytes, dict(problem.home_bytes))


def room_alone(problem: Problem, ops: Sequence[str]) -> NDArray[np.int64]:
    """What each op leaves of the budget of each device while it runs alone, with the kernel of least
    workspace; shape (len(ops), devices).

    Unlimited everywhere for an op that fits nowhere: that is for the caller to find out and name.
    """
    need = working_sets(problem).op_bytes
    devices = problem.platform.devices
    room = np.array(
        [
            [device.budget_bytes - need.get(op, {}).get(device.name, 0) for device in devices]
            for op in ops
        ],
        np.int64,
    )
    can_run = np.array([[problem.can_run(op, device.name) for device in devices] for op in ops])
    room[~((room >= 0) & can_run).any(axis=1)] = UNLIMITED_BYTES
    return room


def required_ops(graph: OpGraph) -> frozenset[str]:
    """The ops that an output or an update depends on: every schedule runs exactly these or more."""
    wanted = {graph.base[name] for name in graph.outputs}
    required: set[str] = set()
    for op in reversed(graph.ops):
        if op.updates or any(name in wanted for name in op.outputs):
            required.add(op.name)
            wanted.update(graph.reads[op.name])
    return frozenset(required)
