"""Time against the budget of one device: what is known of the front around a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_xengine.explain.prices.bound_price import BoundPrice
from tvm_xengine.explain.prices.memory_price import MemoryPrice, with_more_room
from tvm_xengine.explain.prices.smallest_budget import SmallestBudget
from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.pareto import ParetoPoint, pareto
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.question import PlanOptions
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, round_up
from tvm_xengine.solvers.result import Limits, Scope

POINTS = 6
"""Budgets of the front: enough to see where it bends, each a solve."""
_APART_RATIO = 0.02
"""Of the planned budget: a point so near to it would be solved for nothing."""
_MOST_RATIO = 2.0
"""Of the planned budget: more is far from what is asked where no schedule keeps all."""


@dataclass(frozen=True)
class FrontPoint:
    """A budget of the device, the others as they are.

    Attributes
    ----------
    value
        Of the best schedule found whose live bytes fit; None where none was. At the planned budget
        that of the plan.
    bound
        No schedule within the budget is better; 0 where nothing is proven.
    """

    budget_bytes: int
    value: float | None
    bound: float


def front(
    plan: Plan,
    device: str,
    smallest: SmallestBudget,
    measured: MemoryPrice | None,
    price: BoundPrice | None,
    time_limit_s: float,
) -> tuple[FrontPoint, ...]:
    """Points from the smallest budget known to what keeping all tensors takes, by rising budget.

    Parameters
    ----------
    smallest, measured, price
        What is known of other budgets already.
    time_limit_s
        For all solves together, and as much for what a larger budget has room to keep.
    """
    budget = plan.problem.platform.device(device).budget_bytes
    if budget >= UNLIMITED_BYTES:
        return ()
    asked = _budgets(plan, device, min(smallest.known_bytes, budget))
    limits = Limits(time_limit_s / len(asked))
    found = _solved_away_from(plan, device, asked, limits)
    own = plan.result.objective.of(plan.simulation)
    kept = _kept_with_room(plan, device, asked, time_limit_s)
    points = []
    bound = 0.0  # a bound for more memory holds for less
    for one in found:
        size, result = one.budgets[device], one.result
        proven = result.bound if result.scope is Scope.EVERY_SCHEDULE else 0.0
        if size == budget and plan.result.scope is Scope.EVERY_SCHEDULE:
            proven = max(proven, plan.result.bound)
        bound = max(bound, proven, price.at(size) if price else 0.0)
        known = [result.value, kept.get(size)]
        known.append(smallest.value if size >= smallest.known_bytes else None)
        if measured is not None and size >= budget + measured.more_bytes:
            known.append(own - measured.saved)
        best = min((v for v in known if v is not None), default=None)
        if size <= budget and best is not None:
            best = max(best, own)  # what beats the plan by its live bytes has no layout yet
        points.append(FrontPoint(size, best, bound if best is None else min(bound, best)))
    return tuple(reversed(points))


def _solved_away_from(
    plan: Plan, device: str, sizes: Sequence[int], limits: Limits
) -> Sequence[ParetoPoint]:
    """The answers for budgets by falling size; each solve begins with what its neighbour has found.

    The first ones, on both sides of the plan's budget, begin with the plan. A search that begins anew
    finds hardly more than a greedy schedule in its share of the time.
    """
    budget = plan.problem.platform.device(device).budget_bytes
    more = [{device: size} for size in sizes if size >= budget]
    less = [{device: size} for size in reversed(sizes) if size < budget]
    options = PlanOptions(objective=plan.result.objective, limits=limits)
    larger = pareto(plan.problem, more, options, start=plan.schedule)
    smaller = pareto(plan.problem, less, options, start=plan.schedule)
    return [*larger, *reversed(smaller)]


def _kept_with_room(
    plan: Plan, device: str, sizes: Sequence[int], time_limit_s: float
) -> Mapping[int, float]:
    """For the planned and every larger budget, the objective with what there is room to keep."""
    budget, objective = plan.problem.platform.device(device).budget_bytes, plan.result.objective
    clock, found = Clock(time_limit_s), {budget: objective.of(plan.simulation)}
    for size in sorted(size for size in sizes if size > budget):
        plan = with_more_room(plan, device, size, clock.left_s)
        found[size] = objective.of(plan.simulation)
    return found


def _budgets(plan: Plan, device: str, low: int) -> list[int]:
    """Budgets from `low` to what keeping all tensors takes, that of the plan included, by falling size.

    Larger budgets say nothing where the plan leaves room for another tensor of any size.
    """
    platform, graph = plan.problem.platform, plan.problem.graph
    budget = platform.device(device).budget_bytes
    high = _keep_all_bytes(plan, device) or int(_MOST_RATIO * budget)
    largest = max(tensor.size_bytes for tensor in graph.bases)
    if plan.arenas.arena_bytes[device] + largest <= budget:
        high = budget
    steps = np.linspace(low, max(low, high), POINTS)
    sizes = {round_up(int(size), platform.alignment_bytes) for size in steps}
    near = {size for size in sizes if abs(size - budget) < _APART_RATIO * budget} - {max(sizes)}
    return sorted({*sizes, budget} - {0, *(near - {budget})}, reverse=True)


def _keep_all_bytes(plan: Plan, device: str) -> int | None:
    """What keeping all tensors takes on a device; None where it cannot run the whole step."""
    try:
        alone, schedule = keep_all_on(plan.problem, device)
    except ValueError:
        return None
    return simulate(alone, schedule).peak_bytes[device]
