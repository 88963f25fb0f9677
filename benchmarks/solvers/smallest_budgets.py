"""The smallest budget of ten networks on one device: with the fastest kernels, with lean ones, in slices.

    python -m benchmarks.solvers.smallest_budgets [NETWORK ...]

A network that is recorded is not measured again.
"""

from __future__ import annotations

import sys

import tvm_xengine as xe
from benchmarks.record import Cell, record, rows_of
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
TABLE = "smallest_budgets"


def measure(name: str) -> dict[str, Cell]:
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


def main(names: list[str]) -> None:
    """Record what is missing."""
    done = {row["network"] for row in rows_of(TABLE)}
    for name in names or NETWORKS:
        if name not in done:
            record(TABLE, measure(name))


if __name__ == "__main__":
    main(sys.argv[1:])
