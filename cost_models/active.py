"""Plan, measure what the plan relies on, plan again: few measurements, good plans."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.planner import Plan
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.scheduling.simulate import simulate

_MEASURED = (CostSource.MEASURED, CostSource.CACHED)

Costs = Mapping[str, OpCost]
"""By the symbol of the kernel."""


Planner = Callable[[Problem, Schedule | None], Plan]
"""From a problem, and a schedule to begin from, to a plan."""


@dataclass(frozen=True)
class ActiveLimits:
    """When to stop measuring.

    Attributes
    ----------
    rounds
        Plans that may be measured.
    uncertain_ratio
        Share of the plan's time that may rest on the intervals of predictions.
    kernels_ratio
        Share of all kernels that may be measured.
    time_s
        No round begins after so long.
    """

    rounds: int = 6
    uncertain_ratio: float = 0.02
    kernels_ratio: float = 1.0
    time_s: float = 600.0


@dataclass(frozen=True)
class ActivePlan:
    """A plan with the story of its costs.

    Attributes
    ----------
    measured_kernels, all_kernels
        How many kernels were measured (or known from before), and how many there are.
    rounds
        How often something was measured.
    """

    plan: Plan
    measured_kernels: int
    all_kernels: int
    rounds: int


@dataclass(frozen=True)
class Planning:
    """What the loop needs to know of the step.

    Attributes
    ----------
    kernels
        By symbol.
    kernel_of
        Symbol of the kernel of an op on a device.
    problem_with
        The problem with these costs.
    sketch, plan
        A fast planner for the rounds, and a thorough one for the end; both begin from the
        cheapest schedule that is known, if there is one.
    measure
        Measures kernels.
    correct
        What measured costs say of the others.
    """

    kernels: Mapping[str, DeviceKernel]
    kernel_of: Callable[[str, str], str]
    problem_with: Callable[[Costs], Problem]
    sketch: Planner
    plan: Planner
    measure: Callable[[Sequence[DeviceKernel]], Costs]
    correct: Callable[[Costs], Costs] = dict


def plan_actively(
    planning: Planning, predicted: Costs, limits: ActiveLimits | None = None
) -> ActivePlan:
    """Plan with optimistic costs, measure what the plan relies on, until nothing new is needed.

    A kernel that was not measured counts with the lower end of its interval, so a plan avoids it
    only where that is safe: optimism in the face of uncertainty (Lai and Robbins, Advances in
    Applied Mathematics 1985). What is measured first is what makes the plan's time most
    uncertain, and what is measured corrects the predictions of the others.

    Parameters
    ----------
    predicted
        A cost for every kernel; those whose source is a measurement count as known.
    """
    limits = limits or ActiveLimits()
    start_s = time.monotonic()
    costs = dict(planning.correct(predicted))
    found: list[Plan] = []
    rounds = 0

    def may_go_on() -> bool:
        return time.monotonic() - start_s < limits.time_s

    def planned(planner: Planner, now: Costs) -> Plan:
        problem = planning.problem_with(now)
        plan = planner(problem, _cheapest(problem, found))
        found.append(plan)
        return plan

    for _ in range(limits.rounds):
        sketch = planned(planning.sketch, _optimistic(costs))
        if not may_go_on() or not _measure_more(planning, sketch, costs, limits):
            break
        rounds += 1
    plan = planned(planning.plan, costs)
    # Where the rounds ended early, the last plan may rely on kernels that no sketch has used.
    for _ in range(limits.rounds):
        if not may_go_on() or not _measure_more(planning, plan, costs, limits):
            break
        rounds += 1
        plan = planned(planning.plan, costs)
    known = sum(cost.source in _MEASURED for cost in costs.values())
    return ActivePlan(plan, known, len(planning.kernels), rounds)


def _cheapest(problem: Problem, plans: Sequence[Plan]) -> Schedule | None:
    """The best schedule of earlier plans by the costs of `problem`."""
    values = [plan.result.objective.of(simulate(problem, plan.schedule)) for plan in plans]
    return plans[values.index(min(values))].schedule if plans else None


def _measure_more(
    planning: Planning, plan: Plan, costs: dict[str, OpCost], limits: ActiveLimits
) -> bool:
    """Measure what makes the plan uncertain, into `costs`; False when nothing is left to do."""
    most = max(1, int(limits.kernels_ratio * len(planning.kernels)))
    room = most - sum(cost.source is CostSource.MEASURED for cost in costs.values())
    wanted = _uncertain_kernels(planning, plan, costs, limits.uncertain_ratio)[: max(0, room)]
    if wanted:
        costs.update(planning.measure([planning.kernels[symbol] for symbol in wanted]))
        costs.update(planning.correct(costs))
    return bool(wanted)


def _optimistic(costs: Costs) -> Costs:
    return {
        symbol: cost
        if cost.source in _MEASURED
        else replace(cost, compute_us=max(cost.lo_us, 1e-3), interval_us=None)
        for symbol, cost in costs.items()
    }


def _uncertain_kernels(
    planning: Planning, plan: Plan, costs: Costs, uncertain_ratio: float
) -> list[str]:
    """Kernels of the plan to measure, the most uncertain first; none when little is uncertain."""
    uses: Counter[str] = Counter()
    for step in plan.schedule.steps:
        if isinstance(step, Compute):
            uses[planning.kernel_of(step.op, step.device)] += 1
    spread = {
        symbol: (costs[symbol].hi_us - costs[symbol].lo_us) * count
        for symbol, count in uses.items()
        if costs[symbol].source not in _MEASURED
    }
    allowed = uncertain_ratio * sum(costs[symbol].compute_us * n for symbol, n in uses.items())
    chosen: list[str] = []
    left = sum(spread.values())
    for symbol in sorted(spread, key=lambda name: -spread[name]):
        if left <= allowed:
            break
        chosen.append(symbol)
        left -= spread[symbol]
    return chosen
