"""The scheduling problem of a function in the memory regions of one processor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import tvm

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.plan.static_cost import static_costs
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.problem import op_costs
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.program.step_program import Operand, Outside, OutsideView
from tvm_xengine.scheduling.graph import OpGraph, Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_budgets

_KINDS = {
    Role.BATCH: Outside.CALLER,
    Role.HYPER: Outside.SETTING,
    Role.CONSTANT: Outside.CONSTANT,
}
"""Where tensors lie that no arena holds."""
OUTSIDE = frozenset(_KINDS)


@dataclass(frozen=True)
class Machine:
    """The processor that a step is planned for.

    Attributes
    ----------
    platform
        The writable regions, as devices; the first one is the fastest.
    bandwidth_gb_s
        Speed of access to each region that is slower than the processor.
    code
        The TVM target of the kernels.
    outside
        Roles of the tensors that the training step reads outside the regions.
    has_dma
        Whether something else than the processor copies between regions.
    """

    target: EmbeddedTarget
    platform: Platform
    bandwidth_gb_s: Mapping[str, float]
    code: tvm.target.Target
    outside: frozenset[Role] = OUTSIDE
    has_dma: bool = False

    @property
    def state_roles(self) -> frozenset[Role]:
        """Roles of what stays in the regions from one step to the next."""
        return frozenset(role for role in Role if role.is_persistent) - self.outside

    @property
    def first(self) -> str:
        """The fastest region that computes."""
        return self.platform.computing[0].name


def outside_views(
    lowered: LoweredStep, roles: Collection[Role], prefix: str = ""
) -> dict[str, OutsideView]:
    """The tensors of some roles, which a function reads outside the arenas.

    Parameters
    ----------
    prefix
        For lifted constants, which lowering numbers from 0 in each function.
    """
    views = {}
    for tensor in lowered.extraction.graph.bases:
        if tensor.role in roles:
            is_lifted = tensor.role is Role.CONSTANT and tensor.name.startswith("constant_")
            name = c_identifier(f"{prefix}{tensor.name}" if is_lifted else tensor.name)
            views[tensor.name] = OutsideView(_KINDS[tensor.role], name, tensor.shape, tensor.dtype)
    return views


def without_bytes(graph: OpGraph, names: Collection[str]) -> OpGraph:
    """The graph in which the named tensors take no bytes, because they lie outside the plan.

    What replaces one of them lies there, too.
    """

    def is_outside(name: str) -> bool:
        base = graph.base[name]
        return base in names or graph.update_of.get(base) in names

    tensors = tuple(
        replace(tensor, size_bytes=0) if is_outside(tensor.name) else tensor
        for tensor in graph.tensors
    )
    return OpGraph(tensors, graph.ops, graph.outputs)


def region_problem(
    lowered: LoweredStep,
    machine: Machine,
    fixed: Mapping[str, Operand],
    costs: Mapping[str, Mapping[str, OpCost]],
) -> Problem:
    """The problem in which tensors that are `fixed` take no bytes, and the state has one home."""
    platform = machine.platform
    light = without_bytes(lowered.extraction.graph, fixed)
    home = _state_home(light, costs, machine)
    state = {tensor.name: home for tensor in light.bases if tensor.role in machine.state_roles}
    state = {name: region for name, region in state.items() if name not in fixed}
    return Problem(light, platform, costs, state, constraints=lowered.constraints)


def problem_of_plan(
    lowered: LoweredStep, machine: Machine, fixed: Mapping[str, Operand], planned: Problem
) -> Problem:
    """The problem of a step that is planned, with the costs of the kernels for a machine.

    Budgets and homes stay those of the plan; tensors that are `fixed` take no bytes.
    """
    light = without_bytes(planned.graph, fixed)
    return replace(planned, graph=light, costs=static_op_costs(lowered, machine))


def static_op_costs(lowered: LoweredStep, machine: Machine) -> dict[str, dict[str, OpCost]]:
    """For each op, its cost in each region, from counted operations."""
    bandwidth = machine.bandwidth_gb_s
    on = {
        r.name: static_costs(machine.target, bandwidth.get(r.name))
        for r in machine.platform.computing
    }
    return op_costs(lowered, on)


def _state_home(graph: OpGraph, costs: Mapping[str, Mapping[str, OpCost]], machine: Machine) -> str:
    """The first region that can hold the state; with others, together with the largest op."""
    platform, roles = machine.platform, machine.state_roles
    state_bytes = sum(tensor.size_bytes for tensor in graph.bases if tensor.role in roles)
    several = len(platform.devices) > 1
    for device in platform.devices:
        ample = platform.with_budgets(dict.fromkeys(platform.index, UNLIMITED_BYTES))
        alone = Problem(graph, ample, costs, {})
        needed = state_bytes + (_largest_op_bytes(alone, roles) if several else 0)
        if needed <= device.budget_bytes:
            return device.name
    sizes = {device.name: device.budget_bytes for device in platform.devices}
    fitting = [name for name, size in sizes.items() if state_bytes <= size]
    if not fitting:
        raise NoScheduleError(
            f"the state (parameters and optimizer state) takes {state_bytes} bytes, but the regions"
            f" have {format_budgets(sizes)}: one region must hold it",
            is_proven=True,
        )
    return fitting[0]


def _largest_op_bytes(problem: Problem, state_roles: Collection[Role]) -> int:
    graph = problem.graph
    return max(
        sum(
            graph.tensor[name].size_bytes
            for name in {*graph.reads[op.name], *op.outputs}
            if graph.tensor[name].role not in state_roles
        )
        + min(cost.least_workspace_bytes for cost in problem.costs[op.name].values())
        for op in graph.ops
    )
