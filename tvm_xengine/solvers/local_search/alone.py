"""The local search as a solver of its own, without proofs."""

from __future__ import annotations

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.driver import Exchange, search
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Limits, Objective, SolveResult


def search_alone(problem: Problem, request: Request) -> SolveResult:
    """The best schedule found within the time limit; the bound is the sum of every op at its cheapest.

    It ends early only at that bound, so give a time limit.
    """
    floor = 0.0
    if request.objective is not Objective.MAKESPAN:
        floor = index_problem(problem, request.objective).cheapest
    found: list[Schedule] = []

    def keep(value: float, schedule: Schedule) -> None:
        found.append(schedule)
        request.say_found(value, "local-search")
        if request.on_better is not None:
            request.on_better(value, schedule)

    try:
        search(
            problem,
            objective=request.objective,
            limits=Limits(request.remaining_s, clock=request.limits.clock),
            seed=request.seed,
            start=request.start,
            exchange=Exchange(on_improvement=keep, should_stop=lambda: request.is_over),
        )
    except KeyboardInterrupt:
        request.stop.set()
    schedule = found[-1] if found else None
    return conclude(problem, request, schedule, Proof(floor), solver="local-search")
