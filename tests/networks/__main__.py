"""``python -m tests.networks``: measure the networks that have no figures yet, write the table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.networks.figures import measure
from tests.networks.registry import networks
from tests.networks.table import write_table

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "networks.jsonl"


def main() -> int:
    """Each network in a process of its own, so that its memory comes back."""
    parser = argparse.ArgumentParser(prog="python -m tests.networks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help="these only (all)")
    parser.add_argument("--again", action="store_true", help="measure also what has figures")
    parser.add_argument("--here", action="store_true", help="one network, in this process")
    options = parser.parse_args()
    known = networks()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown networks {unknown}; expected some of {list(known)}")
    if options.here:
        for name in options.names:
            _append(measure(known[name]).as_document())
        return 0
    measured = {str(row["name"]) for row in _rows()}
    wanted = [n for n in options.names or known if options.again or n not in measured]
    failed = []
    for position, name in enumerate(wanted, start=1):
        print(f"{position}/{len(wanted)} {name}", flush=True)
        start_s = time.monotonic()
        command = [sys.executable, "-m", "tests.networks", "--here", name]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
        print(f"    {time.monotonic() - start_s:.0f} s", flush=True)
        write_table(ROOT / "README.md", _latest(list(known)))
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _rows() -> list[dict[str, object]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines() if line]


def _append(row: dict[str, object]) -> None:
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _latest(order: list[str]) -> list[dict[str, object]]:
    """The last row of each network."""
    rows = {str(row["name"]): row for row in _rows()}
    return [rows[name] for name in order if name in rows]


if __name__ == "__main__":
    sys.exit(main())
