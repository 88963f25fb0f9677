"""Combines the bounds of several answers to one question."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.solvers.request import PROOF_RATIO
from tvm_xengine.solvers.result import SolveResult, Status


def with_best_bound(result: SolveResult, other: SolveResult) -> SolveResult:
    """`result` with the bound of the other answer for the same budgets, where that is higher."""
    result = replace(result, order_bound=max(result.order_bound, other.order_bound))
    if result.value is None or other.scope is not result.scope or other.bound <= result.bound:
        return result
    bound = min(other.bound, result.value)
    is_proven = result.value - bound <= PROOF_RATIO * abs(result.value)
    return replace(result, bound=bound, status=Status.OPTIMAL if is_proven else result.status)


def with_bound_of(first: SolveResult, last: SolveResult) -> SolveResult:
    """The last answer, with the bound of the first: that was proven for the budgets asked for."""
    assert last.value is not None
    bound = min(first.bound, last.value)
    is_proven = last.value - bound <= PROOF_RATIO * abs(last.value)
    status = Status.OPTIMAL if is_proven else Status.FEASIBLE
    return replace(
        last, bound=bound, status=status, scope=first.scope, order_bound=first.order_bound
    )


def with_finder(result: SolveResult, solver: str) -> SolveResult:
    """The result; where its schedule is the one it began from, with the solver that found that one."""
    if not solver or not result.solver.endswith("(start)"):
        return result
    return replace(result, solver=solver)
