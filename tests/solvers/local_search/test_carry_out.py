"""What relaxations tell the search: decisions that can be carried out, and where memory is short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.solvers.samples.networks import chain, pair, single, unet
from tests.strategies import cases, problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.carry_out import RelaxationDecoder
from tvm_xengine.solvers.local_search.relaxed_decisions import decisions_of_time_points
from tvm_xengine.solvers.relaxation.periods import (
    ancestor_bits,
    periods_in_every_order,
    periods_in_given_order,
)
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, formulate_time_points
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.solvers.solve import solve


def relaxed(problem: Problem, every: int = 1) -> tuple[TimePointModel, Answer]:
    """The relaxation with one op in `every` a time point, and its answer."""
    indexed = index_problem(problem, Objective.COST)
    time_points = range(0, indexed.op_count, every)
    model = formulate_time_points(indexed, periods_in_given_order(indexed, time_points))
    answer = solve_program(model.program, BackendOptions(20.0), lambda _: None)
    assert isinstance(answer, Answer)
    return model, answer


@pytest.mark.parametrize(
    "problem",
    [single(chain(5), 0.6), pair(chain(4), 0.5, slow=3.0, link_gb_s=5.0)],
    ids=["one device", "two devices"],
)
def test_a_relaxation_with_every_op_a_time_point_is_carried_out_near_its_bound(
    problem: Problem,
) -> None:
    model, answer = relaxed(problem)
    assert answer.x is not None
    assert answer.value is not None
    found = RelaxationDecoder(problem, Objective.COST).carry_out(model, answer.x)
    assert found.pressure is not None
    assert found.decisions is not None
    assert found.pressure.max() <= 1.5
    for schedule in found.schedules[:1]:
        value = simulate(problem, schedule).cost_us
        assert answer.bound - 1e-6 <= value <= 1.2 * answer.value


def test_without_time_points_in_the_middle_the_excess_is_found_there() -> None:
    problem = single(chain(5), 0.5)
    model, answer = relaxed(problem, every=1000)  # only the first op is a time point
    assert answer.x is not None
    pressure = RelaxationDecoder(problem, Objective.COST).carry_out(model, answer.x).pressure
    assert pressure is not None
    assert pressure.argmax() > 0
    assert pressure.max() > 1.0


@settings(max_examples=cases(40))
@given(problem=problems(max_devices=3))
def test_what_a_relaxation_leads_to_is_valid_and_not_below_its_bound(problem: Problem) -> None:
    model, answer = relaxed(problem)
    if answer.x is None or any(
        problem.home_bytes[d.name] > d.budget_bytes for d in problem.platform.devices
    ):
        return
    found = RelaxationDecoder(problem, Objective.COST).carry_out(model, answer.x)
    for schedule in found.schedules:
        assert simulate(problem, schedule).cost_us >= answer.bound - 1e-6


@settings(max_examples=cases(200))
@given(problem=problems(max_devices=2), seed=st.integers(0, 2**32 - 1))
def test_whatever_a_relaxation_suggests_ops_run_after_their_prerequisites(
    problem: Problem, seed: int
) -> None:
    # The moves of the search rely on it: in another order they would index out of bounds.
    indexed = index_problem(problem, Objective.COST)
    ancestors = ancestor_bits(indexed)
    deepest = max(range(indexed.op_count), key=lambda i: ancestors[i].bit_count())
    on_the_way = [i for i in range(indexed.op_count) if ancestors[deepest] >> i & 1]
    time_points = [
        i for n, i in enumerate(on_the_way) if all(ancestors[i] >> j & 1 for j in on_the_way[:n])
    ]
    model = formulate_time_points(
        indexed, periods_in_every_order(indexed, time_points or [deepest], ancestors)
    )
    rng = np.random.default_rng(seed)
    x = rng.random(model.program.column_count)
    within = rng.permutation(indexed.op_count).tolist()
    order = decisions_of_time_points(model, x, order=within).order.tolist()
    assert sorted(order) == list(range(indexed.op_count))
    for place, i in enumerate(order):
        assert not set(indexed.predecessors[i]) & set(order[place:])


def test_within_a_period_ops_keep_the_order_of_the_best_schedule_and_of_the_graph_in_turn() -> None:
    problem = single(unet(2), 0.7)
    best = solve(problem, "local-search", limits=Limits(2.0)).schedule
    assert best is not None
    indexed = index_problem(problem, Objective.COST)
    own, graphs = indexed.first_runs(best), tuple(range(indexed.op_count))
    assert own != graphs
    decoder = RelaxationDecoder(problem, Objective.COST)
    orders = [tuple(decoder._order(indexed, None, best)) for _ in range(4)]
    assert orders == [own, graphs, own, graphs]
    assert tuple(decoder._order(indexed, best, None)) == own
    assert [tuple(decoder._order(indexed, None, None)) for _ in range(2)] == [graphs, graphs]
