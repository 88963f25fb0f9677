"""``python -m benchmarks.solvers.time_with_variants [NETWORK...]``: steps with and without variants.

The same budgets, costs and limit, once with the usual kernels of the whole batch, and once as
plans are made: with variants, and in slices where they pay. The limit is one of work, so that
the rows do not depend on how busy the machine is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import tvm_xengine as xe
from benchmarks.record import record
from benchmarks.solvers.smallest_budgets import LOSSES, NETWORKS
from tvm_xengine.compiler.costing.costed import CostedStep, cost_step
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.plan import plan_costed
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.solvers.result import Limits

RATIOS = (0.8, 0.6, 0.4)
"""Of what keep-all needs beside the state."""
OPTIONS = PlanOptions(limits=Limits.by_work(5.0))


def main(networks: Sequence[str]) -> None:
    """Record a row for each network and budget."""
    for network in networks or tuple(NETWORKS):
        source = xe.load_model(network, **NETWORKS[network])
        lowered = xe.lower(xe.training_step(source, loss=LOSSES.get(network)), xe.processor())
        costed = cost_step(lowered.step, CostChoice.ROOFLINE, lowered.stores, lowered.reporter)
        for ratio in RATIOS:
            record("time_with_variants", _row(network, ratio, costed, lowered))


def _row(
    network: str, ratio: float, costed: CostedStep, lowered: Lowered
) -> dict[str, str | int | float | None]:
    budgets = budgets_for_ratio(costed.problem, ratio)
    problem = costed.problem.with_budgets(budgets)
    keep_all_us = sum(min(c.compute_us for c in there.values()) for there in problem.costs.values())
    usual = found = None
    slices = 1
    with suppress(NoScheduleError):
        usual = plan_schedule(problem, OPTIONS)
    with suppress(NoScheduleError):
        tight = replace(costed, problem=problem)
        planned = plan_costed(tight, OPTIONS, lowered.stores, lowered.reporter)
        found, slices = planned.plan, planned.lowered.slices
    return {
        "network": network,
        "ratio": ratio,
        "usual": _relative(usual, keep_all_us),
        "with variants": _relative(found, keep_all_us),
        "slices": slices,
    }


def _relative(plan: Plan | None, keep_all_us: float) -> float | None:
    """Time of a step as a multiple of keep-all; None where nothing fits."""
    return None if plan is None else round(plan.simulation.cost_us / keep_all_us, 4)


if __name__ == "__main__":
    main(sys.argv[1:])
