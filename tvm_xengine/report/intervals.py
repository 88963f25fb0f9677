"""The interval of the predicted time of a schedule."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter

from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule


def step_interval_us(plan: Plan) -> tuple[float, float]:
    """The time of a step if every kernel took the lower, or the upper end of its interval.

    Errors of different kernels cancel in part, so the true time usually lies well inside.
    """
    low, high = (
        plan.step_us(plan.simulated(_with_times(plan.problem, time_us)))
        for time_us in (attrgetter("lo_us"), attrgetter("hi_us"))
    )
    return low, high


def _with_times(problem: Problem, time_us: Callable[[OpCost], float]) -> Problem:
    def of(cost: OpCost) -> OpCost:
        # A time is above 0, while the lower end of an interval may be 0.
        return replace(cost, compute_us=max(time_us(cost), sys.float_info.min), interval_us=None)

    costs = {
        op: {on: cost.changed(of) for on, cost in there.items()}
        for op, there in problem.costs.items()
    }
    return replace(problem, costs=costs)


def cost_sources(problem: Problem, schedule: Schedule) -> Mapping[str, int]:
    """Number of computations of the schedule with costs of each source."""
    sources = Counter(
        problem.run_cost(step.op, step.device, step.variant).source.value
        for step in schedule.steps
        if isinstance(step, Compute)
    )
    return dict(sources)
