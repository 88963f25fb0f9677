"""How well do cost models predict kernels, and does it matter for the schedule?

Reads the dataset folder that ``XENGINE_DATASET`` names (made by ``tvm-xengine costs collect``) and
prints its tables with the noise floor beside them. Nothing is asserted: the numbers go into
benchmarks/README.md.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table
from tvm import relax

from tvm_xengine.compiler import lower_step, make_problem, measured_costs, with_measured_links
from tvm_xengine.cost_models.active import ActiveLimits, Planning, plan_actively
from tvm_xengine.cost_models.baselines import LogLinear, NearestNeighbours, Roofline
from tvm_xengine.cost_models.boosted_trees import BoostedTrees, held_out
from tvm_xengine.cost_models.dataset import RANDOM, Dataset, DatasetFolder
from tvm_xengine.cost_models.evaluate import SPLITS, evaluate_by_source
from tvm_xengine.cost_models.feature_table import table_of
from tvm_xengine.cost_models.features import kernel_features
from tvm_xengine.cost_models.fingerprint import device_fingerprint
from tvm_xengine.cost_models.measurements import (
    MeasurementCache,
    default_cache_path,
    typical_us,
)
from tvm_xengine.cost_models.metrics import metrics_of, noise_floor
from tvm_xengine.cost_models.model import Predictor
from tvm_xengine.cost_models.predict import default_model, predict_costs
from tvm_xengine.cost_models.transfer import evaluate_transfer
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.planner import PlanOptions, budgets_for_ratio, plan_schedule
from tvm_xengine.platform import Device, Link, Platform
from tvm_xengine.problem import CostSource, OpCost
from tvm_xengine.report.costs import NOISE, print_metrics
from tvm_xengine.simulate import simulate
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.build import build_training_step

pytestmark = pytest.mark.slow

NETWORKS = ("lenet", "resnet8", "ds_cnn", "gpt_nano", "unet")
RATIOS = (0.7, 0.5)
LIMITS = PlanOptions(limits=Limits(10.0, 0.002))

PLATFORM = Platform(
    devices=(
        Device("cpu", "llvm -mcpu=native", kernels=("auto",)),
        Device("cpu_generic", "llvm -mcpu=x86-64"),
    ),
    links=(Link("cpu", "cpu_generic"), Link("cpu_generic", "cpu")),
)
"""One thread each, because the CPU time of a thread is little disturbed by other work."""

MOST_PREDICTION_S = 2.0

RESNET = importlib.import_module("tvm_xengine.frontends.zoo.resnet50")
"""The module, which the function in it hides behind its name."""


@pytest.fixture(scope="module")
def data() -> Dataset:
    folder = os.environ.get("XENGINE_DATASET")
    if not folder:
        pytest.skip("XENGINE_DATASET names no dataset folder")
    return DatasetFolder(Path(folder)).load()


@pytest.fixture(scope="module")
def console() -> Console:
    return Console(width=150)


@pytest.mark.parametrize("split", SPLITS)
def test_prediction_errors(data: Dataset, console: Console, split: str) -> None:
    rows = {NOISE: noise_floor(data.rounds_us, data.families)}
    for model in (BoostedTrees(), Roofline(), NearestNeighbours(), LogLinear()):
        rows |= evaluate_by_source(model, data, split)
    print_metrics(console, f"{len(data)} kernels, split by {split}", rows)


def test_totals_of_families(data: Dataset, console: Console) -> None:
    """Each family held out; the last column is the error of the time of all its kernels together."""
    table = Table(title="families that are held out, percent")
    for column in ("family", "kernels", "median", "> 20 us within 25", "total"):
        table.add_column(column, justify="right")
    rows, predicted_us, _ = held_out(BoostedTrees(), data, most=None)
    tested = data.take(rows)
    for family in sorted(set(tested.all_families()) - {RANDOM}):
        mine = np.array([family in names for names in tested.families])
        m = metrics_of(tested.time_us[mine], predicted_us[mine], [(family,)] * int(mine.sum()))
        total_ratio = predicted_us[mine].sum() / tested.time_us[mine].sum() - 1
        errors = (m.median_error_ratio, m.long_within_25_ratio, total_ratio)
        table.add_row(family, f"{m.kernels}", *(f"{100 * value:.1f}" for value in errors))
    console.print(table)


def test_transfer_to_the_other_device(data: Dataset, console: Console) -> None:
    for device in sorted(set(data.devices)):
        mine = np.array([name == device for name in data.devices])
        source, target = data.take(np.flatnonzero(~mine)), data.take(np.flatnonzero(mine))
        if len(source) and len(target) >= 200:
            rows = evaluate_transfer(BoostedTrees(), source, target, (20, 50, 100, 250))
            print_metrics(console, f"to {target.targets[0]}", rows)


def test_features_take_under_ten_milliseconds(console: Console) -> None:
    step = lower_step(build_training_step(load_model("resnet18", batch_size=8)).mod, PLATFORM)
    times_ms = []
    for kernel in step.kernels.values():
        start_s = time.process_time()
        kernel_features(kernel)
        times_ms.append(1e3 * (time.process_time() - start_s))
    console.print(
        f"features: median {np.median(times_ms):.1f} ms, 90 % {np.quantile(times_ms, 0.9):.1f}"
    )
    assert np.median(times_ms) < 10


@pytest.mark.parametrize("network", ["deep_resnet", "no_two_alike"])
def test_a_thousand_ops_are_predicted_in_two_seconds(
    console: Console, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold: reading the model and every feature counts; lowering does not.

    A ResNet repeats its kernels, as most networks do; in the other one no two are alike.
    """
    monkeypatch.setattr(RESNET, "_BLOCKS", (3, 4, 26, 3))
    model = build_network(network, 0, _deep_resnet if network == "deep_resnet" else _no_two_alike)
    one_device = Platform(devices=(Device("cpu", "llvm -mcpu=native"),))
    step = lower_step(build_training_step(model).mod, one_device)
    ops = len(step.extraction.graph.ops)
    kernels = list(step.kernels.values())
    start_s = time.process_time()
    costs = predict_costs(kernels, default_model())
    spent_s = time.process_time() - start_s
    console.print(f"{network}: {ops} ops, {len(costs)} different kernels, {spent_s:.2f} s of CPU")
    assert ops >= 1000
    assert spent_s < MOST_PREDICTION_S


