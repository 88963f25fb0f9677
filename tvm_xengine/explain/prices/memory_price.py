"""What more memory would buy, measured by solving again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_xengine.errors import NoScheduleError
from tvm_xengine.explain.prices.bound_price import BoundPrice
from tvm_xengine.planning.alternatives.savings import with_savings
from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.graph import MAX_BYTES
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, round_up
from tvm_xengine.solvers.result import Limits

MORE_RATIO = 0.1
"""By how much a budget is raised: the question people ask, and enough for whole tensors to fit."""
_MIB = 2**20
_LEAST_SAVINGS_S = 5.0
"""Time for what there is room to keep, at least: a fraction of a second for a hundred ops on a free
processor, and a reader would find by hand what was not tried."""
_SAME_RATIO = 1e-9
"""Values closer than this are equal but for rounding in sums."""


@dataclass(frozen=True)
class MemoryPrice:
    """What a larger budget of one device buys, the others as they are.

    Attributes
    ----------
    more_bytes
        By how much the budget was raised.
    saved
        By how much the objective fell, in its unit: at least so much can be saved.
    saved_at_most
        What the bound for the larger budget leaves; no schedule within it saves more.
    saved_per_mib
        `saved` by MiB of `more_bytes`.
    needs_more
        False where the better schedule fits the planned budget as well, so that what was saved
        is owed to the time of the search and not to memory.
    solve_s
        How long it was solved again.
    """

    device: str
    more_bytes: int
    saved: float
    saved_at_most: float
    saved_per_mib: float
    needs_more: bool
    solve_s: float


def memory_price(
    plan: Plan, device: str, time_limit_s: float, known: BoundPrice | None = None
) -> MemoryPrice | None:
    """The price of memory of a device; None where its memory is not limited or nothing was found.

    The solve begins from the plan's schedule without what there is now room to keep, so that it
    finds nothing worse than what the alternatives of single tensors say.

    Parameters
    ----------
    known
        A bound for every budget, which may be better than that of the solve.
    """
    problem, objective = plan.problem, plan.result.objective
    budget = problem.platform.device(device).budget_bytes
    if budget >= UNLIMITED_BYTES:
        return None
    alignment = problem.platform.alignment_bytes
    more = round_up(max(1, int(MORE_RATIO * budget)), alignment)
    larger = problem.with_budgets({device: min(budget + more, MAX_BYTES)})
    options = PlanOptions(objective=objective, limits=Limits(time_limit_s))
    roomier = with_more_room(plan, device, budget + more, time_limit_s)
    try:
        found = plan_schedule(larger, options, start=roomier.schedule)
    except NoScheduleError:
        return None
    value = objective.of(plan.simulation)
    saved = max(0.0, value - objective.of(found.simulation))
    if saved <= _SAME_RATIO * value:
        saved = 0.0
    needs_more = any(
        found.arenas.arena_bytes[one.name] > one.budget_bytes for one in problem.platform.devices
    )
    bound = max(found.result.bound, known.at(budget + more) if known else 0.0)
    at_most = max(saved, value - bound)
    if at_most <= _SAME_RATIO * value:
        at_most = 0.0
    return MemoryPrice(
        device, more, saved, at_most, saved / (more / _MIB), needs_more, found.result.solve_s
    )


def with_more_room(plan: Plan, device: str, budget_bytes: int, time_limit_s: float) -> Plan:
    """The plan under a larger budget of a device, without what there is now room to keep.

    Its bound is that of the smaller budget, which says nothing about the larger one.
    """
    clock = Clock(max(time_limit_s, _LEAST_SAVINGS_S))
    larger = plan.problem.with_budgets({device: min(budget_bytes, MAX_BYTES)})
    return with_savings(replace(plan, problem=larger), lambda: clock.left_s <= 0)
