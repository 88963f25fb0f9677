"""The default solver: cheap answers first, then search and proof side by side."""

from __future__ import annotations

import threading
import time
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
_SMALL_OPS = 60
_PATIENCE_S = 2.0
"""On graphs up to so many ops the search rests when it has found nothing better for so long."""
_NAP_S = 0.02
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
        _Beside(prover, guide, best).run()
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


class _Beside:
    """A search that goes on until the gap is closed, nothing fits for certain, or time is up."""

    def __init__(self, prover: Prover, guide: Guide, best: Incumbent) -> None:
        self.prover, self.guide, self.best = prover, guide, best
        self.request = best.request
        self.is_small = len(best.problem.graph.ops) <= _SMALL_OPS
        self.improved_s = 0.0

    def run(self) -> None:
        """Search with one seed after the other, and rest where the proof needs the core more."""
        request = self.request
        if request.objective is Objective.MAKESPAN:
            self._search(Objective.COST, Limits(_COST_SHARE * request.remaining_s), request.seed)
        turn = 0
        while not self._is_over():
            self.improved_s = request.elapsed_s
            self._search(request.objective, Limits(request.remaining_s), request.seed + turn)
            while self._rests() and not self._is_over():
                time.sleep(_NAP_S)
            turn += 1

    def _search(self, objective: Objective, limits: Limits, seed: int) -> None:
        is_asked = objective is self.request.objective
        found = search(
            self.best.problem,
            objective=objective,
            limits=limits,
            seed=seed,
            start=self.best.schedule,
            on_improvement=self._improve if is_asked else None,
            should_stop=lambda: self._rests() or self._is_over(),
            guide=self.guide if is_asked else None,
        )
        if not is_asked or self.best.value is None:
            self.best.offer(found, "search")

    def _improve(self, value: float, schedule: Schedule) -> None:
        self.improved_s = self.request.elapsed_s
        self.best.offer(schedule, "search", value)

    def _rests(self) -> bool:
        return (
            self.is_small
            and self.best.value is not None
            and self.prover.is_at_work
            and not self.guide.has_hint
            and self.request.elapsed_s - self.improved_s > _PATIENCE_S
        )

    def _is_over(self) -> bool:
        if self.request.elapsed_s >= self.request.limits.time_limit_s:
            return True
        if self.best.value is None:
            return self.prover.proof(None).is_infeasible
        return self.prover.closes(self.best.value)


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
