"""A program with fixed columns is the whole one with these columns fixed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.exact.copies import CopiesAsProducts
from tvm_xengine.solvers.exact.tight import formulate_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.miqp.restricted import restricted
from tvm_xengine.solvers.miqp.windows import excess_of_ops, parts_of, windows
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.result import Objective


def _answer(program: Program) -> Answer:
    answer = solve_program(program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    return answer


@settings(max_examples=cases(60))
@given(problem=problems(max_ops=4), seed=st.integers(0, 1000))
def test_it_holds_the_whole_optimum_and_the_same_values(problem: Problem, seed: int) -> None:
    if any(problem.home_bytes[d.name] > d.budget_bytes for d in problem.platform.devices):
        return
    model = formulate_tight(index_problem(problem, Objective.COST))
    program = model.program
    whole = _answer(program)
    if whole.x is None or whole.value is None:
        return
    x = np.round(whole.x, 6)
    is_free = np.random.default_rng(seed).random(program.column_count) < 0.5
    part = restricted(program, x, is_free)
    assert program.objective(x) == pytest.approx(part.program.objective(x[is_free]) + part.constant)
    if part.program.column_count:
        answer = _answer(part.program)
        assert answer.x is not None and answer.value is not None
        extended = part.extended(x, answer.x)
        assert program.is_satisfied_by(extended)
        assert program.objective(extended) == pytest.approx(whole.value)


@settings(max_examples=cases(40))
@given(problem=problems(max_devices=3, max_ops=4), seed=st.integers(0, 1000))
def test_products_with_one_fixed_column_become_costs(problem: Problem, seed: int) -> None:
    program = formulate_tight(index_problem(problem, Objective.COST), CopiesAsProducts).program
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 2, program.column_count).astype(float)
    is_free = draw.random(program.column_count) < 0.5
    part = restricted(program, x, is_free)
    other = draw.integers(0, 2, int(is_free.sum())).astype(float)
    expected = program.objective(part.extended(x, other))
    assert part.program.objective(other) + part.constant == pytest.approx(expected)


@settings(max_examples=cases(60))
@given(problem=problems(max_ops=4), seed=st.integers(0, 1000))
def test_a_window_around_a_schedule_never_makes_it_worse(problem: Problem, seed: int) -> None:
    if any(problem.home_bytes[d.name] > d.budget_bytes for d in problem.platform.devices):
        return
    model = formulate_tight(index_problem(problem, Objective.COST))
    whole = _answer(model.program)
    if whole.x is None:
        return
    x = np.round(whole.x, 6)
    excess = excess_of_ops(model, x)
    assert (excess >= 0).all()
    parts = parts_of(model)
    every = np.concatenate(parts.columns) if parts.columns else np.array([], int)
    assert len(every) == len(set(every.tolist())), "a column belongs to one part"
    assert set(every.tolist()) == set(range(model.program.column_count)), "and to one at least"
    found = list(windows(model, parts, x, 40, random.Random(seed)))
    assert len(found) == np.count_nonzero(excess)
    for is_free in found:
        part = restricted(model.program, x, is_free)
        answer = _answer(part.program)
        assert answer.x is not None
        schedule = model.schedule(part.extended(x, answer.x))
        assert simulate(problem, schedule).cost_us == pytest.approx(whole.value)
