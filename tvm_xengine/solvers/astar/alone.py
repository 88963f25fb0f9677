"""The shortest-path search as a solver of its own."""

from __future__ import annotations

import math

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.astar.search import Exchange, shortest_path
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import SolveResult


def solve_by_astar(problem: Problem, request: Request) -> SolveResult:
    """The optimum among every schedule, or the bound proven within the limit.

    Raises
    ------
    ValueError
        If the objective is the makespan, which is not a sum over steps.
    """
    value = request.value_of(problem, request.start)
    found = shortest_path(
        problem,
        request.objective,
        Exchange(known=lambda: value, should_stop=lambda: request.is_over),
        clock=request.limits.clock,
    )
    if found is None:
        message = (
            "shortest paths over states need at most 64 ops, links between all devices, and no"
            " detour cheaper than a link; use --solver auto"
        )
        return conclude(
            problem, request, request.start, Proof(0.0), solver="astar", message=message
        )
    is_infeasible = math.isinf(found.bound)
    return conclude(
        problem,
        request,
        found.schedule or request.start,
        Proof(0.0 if is_infeasible else found.bound, is_infeasible=is_infeasible),
        solver="astar",
        message=f"{found.expanded} states",
    )
