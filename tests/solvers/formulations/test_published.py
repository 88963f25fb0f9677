"""The published stage models: what they find is valid, and no better than `tight`."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.chains import START_READ_AGAIN, repeated_start, training_chain
from tests.strategies import problems
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.published.checkmate import formulate_checkmate
from tvm_xengine.solvers.published.poet import formulate_poet
from tvm_xengine.solvers.published.xengine import formulate_xengine
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.solve import solve


def answered(program: Program) -> Answer:
    answer = solve_program(program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(
    ("solver", "backend"),
    [("checkmate", "highs"), ("checkmate", "scip"), ("xengine", "scip"), ("xengine", "highs")],
)
@pytest.mark.parametrize(("budget", "cost"), [(12, 7.0), (16, 6.0)])
def test_on_one_device_all_know_the_optimum(
    solver: str, backend: str, budget: int, cost: float
) -> None:
    result = solve(repeated_start(budget), solver, backend)
    assert result.value == pytest.approx(cost)


@settings(max_examples=60, deadline=None)
@given(problem=problems(max_devices=1))
def test_checkmate_finds_valid_schedules_at_their_cost(problem: Problem) -> None:
    # The published model does not count state that nothing reads, which is there at the start.
    assume(all(problem.home_bytes[d.name] <= d.budget_bytes for d in problem.platform.devices))
    model = formulate_checkmate(index_problem(problem, Objective.COST))
    answer = answered(model.program)
    if answer.x is not None:
        simulation = simulate(problem, model.schedule(answer.x))
        assert simulation.cost_us == pytest.approx(answer.value)
        best = solve_exhaustively(problem)
        assert best.value is not None
        assert simulation.cost_us >= best.value - 1e-6


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_xengine_schedules_are_valid_but_for_the_memory_of_copies(problem: Problem) -> None:
    model = formulate_xengine(index_problem(problem, Objective.COST), with_products=False)
    answer = answered(model.program)
    if answer.x is not None:
        simulate(problem, model.schedule(answer.x), enforce_budgets=False)


def test_xengine_frees_what_is_no_longer_read() -> None:
    """A chain needs two tensors at a time; the released code never credits freed memory."""
    answer = answered(
        formulate_xengine(index_problem(training_chain(4, 48), Objective.COST)).program
    )
    assert answer.outcome is not Outcome.INFEASIBLE


def test_rounding_finds_a_schedule_no_better_than_the_optimum() -> None:
    problem = training_chain(8, 60)
    rounded, exact = solve(problem, "checkmate-rounding"), solve(problem, "tight")
    assert rounded.value is not None
    assert exact.value is not None
    assert rounded.value >= exact.value


def paged(budget_bytes: int) -> Problem:
    """Ops a, b, c in a row and d that reads a and c; a store that is cheaper than repeating a."""
    graph = START_READ_AGAIN
    links = (Link("mcu", "card", 1.0, 1.0), Link("card", "mcu", 1.0, 1.0))
    platform = Platform(
        (Device("mcu", "llvm", budget_bytes), Device("card", None)), links, alignment_bytes=1
    )
    return Problem(graph, platform, {op.name: {"mcu": OpCost(10.0)} for op in graph.ops})


def test_poet_pages_out_where_repeating_is_dearer() -> None:
    model = formulate_poet(index_problem(paged(13), Objective.COST))
    answer = answered(model.program)
    assert answer.x is not None
    schedule = model.schedule(answer.x)
    assert schedule.transfers == 2
    assert simulate(paged(13), schedule).cost_us == pytest.approx(42.008)


def test_poet_keeps_to_its_runtime_limit() -> None:
    indexed = index_problem(paged(13), Objective.COST)
    assert answered(formulate_poet(indexed, runtime_limit_us=39.0).program).x is None
    assert answered(formulate_poet(indexed, runtime_limit_us=40.0).program).x is not None
