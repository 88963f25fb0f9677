"""The default solver: cheap answers first, then search and proof side by side."""

from __future__ import annotations

import threading
from dataclasses import replace

from tvm_xengine.problem import Problem
from tvm_xengine.schedule import Schedule
from tvm_xengine.solvers.baselines.placed import keep_all
from tvm_xengine.solvers.exhaustive import solve_exhaustively
from tvm_xengine.solvers.formulations import tight
from tvm_xengine.solvers.greedy import greedy_schedule
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.prover import Prover, is_closed
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Limits, Objective, Scope, SolveResult, Status
from tvm_xengine.solvers.search.driver import search
from tvm_xengine.solvers.search.guide import Guide
from tvm_xengine.solvers.working_set import working_sets

_TINY_OPS = 6
_TINY_LIMIT_S = 3.0
"""Up to so many ops exhaustive search is tried first, for so long."""
_COST_SHARE = 0.2
"""Share of the time for the cheapest schedule, from which the makespan is then improved."""


def solve_automatically(problem: Problem, request: Request) -> SolveResult:
    """The best of keep-everything, greedy, search and, where the size allows, the exact model.

    Bounds are proven beside the search, and it stops as soon as the gap asked for is proven.
    The proof is for every schedule where possible, else for the graph's order of first runs;
    the result's scope says which.
    """
    sets = working_sets(problem)
    if sets.is_infeasible():
        proof = Proof(0.0, is_infeasible=True)
        return conclude(problem, request, None, proof, solver="auto", message=sets.binding())
    best = Incumbent(problem, request)
    best.offer(request.start, "start")
    best.offer(keep_all(problem, request), "keep-all")
    floor = Proof(_floor(problem, request))
    if best.value is not None and is_closed(best.value, floor, request):
        return _concluded(best, floor, "")
    tiny = _solve_tiny(problem, request)
    if tiny is not None:
        return tiny
    guide = Guide(problem, request.objective, lambda schedule: best.offer(schedule, "relaxation"))
    prover = Prover(problem, request, best.snapshot, best.offer, guide.take)
    try:
        best.offer(greedy_schedule(problem, objective=request.objective), "greedy")
        _search_beside(prover, guide, best)
    except KeyboardInterrupt:
        request.say("interrupted; this is the best so far")
    finally:
        prover.stop()
    return _concluded(best, prover.proof(best.value), prover.message)


def _solve_tiny(problem: Problem, request: Request) -> SolveResult | None:
    """The proven optimum of a graph of a few ops; None for others, or when it takes too long."""
    if len(problem.graph.ops) > _TINY_OPS or request.objective is Objective.MAKESPAN:
        return None
    limits = Limits(min(_TINY_LIMIT_S, request.remaining_s))
    result = solve_exhaustively(problem, objective=request.objective, limits=limits)
    if result.status is Status.NO_SOLUTION:
        return None
    return replace(result, solver="auto (exhaustive)")


class Incumbent:
    """The best schedule offered so far, from any thread."""

    def __init__(self, problem: Problem, request: Request) -> None:
        self.problem = problem
        self.request = request
        self.schedule: Schedule | None = None
        self.value: float | None = None
        self.source = ""
        self._lock = threading.Lock()

    def offer(self, schedule: Schedule | None, source: str, value: float | None = None) -> None:
        """Take `schedule` if the referee accepts it and it is better.

        `value` is what the referee has said already, if it has.
        """
        if value is None:
            value = self.request.value_of(self.problem, schedule)
        with self._lock:
            if value is not None and (self.value is None or value < self.value):
                self.schedule, self.value, self.source = schedule, value, source
                self.request.say(f"{source}: {value:g}")

    def snapshot(self) -> tuple[float, Schedule] | None:
        """(value, schedule) of the best so far."""
        with self._lock:
            if self.value is None or self.schedule is None:
                return None
            return self.value, self.schedule


def _search_beside(prover: Prover, guide: Guide, best: Incumbent) -> None:
    """Search until the gap is closed, nothing fits for certain, or time is up."""
    request, problem = best.request, best.problem

    def is_settled() -> bool:
        if prover.proof(None).is_infeasible:
            return True
        return best.value is not None and prover.closes(best.value)

    if request.objective is Objective.MAKESPAN:
        limits = Limits(_COST_SHARE * request.remaining_s)
        best.offer(search(problem, limits=limits, seed=request.seed, start=best.schedule), "search")
    turn = 0
    while not is_settled() and request.elapsed_s < request.limits.time_limit_s:
        found = search(
            problem,
            objective=request.objective,
            limits=Limits(request.remaining_s),
            seed=request.seed + turn,
            start=best.schedule,
            on_improvement=lambda value, schedule: best.offer(schedule, "search", value),
            should_stop=is_settled,
            guide=guide,
        )
        if best.value is None:
            best.offer(found, "search")
        turn += 1


def _floor(problem: Problem, request: Request) -> float:
    """A bound without any search: every required op at its cheapest."""
    if request.objective is Objective.MAKESPAN:
        return 0.0
    return index_problem(problem, request.objective).cheapest


def _concluded(best: Incumbent, proof: Proof, message: str) -> SolveResult:
    sentences = [message] if message else []
    if proof.scope is Scope.GIVEN_ORDER:
        sentences.append(f"the bound holds for {proof.scope.value}")
    if proof.scope is Scope.STAGE_MODEL:
        sentences.append(f"the bound holds for {tight.SCOPE}")
    return conclude(
        best.problem,
        best.request,
        best.schedule,
        proof,
        solver=f"auto ({best.source})" if best.source else "auto",
        message="; ".join(sentences),
    )
