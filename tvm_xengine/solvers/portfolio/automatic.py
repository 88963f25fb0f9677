"""The default solver: quick answers first, then search and proofs in parallel."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.exact import tight
from tvm_xengine.solvers.portfolio.incumbent import Incumbent
from tvm_xengine.solvers.portfolio.options import DEFAULTS, PortfolioOptions
from tvm_xengine.solvers.portfolio.proofs import Proofs
from tvm_xengine.solvers.published.baselines.placed import keep_all
from tvm_xengine.solvers.reach import cut_off
from tvm_xengine.solvers.relaxation.loads import floor_of
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Limits, Objective, Scope, SolveResult, Status
from tvm_xengine.solvers.working_set import working_sets


def solve_automatically(
    problem: Problem, request: Request, options: PortfolioOptions = DEFAULTS
) -> SolveResult:
    """The best of keep-all, greedy, search and, where the size allows, the exact model.

    Bounds are proven in parallel with the search, which stops as soon as the gap asked for is proven.
    The proof is for every schedule where possible, else for the graph's order of first runs;
    the result's scope says which.
    """
    sets = working_sets(problem)
    if sets.is_infeasible():
        proof = Proof(0.0, is_infeasible=True)
        return conclude(problem, request, None, proof, solver="auto", message=sets.binding())
    if cut := cut_off(problem):
        proof = Proof(0.0, is_infeasible=True)
        return conclude(problem, request, None, proof, solver="auto", message=cut)
    best = Incumbent(problem, request)
    best.offer(request.start, "start")
    best.offer(keep_all(problem, request), "keep-all")
    gap_ratio, floor = request.limits.gap_ratio, Proof(floor_of(problem, request.objective))
    if best.value is not None and Proofs(floor.bound, gap_ratio).is_closed(best.value, floor):
        return _concluded(best, floor, "")
    tiny = _solve_tiny(problem, request, options)
    if tiny is not None:
        return tiny
    from tvm_xengine.solvers.portfolio.loop import run_portfolio  # compiled code, seconds to load

    proof, order_bound, message = run_portfolio(best, floor.bound, options)
    return replace(_concluded(best, proof, message), order_bound=order_bound)


def _solve_tiny(
    problem: Problem, request: Request, options: PortfolioOptions
) -> SolveResult | None:
    """The proven optimum of a very small graph; None for others, or when it takes too long."""
    if len(problem.graph.ops) > options.tiny_ops or request.objective is Objective.MAKESPAN:
        return None
    from tvm_xengine.solvers.astar.alone import solve_by_astar  # compiled code, seconds to load

    until_s = request.elapsed_s + min(options.tiny_limit_s, request.remaining_s)
    result = solve_by_astar(
        problem, replace(request, limits=Limits(until_s, clock=request.limits.clock))
    )
    if result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return None
    return replace(result, solver="auto (astar)")


def _concluded(best: Incumbent, proof: Proof, message: str) -> SolveResult:
    sentences = [message] if message else []
    if proof.scope is Scope.STAGE_MODEL:
        sentences.append(f"the stage model has {tight.SCOPE}")
    if best.schedule is None and proof.is_infeasible and proof.scope is not Scope.EVERY_SCHEDULE:
        sentences.append(f"none fits of the {proof.scope.words.replace('better', 'possible')}")
    return conclude(
        best.problem,
        best.request,
        best.schedule,
        proof,
        solver=f"auto ({best.source})" if best.source else "auto",
        message="; ".join(sentences),
    )
