"""Answers of the baselines, in the form of every solver."""

from __future__ import annotations

from collections.abc import Callable

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.published.baselines.checkpointing import (
    recompute_all,
    revolve,
    rotor,
    sqrt_checkpointing,
)
from tvm_xengine.solvers.published.baselines.placed import keep_all
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Objective, SolveResult


def answer_baseline(problem: Problem, request: Request) -> SolveResult:
    """The schedule of the requested baseline; its bound is the sum of every op at its cheapest."""
    schedule = baselines()[request.solver](problem, request)
    is_makespan = request.objective is Objective.MAKESPAN
    bound = 0.0 if is_makespan else index_problem(problem, request.objective).cheapest
    return conclude(problem, request, schedule, Proof(bound), solver=request.solver)


def baselines() -> dict[str, Callable[[Problem, Request], Schedule | None]]:
    """Every baseline by name."""
    return {
        "greedy": lambda problem, request: greedy_schedule(
            problem,
            objective=request.objective,
            may_go_on=lambda: not request.is_over,
            clock=request.limits.clock,
        ),
        "keep-all": keep_all,
        "recompute-all": recompute_all,
        "revolve": revolve,
        "rotor": rotor,
        "sqrt-n": sqrt_checkpointing,
    }
