"""The scheduling problem of a lowered step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm_xengine.compiler.costing.costs import Costs, KernelCosts
from tvm_xengine.compiler.costing.energy import kernel_energy_uj
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.platform import Device, Platform
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
        by_device = {name: source(step.kernels_on(name)) for name, source in costs.items()}
    else:
        by_device = dict.fromkeys(platform.index, costs(list(step.distinct)))
    made: dict[str, dict[str, OpCost]] = {}
    for op in step.extraction.graph.ops:
        made[op.name] = {}
        for device in platform.computing:
            costs_here = by_device[device.name]
            key = step.extraction.kernels[op.name], device.name
            made[op.name][device.name] = replace(
                _cost(platform, device, step.kernels[key], costs_here),
                variants={
                    name: _cost(platform, device, kernel, costs_here)
                    for name, kernel in step.variants.get(key, {}).items()
                },
            )
    return made


def _cost(platform: Platform, device: Device, kernel: DeviceKernel, costs: Costs) -> OpCost:
    cost = costs[kernel.symbol]
    return replace(
        cost,
        workspace_bytes=round_up(kernel.workspace_bytes, platform.alignment_bytes),
        energy_uj=cost.energy_uj or kernel_energy_uj(device, kernel, cost.compute_us),
    )
