"""One entry point for every solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm_xengine.problem import Problem
from tvm_xengine.schedule import Schedule
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits, Objective, SolveResult


def solve(
    problem: Problem,
    solver: str = "auto",
    *,
    objective: Objective = Objective.COST,
    limits: Limits | None = None,
    seed: int = 0,
    start: Schedule | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> SolveResult:
    """The best schedule that `solver` finds within `limits`, and how good it provably is.

    Parameters
    ----------
    solver
        A key of `SOLVERS`.
    start
        A schedule to begin from; never made worse.
    on_progress
        Called with a sentence when there is news.

    Raises
    ------
    ValueError
        If there is no such solver, or it cannot minimise `objective`.
    SolverUnavailableError
        If the solver cannot run here: not installed, or its licence is too small.
    """
    if solver not in SOLVERS:
        raise ValueError(f"expected a solver among {sorted(SOLVERS)}, got {solver!r}")
    request = Request(objective, limits or Limits(), seed, start, on_progress)
    result = SOLVERS[solver](problem, request)
    if result.schedule is None and result.advice is None:
        from tvm_xengine.solvers.advice import advise

        result = replace(result, advice=advise(problem, request))
    return replace(result, solve_s=request.elapsed_s)


def _auto(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.automatic import solve_automatically

    return solve_automatically(problem, request)


def _tight(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.exact import solve_tight

    return solve_tight(problem, request)


def _exhaustive(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.exhaustive import solve_exhaustively

    return solve_exhaustively(problem, objective=request.objective, limits=request.limits)


SOLVERS: dict[str, Callable[[Problem, Request], SolveResult]] = {
    "auto": _auto,
    "exhaustive": _exhaustive,
    "tight": _tight,
}
"""Every solver by name; what a solver needs is imported when it is used."""
