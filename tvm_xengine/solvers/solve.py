"""One entry point for every solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
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
    InvalidProblemError
        If the step delivers nothing: no output and no new state.
    ValueError
        If there is no such solver, or it cannot minimise `objective`.
    SolverUnavailableError
        If the solver cannot run here: not installed, or its licence is too small.
    """
    if solver not in SOLVERS:
        raise ValueError(f"expected a solver among {sorted(SOLVERS)}, got {solver!r}")
    if not problem.graph.outputs and not problem.graph.updated_by:
        raise InvalidProblemError(
            "the graph has no outputs and updates no state, so there is nothing to schedule; name the"
            " tensors that the step delivers in `outputs`"
        )
    request = Request(objective, limits or Limits(), seed, start, on_progress)
    result = SOLVERS[solver](problem, request)
    if result.schedule is None and result.advice is None:
        from tvm_xengine.solvers.diagnosis import advise

        result = replace(result, advice=advise(problem, request))
    return replace(result, solve_s=request.elapsed_s)


def _auto(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.portfolio.automatic import solve_automatically
    from tvm_xengine.solvers.presolve import solved_without_matched_devices

    return solved_without_matched_devices(solve_automatically, problem, request)


def _search(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.local_search.alone import search_alone
    from tvm_xengine.solvers.presolve import solved_without_matched_devices

    return solved_without_matched_devices(search_alone, problem, request)


def _formulated(name: str, backend: str) -> Callable[[Problem, Request], SolveResult]:
    def solve_it(problem: Problem, request: Request) -> SolveResult:
        from tvm_xengine.solvers.exact.solve import solve_formulated

        return solve_formulated(problem, request, name=name, backend=backend)

    return solve_it


def _astar(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.astar.alone import solve_by_astar  # compiled code
    from tvm_xengine.solvers.presolve import solved_without_matched_devices

    return solved_without_matched_devices(solve_by_astar, problem, request)


def _rounding(problem: Problem, request: Request) -> SolveResult:
    from tvm_xengine.solvers.published.rounding import solve_by_rounding

    return solve_by_rounding(problem, request)


def _baseline(name: str) -> Callable[[Problem, Request], SolveResult]:
    def answer_it(problem: Problem, request: Request) -> SolveResult:
        from tvm_xengine.solvers.published.baselines.answer import answer_baseline

        return answer_baseline(problem, request, name)

    return answer_it


SOLVERS: dict[str, Callable[[Problem, Request], SolveResult]] = {
    "auto": _auto,
    "search": _search,
    "astar": _astar,
    "tight": _formulated("tight", "highs"),
    "tight-scip": _formulated("tight", "scip"),
    "tight-gurobi": _formulated("tight", "gurobi"),
    "xengine": _formulated("xengine", "scip"),
    "xengine-gurobi": _formulated("xengine", "gurobi"),
    "xengine-highs": _formulated("xengine-flows", "highs"),
    "checkmate": _formulated("checkmate", "highs"),
    "checkmate-scip": _formulated("checkmate", "scip"),
    "checkmate-gurobi": _formulated("checkmate", "gurobi"),
    "checkmate-rounding": _rounding,
    "retention": _formulated("retention", "cpsat"),
    "poet": _formulated("poet", "highs"),
    "poet-gurobi": _formulated("poet", "gurobi"),
    **{
        name: _baseline(name)
        for name in ("greedy", "keep-all", "recompute-all", "revolve", "rotor", "sqrt-n")
    },
}
"""Every solver by name; what a solver needs is imported when it is used."""