def _deep_resnet(layers: Layers) -> relax.Expr:
    return RESNET.resnet50(layers, layers.input("x", (2, 3, 64, 64)), 10)


def _no_two_alike(layers: Layers) -> relax.Expr:
    x: relax.Expr = layers.input("x", (2, 3, 16, 16))
    for k in range(112):
        x = layers.conv(f"conv{k}", x, 8 + k, 3, padding=1, bias=False)
        x = layers.relu(f"relu{k}", layers.batch_norm(f"norm{k}", x))
    return layers.linear("fc", layers.global_avg_pool("mean", x), 10)


def test_schedule_regret(data: Dataset, console: Console) -> None:
    """Plans made with predictions, judged by the measured costs of every kernel.

    The judge takes the last round of the measurements, plans are made with the first. Of the
    schedules that any run of the solver found, each kind of costs takes the one that is cheapest
    by itself, so that it is not judged by where the solver's time ended.
    """
    table = Table(
        title="extra time of a schedule planned with ..., over the best that any of them found"
    )
    columns = ("measured", "trees", "roofline", "flops", "active trees", "measured kernels")
    for column in ("network", "budget ratio", *columns):
        table.add_column(column, justify="right")
    totals: dict[str, list[float]] = {column: [] for column in columns}
    for network in NETWORKS:
        for ratio, regrets in _regrets(network, data):
            for column, value in regrets.items():
                totals[column].append(value)
            table.add_row(
                network, f"{ratio}", *(f"{100 * regrets[column]:.1f} %" for column in columns)
            )
    table.add_row("mean", "", *(f"{100 * np.mean(totals[column]):.1f} %" for column in columns))
    console.print(table)


def _regrets(network: str, data: Dataset):
    family = network.rstrip("0123456789")
    others = data.take([k for k, names in enumerate(data.families) if family not in names])
    cache = MeasurementCache(default_cache_path())
    platform = with_measured_links(PLATFORM, cache)
    step = lower_step(build_training_step(load_model(network, batch_size=8)).mod, platform)
    kernels = {kernel.symbol: kernel for kernel in step.kernels.values()}
    measured_costs(cache)(list(kernels.values()))

    def of_round(number):
        found = {
            symbol: cache.find(kernel.key, device_fingerprint(kernel.target))
            for symbol, kernel in kernels.items()
        }
        return {
            symbol: OpCost(typical_us(m.rounds_us[number], m.clock), source=CostSource.MEASURED)
            for symbol, m in found.items()
        }

    first, last = of_round(0), of_round(-1)
    true = make_problem(step, platform, lambda _: last)
    symbols = list(kernels)
    features = table_of([kernel_features(kernels[symbol]) for symbol in symbols])

    def predicted(predictor: Predictor) -> dict[str, OpCost]:
        answer = predictor.predict(features)
        rows = zip(symbols, answer.time_us, answer.lo_us, answer.hi_us, strict=True)
        return {
            symbol: OpCost(float(t), lo_us=float(lo), hi_us=float(hi), source=CostSource.PREDICTED)
            for symbol, t, lo, hi in rows
        }

    flops = {
        symbol: OpCost(float(work))
        for symbol, work in zip(symbols, 1 + features.flops, strict=True)
    }
    trees = predicted(BoostedTrees().fit(others))
    roofline = predicted(Roofline().fit(others))
    for ratio in RATIOS:
        budgets = budgets_for_ratio(true, ratio)
        judge = true.with_budgets(budgets)

        def problem_with(costs, budgets=budgets):
            return make_problem(step, platform, lambda _: costs).with_budgets(budgets)

        known = dict(trees)

        def measure(wanted, known=known):
            now = {kernel.symbol: first[kernel.symbol] for kernel in wanted}
            known |= now
            return now

        planning = Planning(
            kernels,
            lambda op, device: step.kernels[step.extraction.kernels[op], device].symbol,
            problem_with,
            lambda problem: plan_schedule(problem, LIMITS),
            lambda problem: plan_schedule(problem, LIMITS),
            measure,
        )
        costs = {"measured": first, "trees": trees, "roofline": roofline, "flops": flops}
        try:
            found = [plan_schedule(problem_with(each), LIMITS).schedule for each in costs.values()]
            active = plan_actively(planning, trees, ActiveLimits(kernels_ratio=1 / 3))
        except NoScheduleError:
            continue
        found.append(active.plan.schedule)
        costs["active trees"] = known
        times_us = {}
        for name, each in costs.items():
            mine = problem_with(each)
            chosen = min(found, key=lambda schedule, mine=mine: simulate(mine, schedule).cost_us)
            times_us[name] = simulate(judge, chosen).cost_us
        # The solver stops at a time limit, so the best plan need not be that of the best costs.
        best_us = min(simulate(judge, schedule).cost_us for schedule in found)
        regrets = {name: time_us / best_us - 1 for name, time_us in times_us.items()}
        regrets["measured kernels"] = active.measured_kernels / active.all_kernels
        yield ratio, regrets
