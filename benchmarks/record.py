"""Records rows of figures: measured ones with the commit, machine, versions and date of their run."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("apache-tvm", "torch", "highspy", "onednn-cpu-gomp")

Cell = str | int | float | None


def record(table: str, row: Mapping[str, Cell]) -> None:
    """Print a row and append it to ``results/TABLE.jsonl``; a run that is cut off keeps its rows."""
    _append(table, row, this_run())


def record_known(table: str, row: Mapping[str, Cell]) -> None:
    """The same for figures that no run of this commit has taken: the row says where they are from."""
    _append(table, row, {})


def rows_of(table: str) -> list[dict[str, Any]]:
    """What is recorded, the oldest first."""
    path = RESULTS / f"{table}.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line]


def _append(table: str, row: Mapping[str, Cell], run: Mapping[str, str]) -> None:
    sys.stdout.write("  ".join(f"{name}={value}" for name, value in row.items()) + "\n")
    sys.stdout.flush()
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{table}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "_run": run}) + "\n")


@cache
def this_run() -> dict[str, str]:
    """What the figures of this process depend on."""
    return {
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
        "machine": _processor(),
        "versions": ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name))),
        "date": datetime.now(timezone.utc).date().isoformat(),
    }


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=RESULTS.parent)
    return done.stdout.strip()


def _processor() -> str:
    """Name of the processor and the number of its cores."""
    name = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = facts.read_text(encoding="utf-8").splitlines()
        name = next(
            (x.partition(":")[2].strip() for x in lines if x.startswith("model name")), name
        )
        cores = sum(line.startswith("processor") for line in lines)
        return f"{name}, {cores} cores"
    return name


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
