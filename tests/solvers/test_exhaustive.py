"""Exhaustive search against optima known by hand and against its own laws."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.solvers.chains import repeated_start
from tests.strategies import problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.exhaustive import solve_exhaustively
from tvm_xengine.solvers.result import Limits, Objective, Scope, Status


@pytest.mark.parametrize(("budget", "cost"), [(11, None), (12, 7.0), (15, 7.0), (16, 6.0)])
def test_the_start_is_repeated_only_when_it_must_be(budget: int, cost: float | None) -> None:
    assert solve_exhaustively(repeated_start(budget)).value == cost


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_what_is_optimal_is_accepted_by_the_referee_at_its_value(problem: Problem) -> None:
    result = solve_exhaustively(problem, objective=Objective.ENERGY)
    if result.schedule is not None:
        assert simulate(problem, result.schedule).energy_uj == pytest.approx(result.value)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_a_free_order_never_costs_more_than_the_given_one(problem: Problem) -> None:
    free = solve_exhaustively(problem)
    given_order = solve_exhaustively(problem, scope=Scope.GIVEN_ORDER)
    if given_order.value is not None:
        assert free.value is not None
        assert free.value <= given_order.value


def test_a_time_limit_is_no_proof_of_infeasibility() -> None:
    result = solve_exhaustively(repeated_start(16), limits=Limits(time_limit_s=1e-9))
    assert result.status is Status.NO_SOLUTION


def test_the_makespan_is_refused() -> None:
    with pytest.raises(ValueError, match="makespan"):
        solve_exhaustively(repeated_start(16), objective=Objective.MAKESPAN)
