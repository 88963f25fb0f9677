"""``python -m tests.networks``: measure what has no figures yet, write the table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.record import record, rows_of
from tests.networks.figures import compared, compared_in_float32, count
from tests.networks.registry import networks
from tests.networks.table import write_table

ROOT = Path(__file__).parent.parent.parent
TABLE = "networks"
PAGE = ROOT / "docs" / "results" / "networks.md"
STAGES: Mapping[str, Callable[..., Any]] = {
    "sizes": count,
    "float64": compared,
    "float32": compared_in_float32,
}


def main() -> int:
    """Each stage of each network in a process of its own, so that its memory comes back."""
    parser = argparse.ArgumentParser(prog="python -m tests.networks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help="these only (all)")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--again", action="store_true", help="measure also what has figures")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    known = networks()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown networks {unknown}; expected some of {list(known)}")
    wanted = [(stage, name) for stage in options.stages for name in options.names or known]
    if options.here:
        for stage, name in wanted:
            record(TABLE, {"name": name, "stage": stage, **asdict(STAGES[stage](known[name]))})
        return 0
    done = {(str(row["stage"]), str(row["name"])) for row in rows_of(TABLE)}
    wanted = [key for key in wanted if options.again or key not in done]
    failed = []
    for position, (stage, name) in enumerate(wanted, start=1):
        print(f"{position}/{len(wanted)} {name}: {stage}", flush=True)
        start_s = time.monotonic()
        command = [sys.executable, "-m", "tests.networks", "--here", "--stages", stage, "--", name]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(f"{name}: {stage}")
        print(f"    {time.monotonic() - start_s:.0f} s", flush=True)
        write_table(PAGE, list(known.values()), figures())
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def figures() -> dict[str, dict[str, dict[str, Any]]]:
    """The last row of each stage, by network."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows_of(TABLE):
        found.setdefault(row["name"], {})[row["stage"]] = row
    return found


if __name__ == "__main__":
    sys.exit(main())
