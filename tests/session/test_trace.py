"""A trace shows every call of a step, when it was planned to run and when it ran."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tvm_xengine as xe
from tests.session.test_objective import _PLATFORM
from tvm_xengine.scheduling.schedule import Free, describe


@pytest.mark.parametrize("objective", [pytest.param("cost", marks=pytest.mark.slow), "makespan"])
def test_calls_run_in_the_order_of_their_streams_and_once(
    cache: Path, tmp_path: Path, objective: str
) -> None:
    step = xe.compile(
        "mlp",
        platform=_PLATFORM,
        objective=objective,
        costs="roofline",
        time_limit_s=2.0,
        cache=cache,
    )
    rng = np.random.default_rng(0)
    batch = rng.random((16, 1, 8, 8), dtype="float32"), rng.integers(0, 10, 16)
    plain = float(step(*batch))
    with step.trace(tmp_path / "trace.json"):
        losses = [float(step(*batch)) for _ in range(2)]
    assert step(*batch) < losses[1] < losses[0] < plain
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    groups = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    planned, measured = (
        [e for e in events if e["ph"] == "X" and e["pid"] == groups[name]]
        for name in ("planned timeline", "measured timeline")
    )
    steps = [s for s in step.plan.plan.schedule.steps if not isinstance(s, Free)]
    assert [e["name"] for e in planned] == [e["name"] for e in measured] == [*map(describe, steps)]
    ends: dict[int, float] = {}
    for event in measured:
        assert event["ts"] >= ends.get(event["tid"], 0.0)
        ends[event["tid"]] = event["ts"] + event["dur"]
    assert 0 < max(ends.values()) * 1e-6 < 60
    assert min(e["ts"] for e in measured) == 0


def test_without_a_step_only_the_plan_is_shown(cache: Path, tmp_path: Path) -> None:
    step = xe.compile("mlp", costs="roofline", time_limit_s=2.0, cache=cache)
    with step.trace(tmp_path / "trace.json"):
        pass
    assert "measured" not in (tmp_path / "trace.json").read_text()
