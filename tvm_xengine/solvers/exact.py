"""Solves a problem with a formulation and a backend."""

from __future__ import annotations

from tvm_xengine.problem import Problem
from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import run_backend
from tvm_xengine.solvers.formulations import tight
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Objective, Scope, SolveResult


def solve_tight(problem: Problem, request: Request, *, backend: str = "highs") -> SolveResult:
    """The optimum of the stage model `tight`, or the best that `backend` found in time.

    Raises
    ------
    ValueError
        If the objective is the makespan, which the model cannot express.
    SolverUnavailableError
        If the backend cannot run here.
    """
    if request.objective is Objective.MAKESPAN:
        raise ValueError("solver tight minimises cost or energy; use search or auto for makespan")
    indexed = index_problem(problem, request.objective)
    model = tight.formulate_tight(indexed)
    program = model.program
    request.say(f"tight: {program.column_count} columns, {program.row_count} rows, {backend}")
    answer = run_backend(
        backend,
        program,
        BackendOptions(
            time_limit_s=request.remaining_s,
            gap_ratio=request.limits.gap_ratio,
            seed=request.seed,
        ),
        floor=indexed.cheapest,
        on_incumbent=lambda _, value: request.say(f"tight: found {value:g}"),
    )
    schedule = model.schedule(answer.x) if answer.x is not None else None
    return conclude(
        problem,
        request,
        schedule,
        Proof(
            answer.bound if answer.outcome is not Outcome.INFEASIBLE else indexed.cheapest,
            Scope.STAGE_MODEL,
            is_infeasible=answer.outcome is Outcome.INFEASIBLE,
        ),
        solver=f"tight ({backend})",
        message=f"{backend}: {answer.message}; the bound holds for {tight.SCOPE}",
    )
