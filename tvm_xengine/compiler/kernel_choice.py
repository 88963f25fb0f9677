"""The choice between kernels of several sources by their costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tvm_xengine.compiler.costing.costs import KernelCosts
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import AUTO
from tvm_xengine.kernels.store.tuned import TunedSchedules, prepare_tuned

KernelKey = tuple[str, str]
"""Name of the PrimFunc, name of the device."""


def with_fastest_kernels(
    step: LoweredStep, costs: KernelCosts, tuned: TunedSchedules | None = None
) -> LoweredStep:
    """The step with the faster kernel on each device that leaves the choice (``auto``).

    A device that lists its sources keeps the first one that has the kernel.

    Parameters
    ----------
    costs
        Of library and generated kernels; they must be comparable, so measured.
    tuned
        Schedules for generated kernels.
    """
    generated = generated_kernels(step, step.kernels, tuned)
    compared = [kernel for key in generated for kernel in (step.kernels[key], generated[key])]
    by_symbol = costs(compared)

    def time_us(kernel: DeviceKernel) -> float:
        return by_symbol[kernel.symbol].compute_us

    faster = {
        key: min((step.kernels[key], kernel), key=time_us) for key, kernel in generated.items()
    }
    return replace(step, kernels={**step.kernels, **faster})


def generated_kernels(
    step: LoweredStep,
    offered: Mapping[KernelKey, DeviceKernel],
    tuned: TunedSchedules | None,
    only: Collection[KernelKey] | None = None,
) -> Mapping[KernelKey, DeviceKernel]:
    """Generated kernels in place of those of libraries, on devices that leave the choice.

    Parameters
    ----------
    offered
        Kernels of libraries where there are any.
    only
        Leaves out all others.
    """
    return {
        key: prepare_tuned(step.mod[key[0]], kernel.target, key[0], tuned)
        for key, kernel in offered.items()
        if kernel.library is not None
        and AUTO in step.platform.device(key[1]).kernels
        and (only is None or key in only)
    }
