"""``python -m benchmarks.costs.from_memory``: what kernels cost more whose tensors come from memory.

Times the kernels of five steps in both states of the caches, what is known already aside; prints the fit
(`cold_calls.FROM_MEMORY`), and for each step the sums of predictions by measurements with the fit to the
others. Nothing else may run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import tvm_xengine as xe
from tvm_xengine.compiler.costing.costs import Costs, measured_costs, predicted_costs
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.table import KernelFeatures, table_of
from tvm_xengine.cost_models.measure.caches import COLD, MEMORY
from tvm_xengine.cost_models.measure.measurements import MeasurementCache, default_cache_path
from tvm_xengine.cost_models.models.cold_calls import ColdCalls, fit_cold_calls

NETWORKS: Mapping[str, int] = {
    "lenet": 16,
    "resnet8": 16,
    "ds_cnn": 16,
    "gpt_nano": 32,
    "mobilenetv2": 4,
}
"""Batch sizes."""


@dataclass(frozen=True)
class Times:
    """Of the kernels of a step in both states, and as predicted for the first, (kernels,) each."""

    features: Sequence[KernelFeatures]
    cold_us: NDArray[np.float64]
    memory_us: NDArray[np.float64]
    predicted_us: NDArray[np.float64]


def main() -> None:
    """Print the fit to all, and how well those to all but one predict it."""
    times = {network: _times(network) for network in NETWORKS}
    sys.stdout.write(f"{_fit(list(times.values()))}\n")
    for network, one in times.items():
        found = _fit([other for name, other in times.items() if name != network])
        sums_us = [float(us.sum()) for us in (one.memory_us, one.predicted_us)]
        more_us = float(found.extra_us(table_of(one.features, feature_set())).sum())
        ratios = [f"{us / sums_us[0]:.2f}" for us in (sums_us[1], sums_us[1] + more_us)]
        sys.stdout.write(f"{network}: {len(one.cold_us)} kernels, {' and '.join(ratios)}\n")


def _times(network: str) -> Times:
    device = xe.Device("cpu", "llvm -mcpu=native -num-cores=1")
    training = xe.training_step(network, batch_size=NETWORKS[network])
    kernels = xe.lower(training, xe.Platform((device,))).step.distinct
    cache = MeasurementCache(default_cache_path())
    cold, memory = (measured_costs(cache, caches=state)(kernels) for state in (COLD, MEMORY))

    def of(costs: Costs) -> NDArray[np.float64]:
        return np.array([costs[kernel.symbol].compute_us for kernel in kernels])

    features = [kernel_features(kernel) for kernel in kernels]
    return Times(features, of(cold), of(memory), of(predicted_costs(kernels, Reporter())[0]))


def _fit(times: Sequence[Times]) -> ColdCalls:
    table = table_of([one for each in times for one in each.features], feature_set())
    cold, memory = (
        np.concatenate([getattr(each, name) for each in times]) for name in ("cold_us", "memory_us")
    )
    return fit_cold_calls(cold, memory, table)


if __name__ == "__main__":
    main()
