"""Baselines: valid, at their best where they were made for, and never better than the optimum."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start, training_chain
from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.published.baselines.answer import baselines
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Status
from tvm_xengine.solvers.solve import solve

NAMES = ("keep-all", "recompute-all", "revolve", "rotor", "sqrt-n")


@settings(max_examples=cases(40))
@given(problem=problems())
def test_no_baseline_is_better_than_the_optimum(problem: Problem) -> None:
    best = solve_exhaustively(problem).value
    for name in NAMES:
        value = Request().value_of(problem, baselines()[name](problem, Request()))
        if value is not None:
            assert best is not None
            assert value >= best - 1e-6


@pytest.mark.parametrize("name", ["keep-all", "rotor", "sqrt-n"])
def test_an_ample_budget_needs_no_repetition(name: str) -> None:
    assert solve(training_chain(8, 1000), name).status is Status.OPTIMAL


@pytest.mark.parametrize("name", ["recompute-all", "revolve", "rotor", "sqrt-n"])
def test_a_small_budget_is_met_by_repetition(name: str) -> None:
    result = solve(training_chain(16, 100), name)
    assert result.schedule is not None
    assert result.schedule.recomputed_ops > 0


def test_the_chain_program_repeats_least() -> None:
    problem = training_chain(16, 100)
    values = {name: solve(problem, name).value or 1e9 for name in NAMES[1:]}
    assert min(values, key=lambda name: values[name]) == "rotor"


def test_keep_all_does_not_repeat_and_fails_where_it_must() -> None:
    assert solve(repeated_start(15), "keep-all").status is Status.NO_SOLUTION
