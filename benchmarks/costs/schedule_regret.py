"""How much longer does a step take because it was planned with predicted costs?

Every kind of costs (measured, measured again, predicted, ...) makes plans with the real solver, and
all schedules are judged by one round of measurements that no plan has seen. The regret of a kind is
the judged time of its plan over that of the plan with measured costs, less one; it may be negative.

A solver that stops at a time limit ends somewhere near the best, by luck. To tell that from errors
of the costs, every kind plans twice:

- alone: the solver starts from nothing. How far two kinds of measured costs lie apart here is luck,
  and so is a part of every other number of this row.
- together: the solver starts again, from that schedule of all kinds that is cheapest by the costs of
  the kind. At the end each kind takes the cheapest, by itself, of all schedules of both rounds. Now
  nobody misses a schedule because the solver did not come across it, and each kind still follows
  its own errors as far as the solver can.

Measured costs are of the first round of measurements, "again" of the second; the last one judges. The
active loop sees the first round of what it measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_xengine.cost_models.active import (
    ActiveLimits,
    ActivePlan,
    Costs,
    Planner,
    Planning,
    plan_actively,
)
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate

MEASURED, ACTIVE = "measured", "active"


@dataclass(frozen=True)
class Case:
    """A step under a budget.

    Attributes
    ----------
    judge
        With the costs that judge.
    problem_with
        The same problem with other costs, by the symbol of the kernel.
    kinds
        The costs that plans are made with; `MEASURED` is one of them.
    active_from
        The kind that the active loop starts from, which measures what `MEASURED` says.
    kernels, kernel_of, correct
        As in `Planning`.
    """

    judge: Problem
    problem_with: Callable[[Costs], Problem]
    kinds: Mapping[str, Costs]
    active_from: str
    kernels: Mapping[str, DeviceKernel]
    kernel_of: Callable[[str, str], str]
    correct: Callable[[Costs], Costs]


@dataclass(frozen=True)
class Regrets:
    """By kind of costs; the active loop is a kind, too.

    Attributes
    ----------
    alone_ratio, together_ratio
        Judged time over that of the plan with measured costs of the same round, less one.
    measured_ratio
        Share of all kernels that the active loop has measured.
    """

    alone_ratio: Mapping[str, float]
    together_ratio: Mapping[str, float]
    measured_ratio: float


def regrets_of(case: Case, options: PlanOptions, limits: ActiveLimits) -> Regrets:
    """Plan with every kind of costs, alone and together, and judge."""
    problems = {name: case.problem_with(kind) for name, kind in case.kinds.items()}
    alone = {name: plan_schedule(problem, options) for name, problem in problems.items()}
    known = dict(case.kinds[case.active_from])
    active = _plan_actively(case, options, limits, known, [])
    alone[ACTIVE] = active.plan
    pool = [plan.schedule for plan in alone.values()]
    again = [
        plan_schedule(problem, options, start=_cheapest(problem, pool)).schedule
        for problem in problems.values()
    ]
    active = _plan_actively(case, options, limits, known, pool)
    pool += [*again, active.plan.schedule]
    problems[ACTIVE] = case.problem_with(case.correct(known))
    return Regrets(
        _judged(case, {name: plan.schedule for name, plan in alone.items()}),
        _judged(case, {name: _cheapest(problem, pool) for name, problem in problems.items()}),
        active.measured_kernels / active.all_kernels,
    )


def _plan_actively(
    case: Case,
    options: PlanOptions,
    limits: ActiveLimits,
    known: dict[str, OpCost],
    pool: Sequence[Schedule],
) -> ActivePlan:
    """The active loop from what is known so far, which grows."""
    half = replace(options.limits, time_limit_s=options.limits.time_limit_s / 2)

    def measure(kernels: Sequence[DeviceKernel]) -> Costs:
        now = {kernel.symbol: case.kinds[MEASURED][kernel.symbol] for kernel in kernels}
        known.update(now)
        return now

    def planner(options: PlanOptions) -> Planner:
        def plan(problem: Problem, start: Schedule | None) -> Plan:
            schedules = pool if start is None else [*pool, start]
            first = _cheapest(problem, schedules) if schedules else None
            return plan_schedule(problem, options, start=first)

        return plan

    planning = Planning(
        kernels=case.kernels,
        kernel_of=case.kernel_of,
        problem_with=case.problem_with,
        sketch=planner(replace(options, limits=half)),
        plan=planner(options),
        measure=measure,
        correct=case.correct,
    )
    return plan_actively(planning, known, limits)


def _cheapest(problem: Problem, schedules: Sequence[Schedule]) -> Schedule:
    return min(schedules, key=lambda schedule: simulate(problem, schedule).cost_us)


def _judged(case: Case, schedules: Mapping[str, Schedule]) -> Mapping[str, float]:
    times_us = {name: simulate(case.judge, each).cost_us for name, each in schedules.items()}
    return {name: time_us / times_us[MEASURED] - 1 for name, time_us in times_us.items()}
