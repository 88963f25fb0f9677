"""A quick schedule for an interrupted solve."""

from __future__ import annotations

import time

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.portfolio.incumbent import Incumbent
from tvm_xengine.solvers.portfolio.options import DEFAULTS
from tvm_xengine.solvers.published.baselines.placed import keep_all
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import SolveResult


def quick_answer(problem: Problem, request: Request) -> SolveResult:
    """The better of the start and of keep-all, else the greedy schedule; no bound."""
    best = Incumbent(problem, request)
    best.offer(request.start, "start")
    best.offer(keep_all(problem, request), "keep-all")
    if best.value is None:
        until_s = time.perf_counter() + DEFAULTS.quick_s
        found = greedy_schedule(
            problem, objective=request.objective, may_go_on=lambda: time.perf_counter() < until_s
        )
        best.offer(found, "greedy")
    solver = f"{request.solver} ({best.source})" if best.source else request.solver
    return conclude(problem, request, best.schedule, Proof(0.0), solver=solver)
