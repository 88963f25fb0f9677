"""The exact model and exhaustive search judge the local search; run by ``make oracle``.

Every problem is drawn with every feature of the problem definition: several outputs, views,
workspace, state on several homes, updates in place, ops that must not be repeated, devices that
only store, missing links.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.strategies import problems
from tvm_xengine.problem import Problem
from tvm_xengine.simulate import simulate
from tvm_xengine.solvers.exhaustive import solve_exhaustively
from tvm_xengine.solvers.result import Limits, Objective, Status
from tvm_xengine.solvers.search.driver import search
from tvm_xengine.solvers.solve import solve

pytestmark = [pytest.mark.slow, pytest.mark.oracle]

_EVALUATIONS = 300_000


def oracle(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ENERGY])
@oracle(200)
@given(problem=problems(max_ops=6, max_devices=2))
def test_search_finds_what_exhaustive_search_finds(objective: Objective, problem: Problem) -> None:
    exact = solve_exhaustively(problem, objective=objective, limits=Limits(5.0))
    if exact.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return
    found = search(problem, objective=objective, evaluations=_EVALUATIONS)
    assert (found is None) == (exact.schedule is None)
    if found is not None:
        assert objective.of(simulate(problem, found)) == pytest.approx(exact.value)


@oracle(100)
@given(problem=problems(max_ops=10, max_devices=3, max_state=4))
def test_search_is_never_worse_than_the_exact_model(problem: Problem) -> None:
    exact = solve(problem, "tight", limits=Limits(20.0))
    found = search(problem, evaluations=_EVALUATIONS)
    if exact.value is not None:
        assert found is not None
        assert simulate(problem, found).cost_us <= exact.value * (1 + 1e-6)


@oracle(40)
@given(problem=problems(max_ops=8, max_devices=3))
def test_auto_keeps_its_promises(problem: Problem) -> None:
    result = solve(problem, limits=Limits(5.0))
    exact = solve(problem, "tight", limits=Limits(20.0))
    if result.status is Status.INFEASIBLE:
        assert exact.value is None
    if exact.value is not None:
        assert result.value is not None
        assert result.value <= exact.value * (1 + 1e-6)
        assert result.bound <= exact.value * (1 + 1e-6) or result.scope.name != "EVERY_SCHEDULE"
