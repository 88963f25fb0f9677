"""The last pass over a plan: what it drops and brings back, though there is room to keep it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tvm_xengine.planning.alternatives.changed_schedule import Alternative, PlannedSteps, Way
from tvm_xengine.planning.answers import with_bound_of
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.residency import Instance
from tvm_xengine.scheduling.simulate import live_bytes, simulate, step_us

_LEAST_RATIO = 1e-6
"""A smaller share of the objective is not worth another layout; rounding errors are below it."""


@dataclass(frozen=True)
class _Return:
    """A step that brings a tensor back to a device, by a recomputation or a copy.

    Attributes
    ----------
    later
        How many stays of the tensor on the device begin after it.
    """

    tensor: str
    device: str
    later: int
    step: int
    time_us: float

    @property
    def key(self) -> tuple[str, str, int]:
        """What stays the same when an earlier return is left out."""
        return self.tensor, self.device, self.later


def with_savings(plan: Plan, is_over: Callable[[], bool]) -> Plan:
    """The plan without the recomputations and copies that it has room to do without, longest first.

    First without the steps that serve nothing, such as a copy that is freed unread.

    Searches leave some where budgets were tightened for a layout, or where time ran out. Every change
    is simulated and laid out; the bound of the plan still holds.

    Parameters
    ----------
    is_over
        Whether the time is up.
    """
    first: Plan | None = None
    if not is_over():
        idle = PlannedSteps(plan).without_idle()
        plan = plan if idle is None else _accepted(plan, idle) or plan
    while plan is not first:  # what did not fit may do so once something else is gone
        first, tried = plan, set[tuple[str, str, int]]()
        better: Plan | None = plan
        while better is not None:
            plan, better = better, _without_one(better, tried, is_over)
    return plan


def _without_one(
    plan: Plan, tried: set[tuple[str, str, int]], is_over: Callable[[], bool]
) -> Plan | None:
    """The plan with one tensor kept that returned; None where no such plan is better and fits."""
    planned = PlannedSteps(plan)
    for one in sorted(_returns(plan), key=lambda one: -one.time_us):
        if is_over():
            return None
        if one.key in tried:
            continue
        tried.add(one.key)
        place = planned.position[one.step]
        kept = planned.changed(Way.KEEP, f"keep {one.tensor} on {one.device}", [(place, ())])
        if kept is not None and (better := _accepted(plan, kept)) is not None:
            return better
    return None


def _accepted(plan: Plan, other: Alternative) -> Plan | None:
    """The plan of an alternative, where that is better and fits."""
    objective = plan.result.objective
    least = _LEAST_RATIO * objective.of(plan.simulation)
    if other.arenas is None or not other.fits or other.difference > -least:
        return None
    simulation = simulate(plan.problem, other.schedule)
    result = replace(plan.result, schedule=other.schedule, value=objective.of(simulation))
    result = with_bound_of(plan.result, result)
    return Plan(plan.problem, result, other.schedule, simulation, other.arenas)


def _returns(plan: Plan) -> Iterator[_Return]:
    """Every return of a tensor that there is room to keep until then, by live bytes."""
    problem, residency = plan.problem, plan.arenas.residency
    live = live_bytes(problem, plan.schedule, residency)
    stays: dict[tuple[str, str], list[Instance]] = defaultdict(list)
    for instance in residency.instances:
        stays[instance.tensor, instance.device].append(instance)
    for (tensor, device), found in stays.items():
        budget_bytes = problem.platform.device(device).budget_bytes
        for later, (after, before) in enumerate(pairwise(reversed(found))):
            between = live[device][before.end + 1 : after.start]
            if max(between, default=0) + after.size_bytes <= budget_bytes:
                time_us = step_us(problem, plan.schedule.steps[after.start])
                yield _Return(tensor, device, later, after.start, time_us)
