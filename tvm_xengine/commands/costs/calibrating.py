"""Calibrate this machine, and show what that is worth on labels of its processor."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tvm_xengine.commands.costs.given import learnable
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.calibration.calibrate import calibrate, time_sweep
from tvm_xengine.cost_models.calibration.calibration import Calibration, write_calibration
from tvm_xengine.cost_models.calibration.unadapted import unadapted
from tvm_xengine.cost_models.judging.unseen import before_and_after
from tvm_xengine.cost_models.models.adapted_predictor import AdaptedPredictor
from tvm_xengine.cost_models.models.model_file import ModelFile, read_model
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL, calibration_path
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import check_writable
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.report.costs import print_facts, print_metrics

TARGET = "llvm -mcpu=native"


def calibrate_machine(
    path: Path | None, limit_s: float, terminal: Terminal, *, compare: bool
) -> dict[str, Any]:
    """Time the sweep, fit, and write the machine's file, which predictions then use."""
    path = path or calibration_path()
    check_writable(path)
    target = resolve_target(TARGET)
    model = read_model(SHIPPED_MODEL)
    with terminal.reporting() as reporter:
        stage = reporter.stage("timing the sweep")
        sweep, times = time_sweep(target, path.with_suffix(".jsonl"), limit_s, stage)
    share = model.share_on(str(target))
    found = calibrate(_adapted(model), share, sweep, times)
    write_calibration(found, path)
    path.with_suffix(".jsonl").unlink(missing_ok=True)  # the next calibration times anew
    facts = {
        **found.rates,
        "times of the model, by factor": found.factor,
        "cold call us": found.cold.call_us,
        "cold us per MB": found.cold.us_per_byte * 1e6,
        "kernels timed": f"{len(times)} of {len(sweep.kernels)}",
    }
    print_facts(terminal.console, f"{found.processor}: {path}", facts)
    # A thousand numbers of each kernel are for the file alone.
    document: dict[str, Any] = {"path": str(path), **asdict(replace(found, evidence=None))}
    del document["evidence"]
    if found.processor in model.processors:
        terminal.note(f"predictions for {found.processor} rest on its labels, and stay as they are")
    if compare:
        prior = unadapted(model)
        alone = calibrate(_adapted(prior), 0.0, sweep, times)
        document["errors"] = _compared(prior, alone, terminal)
    return document


def _adapted(model: ModelFile) -> AdaptedPredictor:
    if not isinstance(model.predictor, AdaptedPredictor):
        raise InvalidDatasetError("expected an adapted cost model, found boosted trees alone")
    return model.predictor


def _compared(prior: ModelFile, found: Calibration, terminal: Terminal) -> dict[str, Any]:
    """Errors of a model that knows no labels, on those of this processor that calibrated nothing."""
    data = learnable(None, terminal)
    shown = {
        how: judged.metrics()
        for how, judged in before_and_after(prior, data, found.processor, found)
    }
    if not shown:
        terminal.note(f"no shipped labels are of {found.processor}: nothing to compare with")
        return {}
    kernels = max(metrics.kernels for metrics in shown.values())
    title = f"the prior, without labels, on {kernels} shipped labels of {found.processor}"
    print_metrics(terminal.console, title, shown)
    return {how: asdict(metrics) for how, metrics in shown.items()}
