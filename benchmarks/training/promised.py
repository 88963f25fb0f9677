"""``python -m benchmarks.training.promised [NETWORK...]``: the time of steps beside sums of their kernels'.

Each kernel is timed in each state of the caches. Nothing else may run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np

import tvm_xengine as xe
from benchmarks.record import record
from benchmarks.training.side_by_side import batch_of
from tvm_xengine.compiler.costing.costs import Costs, measured_costs, predicted_costs
from tvm_xengine.compiler.costing.step_caches import step_caches
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.cost_models.measure.caches import COLD, MEMORY
from tvm_xengine.cost_models.measure.measurements import MeasurementCache, default_cache_path
from tvm_xengine.planning.keep_all import kept_bytes
from tvm_xengine.scheduling.schedule import Compute

NETWORKS: Mapping[str, int] = {
    "lenet": 16,
    "resnet8": 16,
    "ds_cnn": 16,
    "gpt_nano": 32,
    "mobilenetv2": 4,
    "resnet18": 16,
    "vgg16": 4,
    "resnet50": 2,
}
"""Batch sizes with which a step takes at most about a second."""
STEPS, WARM_STEPS = 40, 5
_TARGET = "llvm -mcpu=native"


def main(networks: Sequence[str]) -> None:
    """Record two rows for each network: one thread, and two."""
    for network in networks or NETWORKS:
        for threads in (1, 2):
            record("promised", _row(network, threads))


def _row(network: str, threads: int) -> Mapping[str, str | int | float | None]:
    training = xe.training_step(network, batch_size=NETWORKS[network])
    device = xe.Device("cpu", f"{_TARGET} -num-cores={threads}")
    problem = xe.make_problem(xe.lower(training, xe.Platform((device,))), costs="measured")
    step = xe.build(problem.lowered, xe.plan(problem, solver="keep-all"))
    lowered, plan = step.plan.planned.lowered, step.plan.plan
    calls = [
        lowered.kernel(s.op, s.device, s.variant)
        for s in plan.schedule.steps
        if isinstance(s, Compute)
    ]
    cache = MeasurementCache(default_cache_path())
    costs: dict[str, Costs] = {
        state: measured_costs(cache, caches=state)(calls) for state in (COLD, MEMORY)
    }
    costs["model"], _ = predicted_costs(calls, Reporter(), step_caches(lowered))
    step_us = _step_us(step)
    by_step = {
        name: round(sum(known[kernel.symbol].compute_us for kernel in calls) / step_us, 2)
        for name, known in costs.items()
    }
    return {
        "network": network,
        "batch": NETWORKS[network],
        "threads": threads,
        "kept_mib": round(kept_bytes(plan.problem.graph) / 2**20, 1),
        "step_ms": round(step_us / 1e3, 2),
        "cold": by_step[COLD],
        "memory": by_step[MEMORY],
        "taken": step_caches(lowered),
        "predicted_by_measured": round(plan.step_us() / step_us, 2),
        "model": by_step["model"],
    }


def _step_us(step: xe.Step) -> float:
    """The median time of a step."""
    step.executable.write(batch_of(step, np.random.default_rng(0)))
    times_us = []
    for _ in range(STEPS):
        begun_s = time.perf_counter()
        step.executable.run()
        times_us.append((time.perf_counter() - begun_s) * 1e6)
    return statistics.median(times_us[WARM_STEPS:])


if __name__ == "__main__":
    main(sys.argv[1:])
