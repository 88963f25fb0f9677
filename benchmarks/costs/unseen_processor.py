"""``python -m benchmarks.costs.unseen_processor``: regret of plans on a processor that no label is of.

The models learn from the labels that ship of all other processors. Each kind of costs plans ten networks
under three budgets on two platforms, judged by a round of measurements that no plan has seen
(`schedule_regret` says how). `random` measures as many kernels as the active loop may, drawn at random, and
corrects the others by them, as the loop does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.costs.calibrated import model_without
from benchmarks.costs.schedule_regret import ACTIVE, MEASURED, Case, regrets_of
from benchmarks.record import record
from tvm_xengine.compiler.costing.costs import measured_costs
from tvm_xengine.compiler.costing.links import with_measured_links
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.cost_models.active import ActiveLimits, Costs
from tvm_xengine.cost_models.calibration.calibrate import calibrate, time_sweep
from tvm_xengine.cost_models.calibration.calibration import write_calibration
from tvm_xengine.cost_models.corpus.designs.catalogue import DESIGNS, build_design
from tvm_xengine.cost_models.measure.measurements import (
    MeasurementCache,
    default_cache_path,
    typical_us,
)
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint, this_machine
from tvm_xengine.cost_models.models.model_file import ModelFile, write_model
from tvm_xengine.cost_models.prediction.predict import predict_costs, predict_to_correct
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.build import build_training_step

NETWORKS = (
    *("lenet", "resnet8", "ds_cnn", "gpt_nano", "wavenet"),
    *("pointnet", "poolformer", "mnasnet", "squeezenet", "gru"),
)
"""Of the zoo and of the designs; the prior has seen no GRU, WaveNet or PoolFormer."""

RATIOS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Of what keep-all needs; the three smallest count with which every kind of costs finds a plan."""

BUDGETS = 3
OPTIONS = PlanOptions(limits=Limits(2.0, 0.002))
MOST_MEASURED_RATIO = 0.25
SWEEP_S = 180.0

_CPU = Device("cpu", "llvm -mcpu=native", kernels=("auto",))
PLATFORMS = {
    "one": Platform(devices=(_CPU,), links=()),
    "two": Platform(
        devices=(_CPU, Device("cpu_generic", "llvm -mcpu=x86-64")),
        links=(Link("cpu", "cpu_generic"), Link("cpu_generic", "cpu")),
    ),
}
"""One thread each, because the CPU time of a thread is little disturbed by other work."""


@dataclass(frozen=True)
class Models:
    """A model of other processors, and the same calibrated by the sweep here."""

    elsewhere: ModelFile
    calibrated: ModelFile


def models_of_others(folder: Path) -> Models:
    """What the labels of all processors but this one teach.

    Parameters
    ----------
    folder
        Of the sweep's times, which are kept, and of both as files.
    """
    model = model_without(this_machine().llvm_cpu)
    target = resolve_target("llvm -mcpu=native")
    sweep, times = time_sweep(target, folder / "sweep.jsonl", SWEEP_S)
    known = calibrate(model.predictor, model.share_on(str(target)), sweep, times)
    write_model(model, folder / "others.costmodel")  # for tvm-xengine costs judge
    write_calibration(known, folder / "calibration.json")
    return Models(model, replace(model, calibration=known))


def cases(
    network: str, platform: Platform, models: Models, cache: MeasurementCache
) -> Iterator[tuple[float, Case]]:
    """The step of a network under each budget, as a ratio of what keep-all needs."""
    step, kernels = measured_step(network, platform, cache)
    first, again, last = (costs_of_round(kernels, cache, number) for number in (0, 1, -1))
    calibrated, correction = predict_to_correct(list(kernels.values()), models.calibrated)
    assert correction is not None
    kinds: dict[str, Costs] = {
        MEASURED: first,
        "again": again,
        "calibrated": calibrated,
        "elsewhere": predict_costs(list(kernels.values()), models.elsewhere),
        "roofline": predict_costs(list(kernels.values()), None),
        "random": correction.corrected({**calibrated, **_drawn(first)}),
    }
    true = make_problem(step, lambda _: last)
    for ratio in RATIOS:
        budgets = budgets_for_ratio(true, ratio)
        yield (
            ratio,
            Case(
                judge=true.with_budgets(budgets),
                problem_with=lambda costs, budgets=budgets: make_problem(
                    step, lambda _: costs
                ).with_budgets(budgets),
                kinds=kinds,
                active_from="calibrated",
                kernels=kernels,
                kernel_of=lambda op, device: step.kernel(op, device).symbol,
                correct=correction.corrected,
            ),
        )


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


def _drawn(measured: Costs) -> Costs:
    """As many kernels as the active loop may measure, at random."""
    rng = np.random.default_rng(0)
    most = max(1, int(MOST_MEASURED_RATIO * len(measured)))
    return {symbol: measured[symbol] for symbol in rng.permutation([*measured])[:most].tolist()}


def main(networks: Sequence[str]) -> None:
    """Record a row for each network, platform and budget."""
    folder = default_cache_path().parent / "unseen_processor"
    cache = MeasurementCache(default_cache_path())
    models = models_of_others(folder)
    limits = ActiveLimits(kernels_ratio=MOST_MEASURED_RATIO)
    for network in networks:
        for name, platform in PLATFORMS.items():
            rows = 0
            for ratio, case in cases(network, platform, models, cache):
                try:
                    regrets = regrets_of(case, OPTIONS, limits)
                except NoScheduleError:
                    continue
                percent = {kind: f"{100 * r:.1f}" for kind, r in regrets.together_ratio.items()}
                alone = f"{100 * regrets.alone_ratio[ACTIVE]:.1f}"
                measured = f"{100 * regrets.measured_ratio:.0f}"
                row = {"network": network, "devices": name, "ratio": ratio, **percent}
                record("regret", {**row, "active alone": alone, "measured %": measured})
                rows += 1
                if rows == BUDGETS:
                    break


if __name__ == "__main__":
    main(sys.argv[1:] or NETWORKS)
