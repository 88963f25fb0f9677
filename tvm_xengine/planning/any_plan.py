"""A plan of any cost, the same one however busy the machine is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.tighten import fit_layout, with_smaller_budgets
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas, quick_effort
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.relaxation.loads import floor_of
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Limits, Objective, SolveResult
from tvm_xengine.solvers.time_source import MACHINE_TIME, ThreadTime, TimeSource

_LEAST_S, _S_PER_OP = 1.0, 5e-3
"""Processor time for attempts: one on two hundred ops takes up to half a second, where nothing fits."""

_FIRST_SHARE = 0.3
"""Of that time in which the first attempt, whose layout fits in most budgets, looks for a cheaper
schedule; others take the first one, so that there are several."""


def any_plan_s(problem: Problem) -> float:
    """Processor time in which there is a plan of any cost, where greedy walks find one."""
    return max(_LEAST_S, _S_PER_OP * len(problem.graph.ops))


def any_plan(
    problem: Problem,
    objective: Objective = Objective.COST,
    *,
    processor_s: float | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
    clock: TimeSource = MACHINE_TIME,
) -> Plan | None:
    """A plan of the greedy solver, whatever it costs; None where it finds none.

    A search for a cheap schedule uses up the budgets, so that no layout of what it finds may fit.
    The first attempt always begins. The schedule does not depend on the objective, so that the
    smallest budget for which there is one does not either.

    Parameters
    ----------
    processor_s
        Attempts end after so much time of this thread, in which others do not count; by default
        `any_plan_s`.
    may_go_on
        Asked before each further attempt.
    clock
        Whose time of a thread that is.
    """
    processor_s = any_plan_s(problem) if processor_s is None else processor_s
    clock = ThreadTime(clock)
    request = Request(solver="greedy", backend="", limits=Limits(processor_s, clock=clock))

    def lay_out(result: SolveResult, _attempt: int) -> tuple[ArenaPlan, Mapping[str, int]]:
        assert result.schedule is not None
        effort = quick_effort(len(result.schedule.steps))
        arenas = plan_arenas(problem, result.schedule, effort=effort)
        return arenas, arenas.excess_bytes(problem.platform)

    def attempt(within: Problem, until_s: float) -> SolveResult | None:
        """The first schedule, or the best by then."""
        found: list[Schedule] = []

        def is_worth_it() -> bool:
            return not request.is_over and (not found or request.elapsed_s < until_s)

        greedy_schedule(
            within,
            on_schedule=lambda one, _: found.append(one),
            may_go_on=is_worth_it,
            clock=clock,
        )
        return conclude(within, request, found[-1], Proof(0.0), solver="greedy") if found else None

    def tightened(
        margin: Mapping[str, int], _attempt: int, _last: SolveResult
    ) -> SolveResult | None:
        if request.is_over or not may_go_on():
            return None
        smaller = with_smaller_budgets(problem, margin)
        return None if smaller is None else attempt(smaller, 0.0)

    first = attempt(problem.without_constraints, _FIRST_SHARE * processor_s)
    if first is None:
        return None
    try:
        result, arenas = fit_layout(first, lay_out, tightened)
    except NoScheduleError:
        return None
    schedule = result.schedule
    assert schedule is not None
    wanted = replace(request, objective=objective)
    proof = Proof(floor_of(problem, objective))
    result = conclude(problem, wanted, schedule, proof, solver="greedy")
    return Plan(problem, result, schedule, simulate(problem, schedule), arenas)
