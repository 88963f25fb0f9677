"""Plan, measure what the plan relies on, plan again: few measurements, good plans."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm_xengine.cost_models.prediction.abstain import is_unknown
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import StopReason

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
        Symbol of the kernel of an op on a device, or of its variant.
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
    kernel_of: Callable[[str, str, str], str]
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

    Returns
    -------
    plan
        After an interrupt the best one so far, by the costs that are known then; its result says
        that it was interrupted.

    Raises
    ------
    KeyboardInterrupt
        If it comes before there is a plan.
    """
    unknown = frozenset(symbol for symbol, cost in predicted.items() if is_unknown(cost))
    run = _Run(planning, limits or ActiveLimits(), dict(planning.correct(predicted)), unknown)
    try:
        plan = run.to_the_end()
    except _Interrupted as interrupt:
        plan = interrupt.plan
    except KeyboardInterrupt:
        if not run.found:
            raise
        plan = _best_so_far(run)
    known = sum(cost.source.is_measured for cost in run.costs.values())
    return ActivePlan(plan, known, len(planning.kernels), run.rounds)


class _Interrupted(Exception):
    """A solve was interrupted; its plan is the best of that solve."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


@dataclass
class _Run:
    """The loop: what is known of costs, and the plans so far."""

    planning: Planning
    limits: ActiveLimits
    costs: dict[str, OpCost]
    unknown: frozenset[str]
    found: list[Plan] = field(default_factory=list)
    rounds: int = 0
    start_s: float = field(default_factory=time.monotonic)

    def to_the_end(self) -> Plan:
        """The plan with which nothing new is needed, or the limits end the loop."""
        planning = self.planning
        for _ in range(self.limits.rounds):
            sketch = self._planned(planning.sketch, _optimistic(self.costs))
            if not self._learned_from(sketch):
                break
        plan = self._planned(planning.plan, self.costs)
        # Where the rounds ended early, the last plan may rely on kernels that no sketch has used.
        for _ in range(self.limits.rounds):
            if not self._learned_from(plan):
                break
            plan = self._planned(planning.plan, self.costs)
        return plan

    def _planned(self, planner: Planner, costs: Costs) -> Plan:
        problem = self.planning.problem_with(costs)
        plan = planner(problem, _cheapest(problem, self.found))
        self.found.append(plan)
        if plan.result.stopped_by is StopReason.INTERRUPTED:
            raise _Interrupted(plan if costs is self.costs else _with_costs(self, plan))
        return plan

    def _learned_from(self, plan: Plan) -> bool:
        """Measure what a plan relies on; False where the time is over or nothing is left to do."""
        if time.monotonic() - self.start_s >= self.limits.time_s:
            return False
        if not self._measure_more(plan):
            return False
        self.rounds += 1
        return True

    def _measure_more(self, plan: Plan) -> bool:
        """Measure what makes the plan uncertain; False when nothing is left to do."""
        planning, costs, limits = self.planning, self.costs, self.limits
        most = max(1, int(limits.kernels_ratio * len(planning.kernels)))
        room = most - sum(cost.source is CostSource.MEASURED for cost in costs.values())
        # Half of what may be measured is kept for the plans that follow from what is found now.
        now = max(0, math.ceil(room / 2))
        wanted = self._uncertain_kernels(plan)[:now]
        if wanted:
            costs.update(planning.measure([planning.kernels[symbol] for symbol in wanted]))
            costs.update(planning.correct(costs))
        return bool(wanted)

    def _uncertain_kernels(self, plan: Plan) -> list[str]:
        """Kernels of the plan to measure, the most uncertain first; none when little is uncertain."""
        costs = self.costs
        uses: Counter[str] = Counter()
        for step in plan.schedule.steps:
            if isinstance(step, Compute):
                uses[self.planning.kernel_of(step.op, step.device, step.variant)] += 1
        spread = {
            symbol: (costs[symbol].hi_us - costs[symbol].lo_us) * count
            for symbol, count in uses.items()
            if not costs[symbol].source.is_measured
        }
        total_us = sum(costs[symbol].compute_us * count for symbol, count in uses.items())
        allowed = self.limits.uncertain_ratio * total_us
        chosen: list[str] = []
        left = sum(spread.values())
        # Where a model has no ground, its interval says little of how far off it may be, and what others
        # are off by says no more.
        for symbol in sorted(spread, key=lambda name: (name not in self.unknown, -spread[name])):
            if left <= allowed:
                break
            chosen.append(symbol)
            left -= spread[symbol]
        return chosen


def _best_so_far(run: _Run) -> Plan:
    """The best earlier plan by the costs known so far."""
    problem = run.planning.problem_with(run.costs)

    def value(plan: Plan) -> float:
        return plan.result.objective.of(simulate(problem, plan.schedule))

    return _with_costs(run, min(run.found, key=value))


def _with_costs(run: _Run, plan: Plan) -> Plan:
    """An interrupted plan with the costs known so far instead of optimistic ones."""
    known = plan.under(run.planning.problem_with(run.costs))
    return replace(known, result=replace(known.result, stopped_by=StopReason.INTERRUPTED))


def _cheapest(problem: Problem, plans: Sequence[Plan]) -> Schedule | None:
    """The best schedule of earlier plans by the costs of `problem`."""
    values = [plan.result.objective.of(simulate(problem, plan.schedule)) for plan in plans]
    return plans[values.index(min(values))].schedule if plans else None


def _optimistic(costs: Costs) -> Costs:
    return {
        symbol: cost
        if cost.source.is_measured
        else replace(cost, compute_us=max(cost.lo_us, 1e-3), interval_us=None)
        for symbol, cost in costs.items()
    }
