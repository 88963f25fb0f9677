"""Copies as products: native in SCIP and Gurobi, against a column for each link and an exhaustive judge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.copies import copies_in_turn
from tests.strategies import cases, problems
from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome, Unavailable
from tvm_xengine.solvers.backends.table import backend_function
from tvm_xengine.solvers.exact.copies import Copies, CopiesAsProducts, CopiesOverLinks
from tvm_xengine.solvers.exact.encode_tight import encode_tight
from tvm_xengine.solvers.exact.tight import TightModel, formulate_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.result import Objective


def _solved(problem: Problem, copies: type[Copies], backend: str) -> tuple[TightModel, Answer]:
    model = formulate_tight(index_problem(problem, Objective.COST), copies)
    answer = backend_function(backend)(model.program, BackendOptions(), lambda _: None)
    if isinstance(answer, Unavailable):
        raise SolverUnavailableError(answer.reason)
    return model, answer


def _fits_at_home(problem: Problem) -> bool:
    return all(problem.home_bytes[d.name] <= d.budget_bytes for d in problem.platform.devices)


def _agree(problem: Problem, backend: str) -> None:
    if not _fits_at_home(problem):
        return
    model, answer = _solved(problem, CopiesAsProducts, backend)
    _, linear = _solved(problem, CopiesOverLinks, "highs")
    assert (answer.value is None) == (linear.value is None)
    if answer.x is None:
        assert answer.outcome is Outcome.INFEASIBLE
        return
    assert answer.value == pytest.approx(linear.value)
    schedule = model.schedule(np.round(answer.x))
    assert simulate(problem, schedule).cost_us == pytest.approx(answer.value)
    judged = solve_exhaustively(problem, in_given_order=True)
    if judged.is_proven:
        assert judged.value is not None
        assert answer.value >= judged.value - 1e-6
        if not copies_in_turn(judged.schedule):
            assert answer.value == pytest.approx(judged.value)
    x = encode_tight(model, schedule)
    if x is not None:
        assert model.program.objective(x) == pytest.approx(answer.value)


@settings(max_examples=cases(60))
@given(problem=problems(max_devices=3, max_ops=4))
def test_products_in_scip_equal_links_in_highs_and_the_judge(problem: Problem) -> None:
    pytest.importorskip("pyscipopt")
    _agree(problem, "scip")


@settings(max_examples=25)
@given(problem=problems(max_devices=3, max_ops=4))
def test_products_in_gurobi_equal_links_in_highs_and_the_judge(problem: Problem) -> None:
    pytest.importorskip("gurobipy")
    try:
        _agree(problem, "gurobi")
    except SolverUnavailableError:
        return  # larger than the licence


@pytest.mark.slow
@settings(max_examples=400)
@given(problem=problems(max_devices=3))
def test_hundreds_of_problems_agree(problem: Problem) -> None:
    pytest.importorskip("pyscipopt")
    _agree(problem, "scip")
