"""What a plan costs beside keeping all tensors, and beside the smallest arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.diagnosis import diagnose
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits

_SEARCH_WORK = 20.0
"""Work for the smallest arena, so that a report does not depend on how busy the machine is; ten greedy
schedules of a small network take a unit."""


@dataclass(frozen=True)
class Alternative:
    """One way to run a training step.

    Attributes
    ----------
    arena_bytes
        Of each region, state included.
    step_us
        Predicted time of a step.
    energy_uj
        0 where the platform has no energy figures.
    instructions
        Of the processor, estimated (`instructions`).
    """

    name: str
    arena_bytes: Mapping[str, int]
    step_us: float
    energy_uj: float
    instructions: float
    recomputed_ops: int
    transfers: int


def alternatives(
    plan: Plan, instructions: Callable[[Schedule], float], slices: int = 1
) -> tuple[Alternative, ...]:
    """The plan, keeping all tensors in the first region, and the smallest schedule that is known.

    All three run in the number of slices of the batch in which the plan does. The smallest one is the
    plan, or keeping all tensors, where greedy finds nothing smaller.
    """
    keep = plan_keep_all(plan.problem, plan.problem.platform.computing[0].name)
    known = [plan, keep, *_smallest_found(plan.problem)]
    named = {
        "plan": plan,
        "keep-all" if slices == 1 else f"keep-all, {slices} slices": keep,
        "smallest arena": min(known, key=lambda one: sum(one.arenas.arena_bytes.values())),
    }
    return tuple(_as_alternative(name, one, plan, instructions) for name, one in named.items())


def _smallest_found(problem: Problem) -> list[Plan]:
    """The schedule of the least memory that greedy finds, if it finds one below ample memory."""
    tight = problem.with_budgets({name: max(1, n) for name, n in problem.home_bytes.items()})
    request = Request(limits=Limits.by_work(_SEARCH_WORK))
    found = diagnose(tight, request, may_go_on=lambda: not request.is_over)
    if found.working_budget_bytes is None or found.working_schedule is None:
        return []
    enough = problem.with_budgets(found.working_budget_bytes)
    return [Plan.of_schedule(enough, found.working_schedule, "greedy")]


def _as_alternative(
    name: str, plan: Plan, like: Plan, instructions: Callable[[Schedule], float]
) -> Alternative:
    simulation = plan.simulation
    us = simulation.makespan_us if like.is_overlapped else simulation.cost_us
    return Alternative(
        name,
        dict(plan.arenas.arena_bytes),
        us,
        simulation.energy_uj,
        instructions(plan.schedule),
        plan.recomputed_ops,
        plan.schedule.transfers,
    )
