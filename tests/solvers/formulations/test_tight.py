"""The stage model `tight` against hand-computed optima and exhaustive search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start, training_chain
from tests.solvers.samples.copies import copies_in_turn
from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.exact.tight import TightModel, formulate_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.result import Objective


def solved(problem: Problem, objective: Objective) -> tuple[TightModel, Answer]:
    model = formulate_tight(index_problem(problem, objective))
    answer = solve_program(model.program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    return model, answer


@pytest.mark.parametrize(("budget", "cost"), [(11, None), (12, 7.0), (15, 7.0), (16, 6.0)])
def test_the_start_is_repeated_only_when_it_must_be(budget: int, cost: float | None) -> None:
    _, answer = solved(repeated_start(budget), Objective.COST)
    assert answer.value == (None if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ENERGY])
@settings(max_examples=cases(80))
@given(problem=problems())
def test_it_agrees_with_exhaustive_search_over_the_given_order(
    objective: Objective, problem: Problem
) -> None:
    expected = solve_exhaustively(problem, objective=objective.value, in_given_order=True)
    if any(problem.home_bytes[d.name] > d.budget_bytes for d in problem.platform.devices):
        assert expected.is_infeasible
        return
    model, answer = solved(problem, objective)
    if answer.x is None:
        assert answer.outcome is Outcome.INFEASIBLE
        assert expected.is_infeasible or copies_in_turn(expected.schedule)
        return
    simulation = simulate(problem, model.schedule(answer.x))
    assert objective.of(simulation) == pytest.approx(answer.value)
    assert expected.value is not None
    if copies_in_turn(expected.schedule):
        assert answer.value >= expected.value - 1e-6
    else:
        assert answer.value == pytest.approx(expected.value)


def test_the_model_has_not_grown() -> None:
    model = formulate_tight(index_problem(training_chain(4, 60, parameter_bytes=8), Objective.COST))
    assert (model.program.column_count, model.program.row_count) == (567, 968)
