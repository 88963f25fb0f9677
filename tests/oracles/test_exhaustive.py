"""The oracle against optima known by hand and against its own laws."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.oracles import exhaustive
from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start
from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate


@pytest.mark.parametrize(("budget", "cost"), [(11, None), (12, 7.0), (15, 7.0), (16, 6.0)])
def test_the_start_is_repeated_only_when_it_must_be(budget: int, cost: float | None) -> None:
    assert solve_exhaustively(repeated_start(budget)).value == cost


@settings(max_examples=cases(60))
@given(problem=problems())
def test_what_is_optimal_is_accepted_by_the_validator_at_its_value(problem: Problem) -> None:
    result = solve_exhaustively(problem, objective="energy")
    if result.schedule is not None:
        assert simulate(problem, result.schedule).energy_uj == pytest.approx(result.value)


@settings(max_examples=cases(60))
@given(problem=problems())
def test_a_free_order_never_costs_more_than_the_given_one(problem: Problem) -> None:
    free = solve_exhaustively(problem)
    given_order = solve_exhaustively(problem, in_given_order=True)
    if given_order.value is not None:
        assert free.value is not None
        assert free.value <= given_order.value


def test_a_search_that_is_given_up_proves_nothing() -> None:
    result = solve_exhaustively(repeated_start(16), most_states=1)
    assert not result.is_proven
    assert not result.is_infeasible


def test_the_makespan_is_refused() -> None:
    with pytest.raises(ValueError, match="makespan"):
        solve_exhaustively(repeated_start(16), objective="makespan")


def test_it_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(exhaustive.__file__).read_text(encoding="utf-8"))
    imported = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tvm_xengine")
        for alias in node.names
    }
    scheduling = "tvm_xengine.scheduling"
    assert imported == {
        (f"{scheduling}.graph", "Op"),
        (f"{scheduling}.platform", "Link"),
        (f"{scheduling}.problem", "Problem"),
        *((f"{scheduling}.schedule", name) for name in ("Compute", "Free", "Schedule", "Step")),
        (f"{scheduling}.schedule", "Transfer"),
    }
