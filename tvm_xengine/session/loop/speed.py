"""How fast this processor is while a step runs, by when its kernels were measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.kernels.targets import is_gpu
from tvm_xengine.scheduling.schedule import Compute
from tvm_xengine.session.stages.plan import StepPlan


def slowdown_ratio(plan: StepPlan, sentinels_us: Sequence[float]) -> float | None:
    """How much longer the processor takes for the same work than when kernels of a plan were measured.

    Cores have other threads, neighbours on their host and limits of power, which no clock of a thread
    sees.

    Parameters
    ----------
    sentinels_us
        Times of the reference workload (`Sentinel`) between the steps.

    Returns
    -------
    float or None
        A ratio of medians; None where no kernel of the plan was measured on this machine.
    """
    lowered, measurements = plan.planned.lowered, plan.lowered.stores.measurements
    runs = [run for run in plan.plan.schedule.steps if isinstance(run, Compute)]
    kernels = {lowered.kernel(run.op, run.device, run.variant) for run in runs}
    found = [
        measurements.find(kernel.key, device_fingerprint(kernel.target))
        for kernel in kernels
        if not is_gpu(kernel.target)
    ]
    # Only calm rounds count in a measurement (`calm_rounds`).
    calm_us = [min(one.sentinels_us) for one in found if one and any(one.sentinels_us)]
    if not calm_us or not sentinels_us:
        return None
    return statistics.median(sentinels_us) / statistics.median(calm_us)
