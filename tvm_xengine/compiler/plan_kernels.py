"""Plan a costed step with the kernels that it has, whose costs may be measured on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.costing.costs import known_kernels, measured_costs
from tvm_xengine.compiler.costing.step_caches import step_caches
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.active import ActivePlan, Planning, plan_actively
from tvm_xengine.planning.answers import with_finder
from tvm_xengine.planning.clock import LEAST_SOLVE_S, grace_s
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.result import SolveResult, StopReason

_SKETCH_S = 10.0
"""Longest solve in a round of active measuring; a user waits for at most six of them."""
_SKETCH_SHARE, _PLAN_SHARE = 1 / 6, 3 / 4
"""Shares of what is left of the time limit: for one such round, so that six of them leave a third, and
for a plan after them, since that may be made once more with what it asks to be measured."""
_SKETCH_GAP_RATIO = 0.01
"""A round only has to show which kernels matter, so it need not prove the last percent."""


@dataclass(frozen=True)
class PlannedStep:
    """A lowered step with its plan.

    Attributes
    ----------
    lowered
        With the kernels that were chosen.
    measured_kernels
        Number of kernels of the step with measured costs.
    """

    lowered: LoweredStep
    plan: Plan
    measured_kernels: int

    def taking(self, solve_s: float) -> PlannedStep:
        """The same, found in so much time."""
        return self._with_result(replace(self.plan.result, solve_s=solve_s))

    def interrupted(self) -> PlannedStep:
        """The same, as what a search had when an interrupt ended it."""
        return self._with_result(replace(self.plan.result, stopped_by=StopReason.INTERRUPTED))

    def _with_result(self, result: SolveResult) -> PlannedStep:
        return replace(self, plan=replace(self.plan, result=result))


def plan_kernels(
    costed: CostedStep,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    start: Schedule | None = None,
) -> PlannedStep:
    """Plan a costed step with the kernels that it has."""
    if costed.choice is CostChoice.ACTIVE:
        active = _plan_with_active_costs(costed, options, stores, reporter, start)
        return PlannedStep(costed.lowered, active.plan, active.measured_kernels)
    plan = _plan(costed.problem, options, reporter, start)
    result = with_finder(plan.result, _first_by(start, options))
    return planned_as(costed, replace(plan, result=result))


def planned_as(costed: CostedStep, plan: Plan) -> PlannedStep:
    """A costed step with a plan of it."""
    measured = len(costed.lowered.distinct) if costed.choice is CostChoice.MEASURED else 0
    return PlannedStep(costed.lowered, plan, measured)


def _plan(
    problem: Problem, options: PlanOptions, reporter: Reporter, start: Schedule | None
) -> Plan:
    reporter.status("solving")
    try:
        return plan_schedule(
            problem, options, lambda text: reporter.status(f"solving: {text}"), start=start
        )
    finally:
        reporter.status("")


def _plan_with_active_costs(
    costed: CostedStep,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    given: Schedule | None,
) -> ActivePlan:
    """Plan with active costs. All solves share the time limit; time for measuring does not count.

    The first solve begins from the given schedule, later ones from the best so far.
    """
    lowered, cache = costed.lowered, stores.measurements
    caches = step_caches(lowered)
    measure = measured_costs(cache, store=stores.kernels, reporter=reporter, caches=caches)
    left_s, solved_s = options.limits.time_limit_s, 0.0
    found_by = _first_by(given, options)

    def planned(
        problem: Problem, start: Schedule | None, *, share: float, most_s: float, gap_ratio: float
    ) -> Plan:
        nonlocal left_s, solved_s, found_by
        limit_s = max(LEAST_SOLVE_S, min(most_s, share * left_s))
        limits = replace(options.limits, time_limit_s=limit_s, gap_ratio=gap_ratio)
        began_s = limits.clock.now_s()
        over_at_s = began_s + left_s + grace_s(options.limits.time_limit_s)
        wanted = replace(options, limits=limits, over_at_s=over_at_s)
        try:
            plan = _plan(problem, wanted, reporter, start or given)
            result = with_finder(plan.result, found_by)
            found_by = result.solver
            return replace(plan, result=result)
        finally:
            took_s = limits.clock.now_s() - began_s
            left_s, solved_s = left_s - took_s, solved_s + took_s

    gap_ratio = options.limits.gap_ratio
    planning = Planning(
        kernels={kernel.symbol: kernel for kernel in lowered.distinct},
        kernel_of=lambda *run: lowered.kernel(*run).symbol,
        problem_with=costed.with_costs,
        sketch=partial(
            planned,
            share=_SKETCH_SHARE,
            most_s=_SKETCH_S,
            gap_ratio=max(_SKETCH_GAP_RATIO, gap_ratio),
        ),
        plan=partial(planned, share=_PLAN_SHARE, most_s=math.inf, gap_ratio=gap_ratio),
        measure=measure,
    )
    if costed.correction is not None:
        planning = replace(planning, correct=costed.correction.corrected)
    known = [
        kernel
        for kernel in known_kernels(lowered.distinct, cache, caches)
        if not costed.costs[kernel.symbol].source.is_measured
    ]
    found = plan_actively(planning, {**costed.costs, **(measure(known) if known else {})})
    result = replace(found.plan.result, solve_s=solved_s)
    return replace(found, plan=replace(found.plan, result=result))


def _first_by(start: Schedule | None, options: PlanOptions) -> str:
    """What found the schedule to begin from: :func:`any_plan` did, if there is one."""
    return "" if start is None else f"{options.solver} (greedy)"
