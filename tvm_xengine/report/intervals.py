"""The interval of the predicted time of a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.scheduling.simulate import simulate


def cost_interval_us(problem: Problem, schedule: Schedule) -> tuple[float, float]:
    """The cost if every kernel took the lower, or the upper end of its interval.

    Errors of different kernels cancel in part, so the true time usually lies well inside.
    """
    low = high = simulate(problem, schedule).cost_us
    for step in schedule.steps:
        if isinstance(step, Compute):
            cost = problem.costs[step.op][step.device]
            low -= cost.compute_us - cost.lo_us
            high += cost.hi_us - cost.compute_us
    return low, high


def cost_sources(problem: Problem, schedule: Schedule) -> Mapping[str, int]:
    """Number of computations of the schedule with costs of each source."""
    sources = Counter(
        problem.costs[step.op][step.device].source.value
        for step in schedule.steps
        if isinstance(step, Compute)
    )
    return dict(sources)
