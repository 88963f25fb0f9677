"""Retention intervals: their events, their optima where CP-SAT is installed, a reason where not."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import assume, given, settings

from tests.solvers.samples.chains import repeated_start, training_chain
from tests.strategies import problems
from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.published.retention import event, stage_of
from tvm_xengine.solvers.result import Status
from tvm_xengine.solvers.solve import solve

needs_ortools = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="ortools is not installed"
)


def test_every_event_knows_its_stage() -> None:
    events = [(t, i) for t in range(60) for i in range(t + 1)]
    assert [event(t, i) for t, i in events] == list(range(len(events)))
    assert all(stage_of(event(t, i)) == t for t, i in events)


@pytest.mark.skipif(importlib.util.find_spec("ortools") is not None, reason="ortools is there")
def test_without_ortools_the_reason_names_the_extra() -> None:
    with pytest.raises(SolverUnavailableError, match=r"tvm-xengine\[retention\]"):
        solve(repeated_start(12), "retention")


@needs_ortools
@pytest.mark.parametrize(("budget", "cost"), [(12, 7.0), (16, 6.0)])
def test_it_knows_the_optimum(budget: int, cost: float) -> None:
    result = solve(repeated_start(budget), "retention")
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(cost)


@needs_ortools
def test_a_chain_costs_what_checkmate_says() -> None:
    problem = training_chain(8, 60)
    mine, theirs = solve(problem, "retention"), solve(problem, "checkmate")
    assert mine.value == pytest.approx(theirs.value)


@needs_ortools
@settings(max_examples=25)
@given(problem=problems(max_devices=1, max_ops=4))
def test_small_problems_cost_what_checkmate_says(problem: Problem) -> None:
    assume(all(problem.home_bytes[d.name] <= d.budget_bytes for d in problem.platform.devices))
    mine, theirs = solve(problem, "retention"), solve(problem, "checkmate")
    if theirs.value is None:
        assert mine.value is None
    else:
        assert mine.value is not None
        # Checkmate holds results that nothing reads until the end of their stage.
        assert mine.value <= theirs.value + 1e-6
