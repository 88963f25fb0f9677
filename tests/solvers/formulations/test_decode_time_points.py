"""Solutions of relaxations are carried out to the letter: the steps cost what the solution does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.solvers.samples.chains import repeated_start, training_chain
from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import with_frees, with_kernels_that_fit
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.relaxation.decode import CannotCarryOutError, decode_time_points
from tvm_xengine.solvers.relaxation.periods import periods_in_given_order
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, formulate_time_points
from tvm_xengine.solvers.result import Objective


def solved(model: TimePointModel) -> Answer:
    answer = solve_program(model.program, BackendOptions(20.0), lambda _: None)
    assert isinstance(answer, Answer)
    return answer


@settings(max_examples=cases(150))
@given(problem=problems(max_devices=3, max_ops=6), data=st.data())
def test_steps_cost_what_the_solution_does(problem: Problem, data: st.DataObject) -> None:
    indexed = index_problem(problem, Objective.COST)
    ops = range(indexed.op_count)
    time_points = data.draw(st.lists(st.sampled_from(ops), unique=True))
    model = formulate_time_points(indexed, periods_in_given_order(indexed, time_points))
    answer = solved(model)
    if answer.x is None:
        return
    try:
        steps = [step for step, _ in decode_time_points(model, answer.x, ops)]
    except CannotCarryOutError:
        assert indexed.device_count > 2, "only between three devices may copies feed each other"
        return
    schedule = with_frees(problem, steps)
    # Within a period the relaxation knows only a part of what leaves less room for a kernel.
    ample = problem.with_budgets(dict.fromkeys(problem.platform.index, UNLIMITED_BYTES))
    done = simulate(ample, with_kernels_that_fit(ample, schedule))
    if indexed.device_count <= 2:  # updates of others may take another way home
        assert done.cost_us <= model.program.objective(answer.x) + 1e-6
    assert set(indexed.first_runs(schedule)) == set(ops)


@pytest.mark.parametrize("problem", [repeated_start(15), training_chain(6, 60)])
def test_with_every_op_a_time_point_the_steps_are_an_optimal_schedule(problem: Problem) -> None:
    indexed = index_problem(problem, Objective.COST)
    ops = range(indexed.op_count)
    model = formulate_time_points(indexed, periods_in_given_order(indexed, ops))
    answer = solved(model)
    assert answer.x is not None
    schedule = with_frees(problem, [step for step, _ in decode_time_points(model, answer.x, ops)])
    assert simulate(problem, schedule).cost_us == pytest.approx(answer.bound)


def test_what_runs_nowhere_cannot_be_carried_out() -> None:
    indexed = index_problem(training_chain(3, 1000), Objective.COST)
    model = formulate_time_points(indexed, periods_in_given_order(indexed, [1]))
    with pytest.raises(CannotCarryOutError, match=indexed.op_names[0]):
        decode_time_points(model, np.zeros(model.program.column_count), range(indexed.op_count))


def test_what_is_nowhere_cannot_be_carried_out() -> None:
    indexed = index_problem(training_chain(3, 1000), Objective.COST)
    model = formulate_time_points(indexed, periods_in_given_order(indexed, [1]))
    x = np.ones(model.program.column_count)
    x[model.run[:, :, 0]] = 0.0  # what the first op makes is then there without being made
    with pytest.raises(CannotCarryOutError):
        decode_time_points(model, x, range(1, indexed.op_count))
