"""The scheduling problem of a lowered step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm_xengine.compiler.costing.costs import KernelCosts
from tvm_xengine.compiler.costing.energy import kernel_energy_uj
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.sizes import round_up


def make_problem(step: LoweredStep, costs: KernelCosts) -> Problem:
    """The scheduling problem of a step on the platform it was lowered for.

    The platform's links must be measured (``with_measured_links``) before the step is lowered.
    ``Problem.with_budgets`` changes the budgets.
    """
    return Problem(
        step.extraction.graph,
        step.platform,
        op_costs(step, costs),
        home=step.home,
        constraints=step.constraints,
    )


def op_costs(
    step: LoweredStep, costs: KernelCosts | Mapping[str, KernelCosts]
) -> dict[str, dict[str, OpCost]]:
    """For each op, its cost on each computing device: time, workspace and energy.

    Parameters
    ----------
    costs
        One source for all devices, or one for each device by name, for devices that share kernels
        but differ in speed.
    """
    platform = step.platform
    if isinstance(costs, Mapping):
        by_device = {
            name: source([k for (_, on), k in step.kernels.items() if on == name])
            for name, source in costs.items()
        }
    else:
        by_device = dict.fromkeys(platform.index, costs(list(step.kernels.values())))
    made: dict[str, dict[str, OpCost]] = {}
    for op in step.extraction.graph.ops:
        made[op.name] = {}
        for device in platform.computing:
            kernel = step.kernel(op.name, device.name)
            cost = by_device[device.name][kernel.symbol]
            made[op.name][device.name] = replace(
                cost,
                workspace_bytes=round_up(kernel.workspace_bytes, platform.alignment_bytes),
                energy_uj=cost.energy_uj or kernel_energy_uj(device, kernel, cost.compute_us),
            )
    return made
