"""Which source's kernel a device takes where several have one."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.compile.costs import KernelCosts
from tvm_xengine.compile.lower import LoweredStep
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import AUTO
from tvm_xengine.kernels.store.tuned import TunedSchedules, prepare_tuned


def with_fastest_kernels(
    step: LoweredStep, costs: KernelCosts, tuned: TunedSchedules | None = None
) -> LoweredStep:
    """The step with the kernel that costs less wherever a device may take what is best.

    A device that names its sources one by one keeps the first that has the kernel.

    Parameters
    ----------
    costs
        Of kernels from the library and generated ones, so they must be comparable: measured.
    tuned
        Schedules for the generated ones.
    """
    generated = {
        key: prepare_tuned(step.mod[key[0]], kernel.target, key[0], tuned)
        for key, kernel in step.kernels.items()
        if kernel.library is not None and AUTO in step.platform.device(key[1]).kernels
    }
    compared = [kernel for key in generated for kernel in (step.kernels[key], generated[key])]
    by_symbol = costs(compared)

    def time_us(kernel: DeviceKernel) -> float:
        return by_symbol[kernel.symbol].compute_us

    faster = {
        key: min((step.kernels[key], kernel), key=time_us) for key, kernel in generated.items()
    }
    return replace(step, kernels={**step.kernels, **faster})
