"""The exact model and exhaustive search judge the local search; run by ``make oracle``.

Every problem is drawn with every feature of the problem definition: several outputs, views,
workspace, state on several homes, updates in place, ops that must not be repeated, devices that
only store, missing links.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.strategies import problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.result import Limits, Objective, Status
from tvm_xengine.solvers.solve import solve

pytestmark = [pytest.mark.slow, pytest.mark.oracle]

_EVALUATIONS = 100_000
_MISSED_SHARE = 0.01
"""The search may miss so many optima: it is a heuristic, and there are problems like sliding puzzles,
where every tensor has to be evicted for another. `auto` may miss none."""


def oracle(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ENERGY])
def test_search_finds_what_exhaustive_search_finds(objective: Objective) -> None:
    missed: list[Problem] = []
    judged = 0

    @oracle(300)
    @given(problem=problems(max_ops=6, max_devices=2))
    def judge(problem: Problem) -> None:
        nonlocal judged
        exact = solve_exhaustively(problem, objective=objective.value)
        if not exact.is_proven:
            return
        judged += 1
        found = search(problem, objective=objective, evaluations=_EVALUATIONS)
        if found is None:
            missed.extend([problem] if exact.schedule is not None else [])
            return
        value = objective.of(simulate(problem, found))
        assert exact.value is not None
        assert value >= exact.value * (1 - 1e-6)
        missed.extend([problem] if value > exact.value * (1 + 1e-6) else [])

    judge()
    assert judged > 200
    assert len(missed) <= _MISSED_SHARE * judged, missed


def test_search_is_never_worse_than_the_exact_model() -> None:
    missed: list[Problem] = []
    judged = 0

    @oracle(150)
    @given(problem=problems(max_ops=10, max_devices=3, max_state=4))
    def judge(problem: Problem) -> None:
        nonlocal judged
        exact = solve(problem, "tight", limits=Limits(20.0))
        if exact.value is None:
            return
        judged += 1
        found = search(problem, evaluations=_EVALUATIONS)
        if found is None or simulate(problem, found).cost_us > exact.value * (1 + 1e-6):
            missed.append(problem)

    judge()
    assert judged > 50
    assert len(missed) <= _MISSED_SHARE * judged, missed


@oracle(100)
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
