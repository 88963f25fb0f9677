"""The time point relaxation never exceeds the optimum, and is it when every op is a time point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start, training_chain
from tests.solvers.samples.networks import chain, single
from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.indexed import (
    IndexedProblem,
)
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.periods import (
    Periods,
    ancestor_bits,
    longest_chain,
    periods_in_every_order,
    periods_in_given_order,
)
from tvm_xengine.solvers.relaxation.time_points import formulate_time_points
from tvm_xengine.solvers.result import Objective, Scope


def relaxed(indexed: IndexedProblem, periods: Periods) -> Answer:
    program = formulate_time_points(indexed, periods).program
    answer = solve_program(program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    return answer


def is_too_large_at_home(problem: Problem) -> bool:
    return any(problem.home_bytes[d.name] > d.budget_bytes for d in problem.platform.devices)


def chain_of_ops(indexed: IndexedProblem) -> list[int]:
    """Ops that depend on each other, from the last one up."""
    ancestors, chain = ancestor_bits(indexed), list[int]()
    for i in reversed(range(indexed.op_count)):
        if all(ancestors[m] >> i & 1 for m in chain):
            chain.append(i)
    return chain


def check_bound(problem: Problem, answer: Answer, scope: Scope) -> None:
    best = solve_exhaustively(problem, in_given_order=scope is Scope.GIVEN_ORDER)
    if answer.outcome is Outcome.INFEASIBLE:
        assert is_too_large_at_home(problem) or best.is_infeasible or not best.is_proven
    elif best.value is not None:
        assert answer.bound <= best.value + 1e-6


@st.composite
def problems_with_room(draw: st.DrawFn) -> Problem:
    """Problems with several devices, of which any number may hold everything."""
    problem = draw(problems(max_devices=3, max_ops=5).filter(lambda p: len(p.platform.devices) > 1))
    tensors_bytes = sum(tensor.size_bytes for tensor in problem.graph.bases)
    workspaces = [c.workspace_bytes for costs in problem.costs.values() for c in costs.values()]
    budgets = {device.name: device.budget_bytes for device in problem.platform.devices}
    for name in draw(st.lists(st.sampled_from(sorted(budgets)), min_size=1, unique=True)):
        budgets[name] = tensors_bytes + max(workspaces, default=0)
    return problem.with_budgets(budgets)


@settings(max_examples=cases(150))
@given(problem=problems_with_room(), is_given_order=st.booleans(), data=st.data())
def test_room_for_everything_changes_no_bound(
    problem: Problem, is_given_order: bool, data: st.DataObject
) -> None:
    indexed = index_problem(problem, Objective.COST)
    time_points = data.draw(st.lists(st.sampled_from(list(range(indexed.op_count))), unique=True))
    periods = (
        periods_in_given_order(indexed, time_points)
        if is_given_order
        else periods_in_every_order(indexed, time_points, ancestor_bits(indexed))
    )
    model = formulate_time_points(indexed, periods)
    answer = solve_program(model.program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    scope = Scope.GIVEN_ORDER if is_given_order else Scope.EVERY_SCHEDULE
    check_bound(problem, answer, scope)
    schedule = solve_exhaustively(problem, in_given_order=scope is Scope.GIVEN_ORDER).schedule
    if schedule is not None:
        x = encode_time_points(model, schedule)
        assert x is not None
        assert model.program.objective(x) <= simulate(problem, schedule).cost_us + 1e-6


@settings(max_examples=cases(60))
@given(problem=problems(max_devices=3, max_ops=4), seed=st.integers(0, 2**16))
def test_a_bound_without_some_tensors_holds(problem: Problem, seed: int) -> None:
    indexed = index_problem(problem, Objective.COST)
    neglected = np.random.default_rng(seed).random(indexed.tensor_count) < 0.5
    updates = np.flatnonzero(indexed.update_of >= 0)
    neglected[updates] = neglected[indexed.update_of[updates]]
    periods = periods_in_every_order(indexed, chain_of_ops(indexed), ancestor_bits(indexed))
    model = formulate_time_points(indexed, periods, neglected=neglected)
    answer = solve_program(model.program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    check_bound(problem, answer, Scope.EVERY_SCHEDULE)
    schedule = greedy_schedule(problem)
    if schedule is not None:
        x = encode_time_points(model, schedule)
        assert x is not None
        assert model.program.objective(x) <= simulate(problem, schedule).cost_us + 1e-6


@settings(max_examples=cases(60))
@given(problem=problems(max_devices=3, max_ops=4))
def test_a_bound_for_the_given_order_holds(problem: Problem) -> None:
    indexed = index_problem(problem, Objective.COST)
    answer = relaxed(indexed, periods_in_given_order(indexed, range(indexed.op_count)))
    check_bound(problem, answer, Scope.GIVEN_ORDER)


@settings(max_examples=cases(60))
@given(problem=problems(max_devices=3, max_ops=4))
def test_a_bound_for_every_order_holds(problem: Problem) -> None:
    indexed = index_problem(problem, Objective.COST)
    periods = periods_in_every_order(indexed, chain_of_ops(indexed), ancestor_bits(indexed))
    check_bound(problem, relaxed(indexed, periods), Scope.EVERY_SCHEDULE)


@settings(max_examples=cases(100))
@given(problem=problems(max_devices=3), data=st.data())
def test_a_bound_holds_wherever_its_time_points_are(problem: Problem, data: st.DataObject) -> None:
    indexed = index_problem(problem, Objective.COST)
    ops = st.sampled_from(range(indexed.op_count))
    time_points = data.draw(st.lists(ops, min_size=1, max_size=4, unique=True))
    periods = periods_in_every_order(indexed, time_points, ancestor_bits(indexed))
    model = formulate_time_points(indexed, periods)
    answer = solve_program(model.program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    check_bound(problem, answer, Scope.EVERY_SCHEDULE)
    best = solve_exhaustively(problem)
    if best.schedule is not None:
        assert best.value is not None
        x = encode_time_points(model, best.schedule)
        assert x is not None
        assert model.program.objective(x) <= best.value + 1e-6


@pytest.mark.parametrize(("budget", "cost"), [(12, 7.0), (15, 7.0), (16, 6.0)])
def test_with_every_op_a_time_point_the_bound_is_the_optimum(budget: int, cost: float) -> None:
    indexed = index_problem(repeated_start(budget), Objective.COST)
    answer = relaxed(indexed, periods_in_given_order(indexed, range(indexed.op_count)))
    assert answer.bound == pytest.approx(cost)


def test_more_time_points_never_lower_the_bound() -> None:
    indexed = index_problem(training_chain(8, 48), Objective.COST)
    found = [
        relaxed(indexed, periods_in_given_order(indexed, time_points)).bound
        for time_points in ([8], [8, 12], [4, 8, 12, 14])
    ]
    assert found == sorted(found)


def test_a_time_point_beside_the_chain_may_be_in_each_place_that_dependences_allow() -> None:
    indexed = index_problem(single(chain(2)), Objective.COST)
    ancestors = ancestor_bits(indexed)
    order = longest_chain(ancestors, range(indexed.op_count))
    apart = next(
        op
        for op in range(indexed.op_count)
        if op not in order and not ancestors[op] >> order[-1] & 1
    )
    periods = periods_in_every_order(indexed, [*order, apart], ancestors)
    places = np.flatnonzero(periods.may_be[:, apart])
    assert len(places) > 1
    assert periods.time_point_count == len(order) + len(places)
    for place in places:
        fixed = [int(np.argmax(row)) for row in periods.may_be]
        before, after = fixed[:place], fixed[place + 1 :]
        assert not any(ancestors[m] >> apart & 1 for m in before if m != apart)
        assert not any(ancestors[apart] >> m & 1 for m in after if m != apart)
