"""What a slower processor explains of a measured time."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

import tvm_xengine as xe
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.sentinel import Sentinel
from tvm_xengine.report.summary import RunSummary
from tvm_xengine.report.tables import print_report
from tvm_xengine.session.loop.speed import slowdown_ratio

RUN = RunSummary(1, 2.0, 1.0, None, {}, (2.0, 1.0), 1000.0, None, None)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> xe.StepPlan:
    """Planned with measured kernels."""
    cache = tmp_path_factory.mktemp("cache") / "measurements.jsonl"
    model = torch.nn.Linear(4, 2)
    training = xe.training_step(model, torch.randn(8, 4), loss="mse")
    problem = xe.make_problem(xe.lower(training, cache=cache), costs="measured")
    return xe.plan(problem, solver="greedy", time_limit_s=1)


def test_it_is_slower_by_what_the_same_work_takes_longer(plan: xe.StepPlan) -> None:
    found = plan.lowered.stores.measurements.kernels()
    calm_us = sorted(min(one.sentinels_us) for one in found)
    slower = slowdown_ratio(plan, [3 * us for us in calm_us])
    assert slower is not None
    assert 3 * calm_us[0] / calm_us[-1] <= slower <= 3 * calm_us[-1] / calm_us[0]
    assert slowdown_ratio(plan, []) is None


def test_nothing_is_known_where_nothing_was_measured(plan: xe.StepPlan, tmp_path: Path) -> None:
    stores = replace(plan.lowered.stores, measurements=MeasurementCache(tmp_path / "m.jsonl"))
    unmeasured = replace(plan, lowered=replace(plan.lowered, stores=stores))
    assert slowdown_ratio(unmeasured, [100.0]) is None


@pytest.mark.parametrize(("ratio", "is_said"), [(1.62, True), (1.03, False), (None, False)])
def test_the_report_says_it_where_it_explains_something(
    plan: xe.StepPlan, ratio: float | None, is_said: bool
) -> None:
    text = StringIO()
    run = replace(RUN, slowdown_ratio=ratio)
    print_report(Console(file=text, width=100), plan.summary, run)
    assert ("the processor was 1.62 times slower" in text.getvalue()) == is_said


def test_between_steps_the_work_is_done_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, times_us = [100.0], iter([5.0] * 5 + [7.0] * 5)
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    sentinel = Sentinel(every_s=0.5)
    monkeypatch.setattr(sentinel, "_once_us", lambda: next(times_us))
    assert sentinel.time_us() == sentinel.time_us() == 5.0
    now_s[0] += 0.6
    assert sentinel.time_us() == 7.0
