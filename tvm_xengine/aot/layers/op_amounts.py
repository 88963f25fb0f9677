"""What a training step takes for each layer that it trains, as far as that is known before it is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.aot.plan.kernels import Optimize, lower_for_target
from tvm_xengine.aot.plan.region_problem import (
    Machine,
    outside_views,
    region_problem,
    static_op_costs,
)
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.lean.short_storage import short_evaluation
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.batch import with_batch_size
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.scheduling.graph import OpGraph, Role
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.working_set import working_sets
from tvm_xengine.training.step import TrainingStep

Layers = frozenset[int]


@dataclass(frozen=True)
class OpAmounts:
    """Time and energy of the ops of a training step, by the layers for which they run.

    Attributes
    ----------
    time_us, energy_uj
        Of the ops that run where one or more layers of a group are trained.
    base_us, base_uj
        Of those that always run: the forward pass, mostly.
    """

    time_us: Mapping[Layers, float]
    energy_uj: Mapping[Layers, float]
    base_us: float
    base_uj: float


def op_amounts(
    training: TrainingStep, machine: Machine, optimize: Optimize, layer_of: Mapping[str, int]
) -> OpAmounts:
    """What the ops of a step that trains all layers take, each run once where it costs least.

    Parameters
    ----------
    layer_of
        The layer of each state tensor that belongs to one.
    """
    lowered = lower_for_target(
        training.mod, machine.platform, machine.code, optimize, TRAIN_STEP, ConstraintPatterns()
    )
    graph = lowered.extraction.graph
    costs, needed = static_op_costs(lowered, machine), needed_for(graph, layer_of)
    time_us: dict[Layers | None, float] = {None: 0.0}
    energy_uj: dict[Layers | None, float] = {None: 0.0}
    for op in graph.ops:
        of_devices, group = costs[op.name].values(), needed[op.name]
        time_us[group] = time_us.get(group, 0.0) + min(cost.compute_us for cost in of_devices)
        energy_uj[group] = energy_uj.get(group, 0.0) + min(cost.energy_uj for cost in of_devices)
    base_us, base_uj = time_us.pop(None), energy_uj.pop(None)
    return OpAmounts(_named(time_us), _named(energy_uj), base_us, base_uj)


def _named(amounts: Mapping[Layers | None, float]) -> dict[Layers, float]:
    return {group: amount for group, amount in amounts.items() if group is not None}


def needed_for(graph: OpGraph, layer_of: Mapping[str, int]) -> dict[str, Layers | None]:
    """For which layers each op runs: those whose update follows from it; None where it always runs.

    An op always runs from which a result follows, or an update of state that belongs to no layer.
    """
    readers: dict[str, list[str]] = {}
    for op in graph.ops:
        for name in op.inputs:
            readers.setdefault(graph.base[name], []).append(op.name)
    results = {graph.base[name] for name in graph.outputs}
    needed: dict[str, Layers | None] = {}
    for op in reversed(graph.ops):
        updated = [layer_of.get(state) for _, state in op.updates]
        made = {graph.base[name] for name in op.outputs}
        following = [needed[reader] for name in made for reader in readers.get(name, ())]
        if None in updated or None in following or made & results:
            needed[op.name] = None
        else:
            needed[op.name] = frozenset(
                {*(one for one in updated if one is not None)}.union(
                    *(group for group in following if group is not None)
                )
            )
    return needed


def least_forward_bytes(model: ForwardModel, machine: Machine, optimize: Optimize) -> int:
    """Bytes beside the state that the forward pass of one sample takes at least, in the only region.

    It is what its largest op reads, writes and needs as workspace; no slice of a batch takes less. It is 0
    for a model that cannot be written for one sample.
    """
    try:
        sample = with_batch_size(model, 1)
    except UnsupportedModelError:
        return 0
    mod, _ = short_evaluation(sample, None, ())
    lowered = lower_for_target(mod, machine.platform, machine.code, optimize, "main")
    fixed = outside_views(lowered, {*machine.outside, Role.CONSTANT})
    ample = dict.fromkeys(machine.platform.index, UNLIMITED_BYTES)
    problem = region_problem(
        lowered, machine, fixed, static_op_costs(lowered, machine)
    ).with_budgets(ample)
    return max(working_sets(problem).least_bytes().values())
