"""``python -m benchmarks.cluster.beside_torch [NETWORK...]``: two processes, ours against PyTorch's.

Each process has a core of its own, on which PyTorch and ours take turns, step by step.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.cluster.networks import CASES
from benchmarks.record import Cell, record
from tvm_xengine.cluster.launch import run_processes

_MIB = 1 << 20


def main(networks: Sequence[str]) -> None:
    """Record the rows of each network."""
    for network in networks or CASES:
        for row in _rows(network):
            record("ranks", row)


def _rows(network: str) -> list[Mapping[str, Cell]]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "seen.json"
        failed = run_processes(
            ["-m", "benchmarks.cluster.rank", network, str(file)], 2, timeout_s=300
        )
        if failed is not None:
            sys.exit(f"rank {failed.rank} failed: {failed.message}")
        seen = json.loads(file.read_text())
    ddp = seen["sides"]["DDP"]
    expected = np.array(seen["losses"])
    busy = os.getloadavg()[0] > 2.5  # our two processes make 2
    return [
        {
            "network": network,
            "side": name,
            "samples": None if side["samples"] is None else " + ".join(map(str, side["samples"])),
            "step_by_ddp": round(side["step_us"] / ddp["step_us"], 3),
            "busy_by_ddp": round(side["busy_us"] / ddp["busy_us"], 3),
            "peak_mib_0": _mib(side["peak_bytes"][0]),
            "peak_mib_1": _mib(side["peak_bytes"][1]),
            "budgets_mib": _budgets(side),
            "alone_mib": _mib(seen["least_bytes"]) if "unequal" in name else None,
            "predicted_by_step": _predicted_by(side, "step_us"),
            "predicted_by_run": _predicted_by(side, "run_us"),
            "predicted_by_busy": _predicted_by(side, "busy_us"),
            "loss_difference": float(
                f"{np.abs(np.array(side['losses']) / expected - 1).max():.1e}"
            ),
            "machine_was": "busy" if busy else "quiet",
        }
        for name, side in seen["sides"].items()
    ]


def _mib(size_bytes: int) -> float:
    return round(size_bytes / _MIB, 3)


def _budgets(side: Mapping[str, Any]) -> str | None:
    given = side["budget_bytes"]
    return None if given is None else " + ".join(f"{_mib(size):.3f}" for size in given)


def _predicted_by(side: Mapping[str, Any], measured: str) -> float | None:
    predicted_us = side["predicted_us"]
    return None if predicted_us is None else round(predicted_us / side[measured], 2)


if __name__ == "__main__":
    main(sys.argv[1:])
