"""Cost and plan a lowered step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial

from tvm_xengine.compiler.costs import Costs, known_kernels, measured_costs, predicted_costs
from tvm_xengine.compiler.energy import check_energy
from tvm_xengine.compiler.kernel_choice import with_fastest_kernels
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.options import Budgets, CompileOptions, CostChoice
from tvm_xengine.compiler.problem import make_problem, op_costs
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.active import ActivePlan, Planning, plan_actively
from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.predict import predict_costs
from tvm_xengine.planning.clock import LEAST_SOLVE_S
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.planner import Plan, PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.result import Limits

_SKETCH_S = 10.0
"""Longest solve in a round of active measuring; a user waits for at most six of them."""
_SKETCH_SHARE, _PLAN_SHARE = 1 / 6, 3 / 4
"""Shares of what is left of the time limit: for one such round, so that six of them leave a third, and
for a plan after them, since that may be made once more with what it asks to be measured."""

_SKETCH_GAP_RATIO = 0.01
"""A round only has to show which kernels matter, so it need not prove the last percent."""


@dataclass(frozen=True)
class CostedStep:
    """A lowered step with the costs of its kernels and its scheduling problem.

    Attributes
    ----------
    lowered
        With the kernels that were chosen.
    problem
        With the costs below, and the budgets to plan for.
    costs
        Of every kernel, by symbol.
    correction
        Corrects predicted costs by measured ones; None where nothing was predicted by a model.
    """

    lowered: LoweredStep
    problem: Problem
    choice: CostChoice
    costs: Costs
    correction: Correction | None = None

    def with_budgets(self, budgets: Budgets) -> CostedStep:
        """The same step under other budgets.

        Raises
        ------
        InvalidPlatformError
            If a device is not on the platform.
        """
        return replace(self, problem=self.problem.with_budgets(budgets.of(self.problem)))

    def with_costs(self, costs: Costs) -> Problem:
        """The problem with other costs, under the same budgets."""
        return replace(self.problem, costs=op_costs(self.lowered, lambda _: costs))


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


def plan_step(
    lowered: LoweredStep,
    options: CompileOptions,
    stores: Stores | None = None,
    reporter: Reporter | None = None,
) -> PlannedStep:
    """Cost the kernels as `options` say and plan the step under their budgets.

    Raises
    ------
    NoScheduleError
        If no schedule fits the budgets.
    InvalidPlatformError
        If budgets name unknown devices, or energy is the objective and no device states any.
    """
    stores, reporter = stores or Stores.open(options), reporter or Reporter()
    options.budgets.check(lowered.platform)
    costed = cost_step(lowered, options.costs, stores, reporter).with_budgets(options.budgets)
    return plan_costed(costed, options.plan, stores, reporter)


def cost_step(
    lowered: LoweredStep, choice: CostChoice, stores: Stores, reporter: Reporter
) -> CostedStep:
    """The step with costs from the source that `choice` names.

    Measured costs also choose the faster kernel on devices with kernel source ``auto``. ``active`` starts
    with predictions; `plan_costed` measures.
    """
    correction = None
    match choice:
        case CostChoice.MEASURED:
            measured = measured_costs(stores.measurements, store=stores.kernels, reporter=reporter)
            lowered = with_fastest_kernels(lowered, measured, stores.tuned)
            costs = measured(lowered.distinct)
        case CostChoice.ROOFLINE:
            costs = predict_costs(lowered.distinct, None)
        case CostChoice.PREDICTED | CostChoice.ACTIVE:
            costs, correction = predicted_costs(lowered.distinct, reporter)
    problem = make_problem(lowered, lambda _: costs)
    return CostedStep(lowered, problem, choice, costs, correction)


def plan_costed(
    costed: CostedStep, options: PlanOptions, stores: Stores, reporter: Reporter
) -> PlannedStep:
    """Plan a costed step; with ``active`` costs the kernels that the plan relies on are measured."""
    check_energy(costed.problem.platform, options.objective)
    if costed.choice is CostChoice.ACTIVE:
        active = _plan_with_active_costs(costed, options, stores, reporter)
        return PlannedStep(costed.lowered, active.plan, active.measured_kernels)
    measured = len(costed.lowered.distinct) if costed.choice is CostChoice.MEASURED else 0
    plan = _plan(costed.problem, options, reporter, None)
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
    costed: CostedStep, options: PlanOptions, stores: Stores, reporter: Reporter
) -> ActivePlan:
    """Plan with active costs. All solves share the time limit; time for measuring does not count."""
    lowered, cache = costed.lowered, stores.measurements
    measure = measured_costs(cache, store=stores.kernels, reporter=reporter)
    left_s = options.limits.time_limit_s

    def planned(
        problem: Problem, start: Schedule | None, *, share: float, most_s: float, gap_ratio: float
    ) -> Plan:
        nonlocal left_s
        limits = Limits(max(LEAST_SOLVE_S, min(most_s, share * left_s)), gap_ratio)
        began_s = time.perf_counter()
        try:
            return _plan(problem, replace(options, limits=limits), reporter, start)
        finally:
            left_s -= time.perf_counter() - began_s

    gap_ratio = options.limits.gap_ratio
    planning = Planning(
        kernels={kernel.symbol: kernel for kernel in lowered.distinct},
        kernel_of=lambda op, device: lowered.kernel(op, device).symbol,
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
    known = known_kernels(lowered.distinct, cache)
    return plan_actively(planning, {**costed.costs, **(measure(known) if known else {})})


def plan_keep_all(problem: Problem, device: str) -> Plan:
    """The plan that keeps every tensor until its last use, all on one device, without budget.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    return Plan.of_schedule(*keep_all_on(problem, device), solver="keep all")
