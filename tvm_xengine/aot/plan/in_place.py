"""A training step whose state is copied whole, or stays where it lies: the better of two plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tvm_xengine.aot.plan.forms import Forms, RegionStep
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.any_plan import any_plan, any_plan_s
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.program.step_program import Operand
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.working_set import WorkingSets, working_sets

_FIRST_SHARE = 0.5
"""Share of the time limit for the plan with state in place; the other one gets what is left."""


@dataclass(frozen=True)
class Attempt:
    """One way to plan the step.

    Attributes
    ----------
    fixed
        Places of what the plan does not place.
    start_bytes
        What of that lies at the begin of each region.
    """

    forms: Forms
    fixed: Mapping[str, Operand]
    start_bytes: Mapping[str, int]

    @cached_property
    def whole(self) -> RegionStep:
        """The step on the whole batch, with all variants of its kernels."""
        return self.forms.with_variants(self.forms.whole)

    @cached_property
    def needs(self) -> WorkingSets:
        """What each op of it needs."""
        return working_sets(self.whole.problem)


PlanAttempt = Callable[[Forms, PlanOptions], tuple[LoweredStep, Plan]]
PlanWhole = Callable[[RegionStep, PlanOptions], Plan]


def better_plan(
    in_place: Attempt, copied: Attempt, options: PlanOptions, plan: PlanAttempt, whole: PlanWhole
) -> tuple[LoweredStep, Plan, Attempt]:
    """The plan of the shorter step, and which attempt it is of.

    Where there is a plan with state in place, the other one is looked for on the whole batch only, and not at
    all where an op does not fit, or computing alone takes as long: one processor computes.

    Raises
    ------
    NoScheduleError
        If none is found; it says what is needed where state is copied whole.
    """
    clock = Clock.of(options.limits, options.over_at_s)
    try:
        lowered, found = plan(in_place.forms, options.within(clock.share_s(_FIRST_SHARE)))
    except NoScheduleError as error:
        refused = error
    else:
        rest = options.within(max(clock.left_s, LEAST_SOLVE_S))
        other = _shorter(copied, found, rest, whole)
        if other is None:
            return lowered, found, in_place
        return copied.whole.lowered, other, copied
    try:
        return *plan(copied.forms, options.within(max(clock.left_s, LEAST_SOLVE_S))), copied
    except NoScheduleError as error:
        both_proven = refused.is_proven and error.is_proven
        raise NoScheduleError(str(error), is_proven=both_proven) from error


def _shorter(attempt: Attempt, found: Plan, options: PlanOptions, plan: PlanWhole) -> Plan | None:
    """A plan of a shorter step than one that is known."""
    computing_us = index_problem(attempt.whole.problem, Objective.COST).cheapest
    if attempt.needs.is_infeasible() or computing_us >= found.step_us():
        return None
    try:
        other = plan(attempt.whole, options)
    except NoScheduleError:
        return None
    return other if other.step_us() < found.step_us() else None


def budgets_in_place(
    attempt_in: Callable[[int], Attempt | None], copied: Attempt
) -> dict[str, int] | None:
    """Budgets that work with state in place, where they are smaller than an op needs with copies.

    Parameters
    ----------
    attempt_in
        Of a first region of so many bytes; None where no state would stay in place.
    """
    problem = copied.whole.problem
    first = problem.platform.computing[0]
    size_bytes = 2 * first.budget_bytes  # larger tiles are made where there is more room
    while size_bytes < copied.needs.least_bytes()[first.name]:
        attempt = attempt_in(size_bytes)
        if attempt is not None and not attempt.needs.is_infeasible():
            given = attempt.whole.problem
            plan = any_plan(given, Objective.MAKESPAN, processor_s=any_plan_s(given))
            if plan is not None:
                arenas, kept = plan.arenas.arena_bytes, attempt.start_bytes
                needed = {name: size + kept.get(name, 0) for name, size in arenas.items()}
                return {**needed, first.name: size_bytes}  # which the tiles were chosen for
        size_bytes *= 2
    return None
