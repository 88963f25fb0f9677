"""What tables of regret have in common: a measured step, its costs by round, and a case for each budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.costs.schedule_regret import Case
from tvm_xengine.compiler.costing.costs import measured_costs
from tvm_xengine.compiler.costing.links import with_measured_links
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.cost_models.active import Costs
from tvm_xengine.cost_models.corpus.designs.catalogue import DESIGNS, build_design
from tvm_xengine.cost_models.measure.measurements import MeasurementCache, typical_us
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost
from tvm_xengine.training.build import build_training_step


def measured_step(
    network: str, platform: Platform, cache: MeasurementCache
) -> tuple[LoweredStep, dict[str, DeviceKernel]]:
    """The step of a network, and its kernels by symbol, which `cache` has measurements of."""
    forward = (
        build_design(network, batch_size=8, num_classes=10, seed=0)
        if network in DESIGNS
        else load_model(network, batch_size=8)
    )
    step = lower_step(build_training_step(forward).mod, with_measured_links(platform, cache))
    kernels = {kernel.symbol: kernel for kernel in step.kernels.values()}
    measured_costs(cache)(list(kernels.values()))
    return step, kernels


def costs_of_round(
    kernels: Mapping[str, DeviceKernel], cache: MeasurementCache, number: int
) -> dict[str, OpCost]:
    """Costs by one round of the measurements."""
    found = {s: cache.find(k.key, device_fingerprint(k.target)) for s, k in kernels.items()}
    return {
        symbol: OpCost(typical_us(m.rounds_us[number], m.clock), source=CostSource.MEASURED)
        for symbol, m in found.items()
        if m is not None
    }


def cases_within(
    ratios: Sequence[float],
    step: LoweredStep,
    kernels: Mapping[str, DeviceKernel],
    judge: Costs,
    kinds: Mapping[str, Costs],
    active_from: str,
    correct: Callable[[Costs], Costs],
) -> Iterator[tuple[float, Case]]:
    """A case for each budget, as a ratio of what keep-all needs; the rest is as in `Case`."""
    true = make_problem(step, lambda _: judge)
    for ratio in ratios:
        budgets = budgets_for_ratio(true, ratio)
        yield (
            ratio,
            Case(
                judge=true.with_budgets(budgets),
                problem_with=lambda costs, budgets=budgets: make_problem(
                    step, lambda _: costs
                ).with_budgets(budgets),
                kinds=kinds,
                active_from=active_from,
                kernels=kernels,
                kernel_of=lambda op, device: step.kernel(op, device).symbol,
                correct=correct,
            ),
        )
