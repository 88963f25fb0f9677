"""What tiles save where operands lie in slow memory, as predicted; run with ``-m slow``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tvm_xengine as xe
from benchmarks.embedded.peers.networks import perceptron
from benchmarks.record import Cell, record
from tests.aot.test_tiles import without_tiles
from tvm_xengine.aot.entries import Entry
from tvm_xengine.errors import NoScheduleError

WIDTHS, BATCH = (64, 128, 96, 4), 4


@pytest.mark.slow
@pytest.mark.parametrize("sram_kib", [24, 56])
@pytest.mark.parametrize("operands", ["in tiles", "whole"])
def test_time_and_memory_with_and_without_tiles(
    sram_kib: int, operands: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if operands == "whole":
        without_tiles(monkeypatch)
    torch.manual_seed(0)
    training = xe.training_step(
        perceptron(*WIDTHS),
        torch.zeros(BATCH, WIDTHS[0]),
        loss="cross_entropy",
        optimizer=xe.SGD(0.01),
    )
    row: dict[str, Cell] = {"sram_kib": sram_kib, "operands": operands}
    figures: dict[str, Cell] = dict.fromkeys(("step_us", "eval_us", "sram_bytes"))
    try:
        report = xe.export_for_target(
            *(training, tmp_path / "exported"),
            target="cortex-m7",
            regions={"sram": f"{sram_kib}KiB", "psram": "1MiB@0.08"},
            objective="makespan",
            work_limit=2.0,
        )
    except NoScheduleError:
        assert operands == "whole"
    else:
        for entry, name in ((Entry.TRAIN_STEP, "step_us"), (Entry.EVAL, "eval_us")):
            figures[name] = round(report.functions[entry].plan.simulation.makespan_us)
        figures["sram_bytes"] = report.package.regions["sram"]
    record("tiles", {**row, **figures})
