"""The default solver: cheap answers first, proof as far as the time goes."""

from __future__ import annotations

from tvm_xengine.problem import Problem
from tvm_xengine.schedule import Schedule
from tvm_xengine.solvers.baselines.placed import keep_all
from tvm_xengine.solvers.exact import solve_tight
from tvm_xengine.solvers.greedy import greedy_schedule
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.request import PROOF_RATIO, Proof, Request, conclude
from tvm_xengine.solvers.result import Objective, SolveResult
from tvm_xengine.solvers.working_set import working_sets

_EXACT_OPS = 120
"""Up to this many ops the exact model is tried."""


def solve_automatically(problem: Problem, request: Request) -> SolveResult:
    """The best of keep-everything, greedy and, when a gap remains, the exact model."""
    sets = working_sets(problem)
    if sets.is_infeasible():
        proof = Proof(0.0, is_infeasible=True)
        return conclude(problem, request, None, proof, solver="auto", message=sets.binding())
    floor = cheapest(problem, request)
    best = _Best(problem, request)
    best.offer(request.start, "start")
    best.offer(keep_all(problem, request), "keep-all")
    if not best.is_within(floor):
        best.offer(greedy_schedule(problem, objective=request.objective), "greedy")
    proof, messages = Proof(floor), []
    if not best.is_within(floor) and is_exact_in_reach(problem, request):
        exact = solve_tight(problem, request)
        best.offer(exact.schedule, exact.solver)
        proof = Proof(exact.bound, exact.scope)
        messages.append(exact.message)
    return conclude(
        problem,
        request,
        best.schedule,
        proof,
        solver=f"auto ({best.source})" if best.source else "auto",
        message="; ".join(messages),
    )


def cheapest(problem: Problem, request: Request) -> float:
    """A bound without any search: every required op at its cheapest."""
    if request.objective is Objective.MAKESPAN:
        return 0.0
    return index_problem(problem, request.objective).cheapest


def is_exact_in_reach(problem: Problem, request: Request) -> bool:
    """Whether the stage model can express the objective and is small enough to be tried."""
    return request.objective is not Objective.MAKESPAN and len(problem.graph.ops) <= _EXACT_OPS


class _Best:
    """The best schedule offered so far."""

    def __init__(self, problem: Problem, request: Request) -> None:
        self._problem = problem
        self._request = request
        self.schedule: Schedule | None = None
        self.value: float | None = None
        self.source = ""

    def offer(self, schedule: Schedule | None, source: str) -> None:
        """Take `schedule` if the referee accepts it and it is better."""
        value = self._request.value_of(self._problem, schedule)
        if value is not None and (self.value is None or value < self.value):
            self.schedule, self.value, self.source = schedule, value, source
            self._request.say(f"{source}: {value:g}")

    def is_within(self, bound: float) -> bool:
        """Whether nothing that is worth looking for can be better."""
        if self.value is None:
            return False
        allowed = max(self._request.limits.gap_ratio, PROOF_RATIO)
        return self.value - bound <= allowed * self.value
