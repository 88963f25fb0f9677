"""Costs of kernels from their counted operations, for targets without measurements."""

from __future__ import annotations

from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.compiler.costing.costs import KernelCosts
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.operation_count import count_operations
from tvm_xengine.scheduling.problem import CostSource, OpCost

ACCESS_BYTES = 4
"""Of a float32, which is what nearly every access of a kernel reads or writes."""

_LEAST_US = 1e-3
"""Costs must be positive, also of kernels whose operations cannot be seen."""


def static_costs(target: EmbeddedTarget, bandwidth_gb_s: float | None = None) -> KernelCosts:
    """Costs on `target` with all operands in memory of that bandwidth.

    Parameters
    ----------
    bandwidth_gb_s
        Of a region that is slower than the processor; None where accesses cost nothing beyond the
        instruction.
    """
    return lambda kernels: {
        kernel.symbol: OpCost(static_us(kernel, target, bandwidth_gb_s), source=CostSource.ROOFLINE)
        for kernel in {kernel.symbol: kernel for kernel in kernels}.values()
    }


def static_us(kernel: DeviceKernel, target: EmbeddedTarget, bandwidth_gb_s: float | None) -> float:
    """Cycles of the operations, and for a slow region the time of its accesses on top.

    A small core waits for its accesses (Williams, Waterman and Patterson's roofline, with a sum
    instead of the maximum).
    """
    count = count_operations(kernel)
    float_cycles, other_cycles = target.cycles
    cycles = float_cycles * count.float_ops + other_cycles * (count.accesses + 2 * count.loop_steps)
    access_us = 0.0
    if bandwidth_gb_s is not None:
        access_us = ACCESS_BYTES * count.accesses / (1000.0 * bandwidth_gb_s)
    return max(cycles / target.clock_mhz + access_us, _LEAST_US)
