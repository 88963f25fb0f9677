"""The entry point: statuses, advice, laws that hold for every solver."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.chains import repeated_start, training_chain
from tests.strategies import problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits, Status
from tvm_xengine.solvers.solve import SOLVERS, solve

IMPORT_CHECK = (
    "import sys, tvm_xengine.solvers.solve;"
    "sys.exit(any(name.split('.')[0] in ('tvm', 'highspy', 'gurobipy', 'pyscipopt')"
    " for name in sys.modules))"
)


def test_importing_the_solvers_loads_no_compiler_and_no_backend() -> None:
    assert subprocess.run([sys.executable, "-c", IMPORT_CHECK], check=False).returncode == 0


def test_an_unknown_solver_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"auto.*got 'magic'"):
        solve(repeated_start(16), "magic")


@pytest.mark.parametrize("solver", ["auto", "tight"])
@pytest.mark.parametrize(("budget", "cost"), [(12, 7.0), (15, 7.0), (16, 6.0)])
def test_every_solver_knows_the_optimum(solver: str, budget: int, cost: float) -> None:
    result = solve(repeated_start(budget), solver)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(cost)


def test_a_budget_below_the_working_set_is_infeasible_and_the_op_is_named() -> None:
    result = solve(repeated_start(11))
    assert result.status is Status.INFEASIBLE
    assert result.advice is not None
    assert "needs 12 bytes on cpu" in result.advice.binding
    assert result.advice.working_set_bytes == {"cpu": 12}
    assert result.advice.working_budget_bytes is not None
    assert solve(repeated_start(result.advice.working_budget_bytes["cpu"])).schedule is not None


def test_a_failed_solver_does_not_claim_infeasibility() -> None:
    assert solve(repeated_start(11), "tight").status is Status.NO_SOLUTION


def test_an_ample_budget_is_answered_in_milliseconds() -> None:
    problem = training_chain(40, 10**6, parameter_bytes=8)
    started = time.perf_counter()
    result = solve(problem)
    assert result.status is Status.OPTIMAL
    assert time.perf_counter() - started < 0.5


def test_a_smaller_budget_never_costs_less() -> None:
    values = [solve(training_chain(4, budget)).value for budget in (40, 48, 56)]
    assert all(value is not None for value in values)
    assert values == sorted(values, reverse=True)


def test_a_start_is_never_made_worse() -> None:
    problem = training_chain(6, 48)
    start = solve(problem).schedule
    again = solve(problem, start=start, limits=Limits(time_limit_s=0.1))
    assert again.value is not None
    assert start is not None
    assert again.value <= simulate(problem, start).cost_us


@settings(max_examples=15, deadline=None)
@given(problem=problems(max_ops=4))
def test_auto_is_never_better_than_exhaustive_search(problem: Problem) -> None:
    best = solve_exhaustively(problem)
    result = solve(problem)
    if result.status is Status.INFEASIBLE:
        assert best.is_infeasible
    if result.value is not None:
        assert best.value is not None
        assert result.value >= best.value - 1e-6
        assert result.schedule is not None
        assert result.value == pytest.approx(simulate(problem, result.schedule).cost_us)


def test_the_solvers_are_listed() -> None:
    assert {"auto", "tight", "greedy"} <= set(SOLVERS)
