"""``tvm-xengine tune`` keeps schedules that other commands and other networks then take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tvm import s_tir, tirx

from tvm_xengine.__main__ import main
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.tuning import tune_kernel as tuning

PLATFORM = """
[[device]]
name = "cpu"
target = "llvm -mcpu=native -num-cores=1"
budget = "64MiB"
kernels = ["tir"]
"""


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    path = tmp_path / "platform.toml"
    path.write_text(PLATFORM)
    return path


def loops_as_written(func: tirx.PrimFunc, *_args: object, **_options: object):
    """Instead of the search, which takes a minute to load: one schedule, said to be fast."""
    yield s_tir.Schedule(func), 1e-3


@pytest.mark.usefixtures("capsys")
def test_what_tune_keeps_is_known_the_next_time(
    tmp_path: Path, platform: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "search", loops_as_written)
    monkeypatch.setattr(tuning, "_WORTH_IT", 1e9)  # whatever it takes
    folder, report = tmp_path / "tuned", tmp_path / "report.json"
    command = ["tune", "mlp", "--batch", "1", "--trials", "32", "--platform", str(platform)]
    command += ["--database", str(folder), "--cache", str(tmp_path / "times.jsonl")]
    assert main([*command, "--json", str(report)]) == 0
    first = json.loads(report.read_text())["kernels"]
    assert 1 <= len(first) <= 2 and not any(kernel["was_known"] for kernel in first)
    assert len(TunedSchedules(folder)) == len(first)

    assert main([*command, "--json", str(report)]) == 0
    again = json.loads(report.read_text())["kernels"]
    known = {kernel["kernel"] for kernel in again if kernel["was_known"]}
    assert known == {kernel["kernel"] for kernel in first}

    plan = ["plan", "mlp", "--batch", "1", "--budget-ratio", "1", "--costs", "roofline"]
    plan += ["--platform", str(platform), "--database", str(folder)]
    assert main(plan) == 0


def test_tune_says_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "lenet"]) == 2
    assert "--database" in capsys.readouterr().err
