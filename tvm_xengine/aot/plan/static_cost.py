"""What a kernel costs where nothing can be measured: its operations, counted."""

from __future__ import annotations

from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.operation_count import count_operations


def static_us(kernel: DeviceKernel, target: EmbeddedTarget, bandwidth_gb_s: float | None) -> float:
    """Run time on `target` with all operands in a region of that bandwidth, in microseconds.

    Cycles of the operations, and for a region that is slower than the processor the time of its
    accesses on top, because a small core waits for them (Williams, Waterman and Patterson's
    roofline, with a sum instead of the maximum).
    """
    count = count_operations(kernel)
    float_cycles, other_cycles = target.cycles
    cycles = float_cycles * count.float_ops + other_cycles * (count.accesses + 2 * count.loop_steps)
    access_us = 0.0
    if bandwidth_gb_s is not None:
        access_us = 4 * count.accesses / (1000.0 * bandwidth_gb_s)
    return max(cycles / target.clock_mhz + access_us, 1e-3)
