"""Measure and predict the kernels of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvm_xengine.commands.arguments.step_options import StepOptions
from tvm_xengine.commands.costs.models import as_rows
from tvm_xengine.commands.run.steps import training_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.costing.costs import as_costs, note_transferred
from tvm_xengine.compiler.costing.step_caches import step_caches
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.cost_models.judging.metrics import Metrics, noise_floor
from tvm_xengine.cost_models.measure.boards import measure_on_boards
from tvm_xengine.cost_models.measure.caches import COLD
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import (
    Measurement,
    MeasurementCache,
    default_cache_path,
    typical_us,
)
from tvm_xengine.cost_models.measure.timers import IsolatedTimer, passing_libraries, timer_for
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.cost_models.models.model_file import read_model
from tvm_xengine.cost_models.prediction.abstain import MOST_WIDTH_RATIO, UNKNOWN, is_unknown
from tvm_xengine.cost_models.prediction.predict import default_model, predict_costs
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.report.costs import print_costs, print_metrics
from tvm_xengine.scheduling.default_platform import default_platform
from tvm_xengine.scheduling.platform import Device, Platform, generated_only
from tvm_xengine.scheduling.platform_file import read_platform
from tvm_xengine.scheduling.problem import OpCost

_LONGER_THAN_US = {"all": 0.0, "above 20 us": 20.0, "above 500 us": 500.0}
"""Classes of kernels by time, in which noise differs."""


@dataclass(frozen=True)
class Measuring:
    """Where and how often kernels are measured."""

    platform: Path | None
    rpc: tuple[str, ...]
    rounds: int
    cache: Path | None


def compare_rounds(
    model: str, targets: Sequence[str], rounds: int, terminal: Terminal
) -> dict[str, Any]:
    """Measure the kernels of a network without a cache, and compare the rounds."""
    platform = Platform(
        tuple(Device(f"target{k}", target, kernels=("tir",)) for k, target in enumerate(targets))
    )
    step = _lowered(model, StepOptions(), platform, terminal)
    with TemporaryDirectory() as scratch, terminal.reporting() as reporter:
        measured = measure_kernels(
            step.distinct,
            MeasurementCache(Path(scratch) / "measurements.jsonl"),
            effort=Effort(rounds=rounds),
            on_progress=reporter.stage("measuring kernels"),
            timer=IsolatedTimer(passing_libraries(Path(scratch))),
            on_compiled=reporter.stage("compiling kernels"),
        )
    times_us = [
        tuple(typical_us(batches, m.clock) for batches in m.rounds_us) for m in measured.values()
    ]
    rows: dict[str, Metrics] = {}
    for name, limit_us in _LONGER_THAN_US.items():
        if kept := [row for row in times_us if row[0] >= limit_us]:
            noise = noise_floor(kept, [("all",)] * len(kept))
            rows |= {} if noise is None else {name: noise}
    print_metrics(terminal.console, "first against last round", rows)
    return as_rows(rows)


def measure_model(
    model: str, options: StepOptions, measuring: Measuring, terminal: Terminal
) -> dict[str, Any]:
    """Measure every kernel of a model's training step."""
    platform = _platform(measuring.platform)
    cache_path = measuring.cache or default_cache_path()
    cache = MeasurementCache(cache_path, must_write=measuring.cache is not None)
    if measuring.rpc:
        platform = generated_only(platform)
    step = _lowered(model, options, platform, terminal)
    effort = Effort(measuring.rounds, caches=COLD if measuring.rpc else step_caches(step))
    with terminal.reporting() as reporter:
        on_progress = reporter.stage("measuring kernels")
        if measuring.rpc:
            kernels = dict.fromkeys(measuring.rpc, step.distinct)
            found = measure_on_boards(kernels, cache, effort=effort, on_progress=on_progress)
        else:
            here = measure_kernels(
                step.distinct,
                cache,
                effort=effort,
                on_progress=on_progress,
                timer=timer_for(KernelStore(cache_path.parent / "kernels")),
                on_compiled=reporter.stage("compiling kernels"),
            )
            found = {"": here}
    reports = [
        _report(model, step, as_costs(measured), terminal, _named(address, measured, cache))
        for address, measured in found.items()
    ]
    return {"kernels": [row for report in reports for row in report["kernels"]]}


def _named(
    address: str, measured: Mapping[str, Measurement], cache: MeasurementCache
) -> dict[str, dict[str, object]]:
    """What the report says besides of each kernel: where it was measured."""
    if not address:
        return {}
    machines = {symbol: cache.find_machine(m.machine) for symbol, m in measured.items()}
    return {
        symbol: {"board": address, "machine": machine and machine.processor}
        for symbol, machine in machines.items()
    }


def predict_model(
    model: str, options: StepOptions, platform: Path | None, path: Path | None, terminal: Terminal
) -> dict[str, Any]:
    """Predict the costs of a model's kernels."""
    step = _lowered(model, options, _platform(platform), terminal)
    cost_model = default_model() if path is None else read_model(path)
    costs = predict_costs(step.distinct, cost_model, step_caches(step))
    if cost_model is not None:
        note_transferred(step.distinct, costs, cost_model, terminal.note)
    return _report(model, step, costs, terminal)


def _report(
    model: str,
    step: LoweredStep,
    costs: Mapping[str, OpCost],
    terminal: Terminal,
    more: Mapping[str, Mapping[str, object]] | None = None,
) -> dict[str, Any]:
    """A table, and its rows with `more` about some kernels by symbol."""
    more = more or {}
    calls = Counter(step.extraction.kernels[op.name] for op in step.extraction.graph.ops)
    rows = [
        (name, device, kernel.source, calls[name], costs[kernel.symbol])
        for (name, device), kernel in step.kernels.items()
        if kernel.symbol in costs
    ]
    where = {f" at {each['board']}" for each in more.values()}
    print_costs(terminal.console, f"kernels of {model}{''.join(where)}", rows)
    if unknown := sum(is_unknown(row[4]) for row in rows):
        terminal.note(
            f"{unknown} of {len(rows)} costs are {UNKNOWN!r}: a typical roofline, or an interval whose ends"
            f" differ by more than a factor of {MOST_WIDTH_RATIO:g}; active costs measure these first"
        )
    return {
        "kernels": [
            {
                "kernel": name,
                "device": device,
                "computed_by": computed_by,
                "calls": count,
                **{key: getattr(cost, key) for key in ("compute_us", "lo_us", "hi_us")},
                "source": cost.source.value,
                "is_unknown": is_unknown(cost),
                **more.get(step.kernels[name, device].symbol, {}),
            }
            for name, device, computed_by, count, cost in rows
        ]
    }


def _lowered(
    model: str, options: StepOptions, platform: Platform, terminal: Terminal
) -> LoweredStep:
    training = training_of(model, options)
    with terminal.reporting() as reporter:
        return lower_step(training.step.mod, platform, reporter.stage("lowering kernels"))


def _platform(path: Path | None) -> Platform:
    return default_platform() if path is None else read_platform(path)
