"""The smallest budget of ten networks on one device: with the fastest kernels, with lean ones, in slices.

    python -m benchmarks.solvers.smallest_budgets [NETWORK ...]

Each network is added to `benchmarks/results/smallest_budgets.jsonl` when it is done, and is not done
again; the table is written anew each time.
"""

from __future__ import annotations

import json
import sys

import tvm_xengine as xe
from benchmarks import record, tables
from tvm_xengine.compiler.costing.costed import cost_step
from tvm_xengine.compiler.lean.forms import forms
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.session.estimate import smallest_budget

NETWORKS: dict[str, dict[str, int]] = {
    "mlp": {"batch_size": 64},
    "lenet": {"batch_size": 16},
    "resnet8": {"batch_size": 16},
    "ds_cnn": {"batch_size": 16},
    "gpt_nano": {"batch_size": 8},
    "unet": {"batch_size": 8},
    "mobilenetv2": {"batch_size": 8, "size": 32},
    "resnet18": {"batch_size": 16, "size": 32},
    "resnet50": {"batch_size": 8, "size": 32},
    "vgg16": {"batch_size": 8, "size": 32},
}
LOSSES = {"unet": "cross_entropy"}
_SIZES = ("state", "keep_all", "usual", "variants", "after")
RESULTS = record.RESULTS / "smallest_budgets.jsonl"
PAGE = tables.PAGES / "smallest_budgets.md"

_HEAD = """# Smallest budgets

The smallest budget in which a plan is found for a training step on one device (momentum, roofline costs): of
the whole batch with the usual kernels, with variants of them, and in slices of the batch, too. The
state (parameters, optimizer state, batch) is in all. `ratio` is that with everything by that of the usual
kernels, or by that with variants in rows of older code that lack the former.
Times are predicted, of a plan of any cost in that budget, as multiples of keep-all.

| network | batch | state | keep-all | usual | variants | slices | of | ratio | beside state | times | | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""

Row = dict[str, str | int | float | None]


def measure(name: str) -> Row:
    """Smallest budgets of a network, and the predicted time of a plan of any cost in each."""
    source = xe.load_model(name, **NETWORKS[name])
    lowered = xe.lower(xe.training_step(source, loss=LOSSES.get(name)), xe.processor())
    costed = cost_step(lowered.step, CostChoice.ROOFLINE, lowered.stores, lowered.reporter)
    device = lowered.platform.home
    problem, schedule = keep_all_on(costed.problem, device)
    keep_all_bytes = plan_arenas(problem, schedule).arena_bytes[device]
    best: tuple[int, int, float | None] | None = None
    usual = _at(costed.problem, device, smallest_budget(costed.problem, device) or keep_all_bytes)
    variants: tuple[int, float | None] | None = None
    for form in forms(costed, lowered.stores, lowered.reporter):
        found = smallest_budget(form.problem, device)
        slices = form.lowered.slices
        print(f"{name}: {slices} slices, {found} bytes", flush=True)
        if slices == 1:
            variants = _at(form.problem, device, found or keep_all_bytes)
        if found is None or (best is not None and found >= best[0]):
            if best is not None:
                break
            continue
        best = (found, slices, _at(form.problem, device, found)[1])
    assert variants is not None
    after = best or (variants[0], 1, variants[1])
    return {
        "network": name,
        "batch": NETWORKS[name]["batch_size"],
        "state_bytes": costed.problem.home_bytes[device],
        "keep_all_bytes": keep_all_bytes,
        "keep_all_us": sum(costs[device].compute_us for costs in costed.problem.costs.values()),
        "usual_bytes": usual[0],
        "usual_us": usual[1],
        "variants_bytes": variants[0],
        "variants_us": variants[1],
        "after_bytes": after[0],
        "slices": after[1],
        "after_us": after[2],
    }


def _at(problem: Problem, device: str, size_bytes: int) -> tuple[int, float | None]:
    plan = any_plan(problem.with_budgets({device: size_bytes}))
    return size_bytes, None if plan is None else plan.simulation.cost_us


def rows() -> list[Row]:
    """What is measured so far."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def write_page(found: list[Row]) -> None:
    """The table."""
    lines = _HEAD.splitlines()
    ratios, beside = [], []
    for row in found:
        known = "usual" if "usual_bytes" in row else "variants"
        state, before, after = (float(row[f"{key}_bytes"]) for key in ("state", known, "after"))
        ratios.append(after / before)
        beside.append((after - state) / (before - state))
        sizes = " | ".join(
            f"{float(row[f'{key}_bytes']) / 2**20:.2f} MiB" if f"{key}_bytes" in row else "-"
            for key in _SIZES
        )
        times = " | ".join(
            f"{float(row[f'{key}_us']) / float(row['keep_all_us']):.2f}"
            if row.get(f"{key}_us") is not None
            else "-"
            for key in _SIZES[2:]
        )
        lines.append(
            f"| {row['network']} | {row['batch']} | {sizes} | {row['slices']} | {ratios[-1]:.2f} |"
            f" {beside[-1]:.2f} | {times} |"
        )
    lines += [
        "",
        f"Mean ratio over {len(found)} networks: {sum(ratios) / len(ratios):.2f},"
        f" beside the state {sum(beside) / len(beside):.2f}.",
        "",
        "Made by `python -m benchmarks.solvers.smallest_budgets`.",
    ]
    PAGE.write_text("\n".join(lines) + "\n")


def main(names: list[str]) -> None:
    """Measure what is missing, and write the table."""
    done = {row["network"] for row in rows()}
    for name in names or list(NETWORKS):
        if name not in done:
            with RESULTS.open("a") as file:
                file.write(json.dumps(measure(name)) + "\n")
        write_page(rows())


if __name__ == "__main__":
    main(sys.argv[1:])
