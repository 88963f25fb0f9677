"""``python -m benchmarks.costs.unseen_processor``: regret of plans on a processor that no label is of.

The models learn from the labels that ship of all other processors. Each kind of costs plans ten networks
under three budgets on two platforms, judged by a round of measurements that no plan has seen
(`schedule_regret` says how). `random` measures as many kernels as the active loop may, drawn at random, and
corrects the others by them, as the loop does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.costs.cases import cases_within, costs_of_round, measured_step
from benchmarks.costs.schedule_regret import ACTIVE, MEASURED, Case, regrets_of
from benchmarks.record import record
from tvm_xengine.cost_models.active import ActiveLimits, Costs
from tvm_xengine.cost_models.calibration.calibrate import calibrate, time_sweep
from tvm_xengine.cost_models.calibration.calibration import write_calibration
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.labels.held_out import open_part
from tvm_xengine.cost_models.labels.shipped import make_shipped, shipped_folder
from tvm_xengine.cost_models.measure.measurements import (
    MeasurementCache,
    default_cache_path,
)
from tvm_xengine.cost_models.measure.this_machine import this_machine
from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.card import library_vectors_bytes
from tvm_xengine.cost_models.models.model_file import (
    PRIOR_MODEL,
    ModelFile,
    read_model,
    write_model,
)
from tvm_xengine.cost_models.prediction.predict import (
    architecture_of,
    predict_costs,
    predict_to_correct,
)
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.solvers.result import Limits

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
    make_shipped()
    data = open_part(DatasetFolder(shipped_folder()).load())
    here = this_machine().llvm_cpu
    others = data.take([k for k, name in enumerate(data.processors) if name != here])
    predictor = AdaptedTrees().fit(others)
    architectures = tuple(sorted({architecture_of(target) for target in set(others.targets)}))
    card = {
        "targets": dict(Counter(others.targets)),
        "library_vectors_bytes": library_vectors_bytes(others.table),
        "prior_targets": read_model(PRIOR_MODEL).card.get("targets", {}),
    }
    model = ModelFile(predictor, architectures, tuple(sorted(set(others.sources))), card)
    target = resolve_target("llvm -mcpu=native")
    sweep, times = time_sweep(target, folder / "sweep.jsonl", SWEEP_S)
    known = calibrate(predictor, model.share_on(str(target)), sweep, times)
    write_model(model, folder / "others.costmodel")  # for tvm-xengine costs judge
    write_calibration(known, folder / "calibration.json")
    return Models(model, replace(model, calibration=known))


def cases(
    network: str, platform: Platform, models: Models, cache: MeasurementCache
) -> Iterator[tuple[float, Case]]:
    """The step of a network under each budget."""
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
    yield from cases_within(RATIOS, step, kernels, last, kinds, "calibrated", correction.corrected)


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
