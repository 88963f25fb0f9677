"""Measures kernels of which predictions do not tell whether the library's or the generated one is faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tvm_xengine.compiler.costing.costed import CostedStep, known_costs
from tvm_xengine.compiler.costing.costs import Costs, measured_costs
from tvm_xengine.compiler.costing.step_caches import step_caches
from tvm_xengine.compiler.kernel_choice import (
    KernelKey,
    compared_kernels,
    heavy_generated_kernels,
    with_faster_of,
)
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.prediction.abstain import is_unknown
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.problem import OpCost

_UNDECIDED_RATIO = 0.02
"""As much of a step's time may rest on choices by prediction, as of a plan's on predictions elsewhere."""
_ROUNDS = 3
"""What is measured may leave another choice open; the second round of five networks was the last."""

_Pairs = Mapping[KernelKey, tuple[DeviceKernel, DeviceKernel]]


def with_compared_kernels(costed: CostedStep, stores: Stores, reporter: Reporter) -> CostedStep:
    """The step with the faster kernel of each pair; pairs that may matter are measured.

    These are 16 of the 192 kernels in pairs of MobileNetV2, and 8 of the 54 of ResNet-8.
    """
    offered = costed.offered
    known = known_costs(offered, costed.choice, stores)
    generated = heavy_generated_kernels(offered, known, stores.tuned)
    pairs = {key: (offered.kernels[key], kernel) for key, kernel in generated.items()}
    costs = dict(known(compared_kernels(offered, generated)))
    measure = measured_costs(
        stores.measurements, store=stores.kernels, reporter=reporter, caches=step_caches(offered)
    )
    now: dict[str, OpCost] = {}
    for _ in range(_ROUNDS):
        wanted = _undecided(pairs, costs, costed)
        if not wanted:
            break
        now |= measure(wanted)
        costs |= now
    if not now:
        return costed

    fastest = with_faster_of(offered, generated, costs)
    compared = costed.with_kernels(fastest, stores, Reporter())
    both = {symbol: now.get(symbol, cost) for symbol, cost in compared.costs.items()}
    return replace(compared, costs=both, problem=compared.with_costs(both))


def _undecided(pairs: _Pairs, costs: Costs, costed: CostedStep) -> list[DeviceKernel]:
    """The kernels to measure: those of the choices by which most may be lost, until little is left."""
    step, problem = costed.offered, costed.problem
    ops = Counter(step.extraction.kernels.values())
    total_us = sum(
        min(cost.compute_us for cost in there.values()) for there in problem.costs.values()
    )
    best_us: dict[str, float] = {}
    for (name, _), pair in pairs.items():
        fastest_us = min(costs[kernel.symbol].compute_us for kernel in pair)
        best_us[name] = min(fastest_us, best_us.get(name, fastest_us))
    lost_us = {
        key: ops[key[0]] * _may_be_lost_us(*(costs[kernel.symbol] for kernel in pair))
        for key, pair in pairs.items()
        # A device that is slower for an op either way does not wait for this choice.
        if min(costs[kernel.symbol].lo_us for kernel in pair) <= best_us[key[0]]
    }
    left_us = sum(lost_us.values())
    wanted: dict[str, DeviceKernel] = {}
    for key in sorted(lost_us, key=lambda key: -lost_us[key]):
        if left_us <= _UNDECIDED_RATIO * total_us:
            break
        left_us -= lost_us[key]
        wanted |= {k.symbol: k for k in pairs[key] if not costs[k.symbol].source.is_measured}
    return list(wanted.values())


def _may_be_lost_us(one: OpCost, other: OpCost) -> float:
    """How much longer the kernel that seems to be faster may take than the other one."""
    faster, slower = sorted((one, other), key=lambda cost: cost.compute_us)
    if is_unknown(one) or is_unknown(other):
        return 0.0
    least_us = slower.compute_us if slower.source.is_measured else slower.lo_us
    most_us = faster.compute_us if faster.source.is_measured else faster.hi_us
    return max(0.0, faster.compute_us - least_us, most_us - slower.compute_us)
