"""Exported C on every target against PyTorch: small networks, three optimizers.

    python -m benchmarks.embedded.parity.compare [--again COMMIT] [NETWORK ...]

Each network and optimizer is added to `benchmarks/results/parity.jsonl` when it is done, and is not done
again, except those that were last done at COMMIT; the table is written anew each time. Needs the targets'
compilers and QEMU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import tvm_xengine as xe
from benchmarks import record, tables
from benchmarks.embedded.parity.in_torch import OPTIMIZERS, run_in_torch
from benchmarks.embedded.parity.networks import CASES, Array, Case
from benchmarks.embedded.parity.run_c import run_in_c
from tvm_xengine.aot.check.emulation import missing_tool
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.targets import TARGETS, embedded_target

STEPS = 10
TOO_SMALL = ("cortex-m0",)
"""Its emulated board has 16 KiB, and most networks do not fit."""


def differences(
    found: tuple[NDArray[np.float64], Mapping[str, Array]],
    exact: tuple[NDArray[np.float64], Mapping[str, Array]],
) -> dict[str, float]:
    """How far a run is from the exact one.

    A loss is compared relative to its size, a tensor of the state relative to its largest element; of all
    steps and tensors the largest difference counts.
    """
    losses, state = found
    true_losses, true_state = exact
    in_state = (
        _difference(state[name], true)
        for name, true in true_state.items()
        if true.dtype.kind == "f"
    )
    return {
        "losses": float(np.max(np.abs(losses - true_losses) / np.abs(true_losses))),
        "state": max(in_state),
    }


def _difference(found: Array, true: Array) -> float:
    largest = float(np.max(np.abs(true)))
    difference = np.abs(np.asarray(found, np.float64).reshape(true.shape) - true)
    return float(np.max(difference)) / largest if largest else float(np.max(difference))


def compare(
    case: Case, optimizer: str, targets: Sequence[str], folder: Path, steps: int = STEPS
) -> dict[str, dict[str, float]]:
    """For losses and state, the differences of PyTorch's float32 and of C on each target to float64.

    One package is compiled for every target, but a processor with Helium has one written in its vectors.
    """
    batches = case.batches(steps)
    exact = run_in_torch(case, optimizer, batches, torch.float64)
    runs = {"pytorch": run_in_torch(case, optimizer, batches, torch.float32)}
    example = torch.from_numpy(batches[0][0])
    ours = OPTIMIZERS[optimizer][0]
    training = xe.training_step(case.module(), example, loss=case.loss, optimizer=ours)
    reports: dict[str, ExportReport] = {}
    for target in targets:
        written_for = target if embedded_target(target).has_helium else "host"
        if written_for not in reports:
            reports[written_for] = xe.export_for_target(
                training,
                folder / written_for,
                target=written_for,
                regions={"sram": "1MiB"},
                time_limit_s=5.0,
            )
        run = run_in_c(reports[written_for], target, batches, folder)
        runs[target] = run.losses, run.state
    found = {name: differences(run, exact) for name, run in runs.items()}
    return {what: {name: of[what] for name, of in found.items()} for what in ("losses", "state")}


def _done() -> dict[tuple[str, str], str]:
    """The commit at which each case was last measured."""
    path = record.RESULTS / "parity.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = map(json.loads, lines)
    return {(row["network"], row["optimizer"]): row["_run"]["commit"] for row in rows}


def main(networks: Collection[str], again: str | None) -> None:
    """Measure what is not measured yet, or was at the commit `again`, and write the table."""
    known = [name for name in TARGETS if name not in TOO_SMALL]
    missing = {name: missing_tool(embedded_target(name)) for name in known}
    targets = [name for name in known if not missing[name]]
    for name in known:
        if missing[name]:
            print(f"{name} is left out: it needs the Debian packages {missing[name]}")
    table = tables.called("parity")
    done = _done()
    for optimizer, network in product(OPTIMIZERS, networks):
        if done.get((network, optimizer), again) != again:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = compare(CASES[network], optimizer, targets, Path(folder))
        for what, row in found.items():
            named = {"network": network, "optimizer": optimizer, "of": what}
            record.record("parity", {**named, **row})
        tables.write(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(CASES))
    parser.add_argument("--again", metavar="COMMIT")
    given = parser.parse_args()
    main(given.networks, given.again)
