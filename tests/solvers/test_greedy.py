"""Laws of the greedy solver."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings

from tests.solvers.samples.chains import training_chain
from tests.solvers.samples.networks import (
    chain,
    keep_all,
    pair,
    residual,
    single,
    transformer,
    with_storage,
)
from tests.strategies import cases, problems
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.lean_order import in_grouped_order
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.starts import schedule_beyond_budgets
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import MACHINE_TIME, MachineTime


def test_keeps_everything_where_it_fits():
    problem = single(residual(2), 1.0)
    assert greedy_schedule(problem) == keep_all(problem)


@pytest.mark.parametrize("make", [chain, residual, transformer])
def test_halves_the_memory_of_a_training_step(make):
    problem = single(make(8), 0.5)
    schedule = greedy_schedule(problem)
    assert schedule is not None
    simulation = simulate(problem, schedule)
    assert 1.0 < simulation.cost_us / problem.cheapest_us < 1.3


def test_moves_to_storage_what_is_cheaper_to_move_than_to_recompute():
    problem = with_storage(chain(8), 0.5, link_gb_s=100.0)
    schedule = greedy_schedule(problem)
    assert schedule is not None
    assert schedule.transfers > 0


def test_runs_on_the_ample_device_what_does_not_fit_the_fast_one():
    problem = pair(chain(4), 0.05, slow=3.0, link_gb_s=1.0)
    schedule = greedy_schedule(problem)
    assert schedule is not None
    simulate(problem, schedule)


def test_finds_nothing_below_the_working_set():
    assert greedy_schedule(single(chain(4), 0.01)) is None


def test_does_not_recompute_from_a_state_that_was_updated():
    tensors = (
        Tensor("w", 64, Role.PARAMETER),
        Tensor("x", 256),
        Tensor("w_new", 64),
        Tensor("big", 256),
        Tensor("y", 64),
    )
    ops = (
        Op("make", "k0", ("w",), ("x",)),
        Op("update", "k1", ("w",), ("w_new",), (("w_new", "w"),), recomputable=False),
        Op("fill", "k2", ("w_new",), ("big",)),
        Op("use", "k3", ("x", "big"), ("y",)),
    )
    graph = OpGraph(tensors, ops, ("y",))
    costs = {op.name: {"d": OpCost(1.0)} for op in ops}
    tight, ample = (
        Problem(graph, Platform((Device("d", "llvm", budget),)), costs) for budget in (512, 640)
    )
    assert greedy_schedule(tight) is None
    assert greedy_schedule(ample) is not None


@settings(max_examples=cases(60))
@given(problem=problems(max_ops=6, max_devices=3))
def test_whatever_it_returns_the_validator_accepts(problem):
    for objective in Objective:
        schedule = greedy_schedule(problem, objective=objective)
        if schedule is not None:
            simulate(problem, schedule)


def test_readers_of_a_tensor_go_together_where_that_frees_more_than_it_takes() -> None:
    tensors = [Tensor(name, 6400) for name in ("a", "b")]
    tensors += [Tensor(name, 2560) for name in ("a1", "b1", "a2", "b2")]
    ops = [Op(name, name, (), (name,)) for name in ("a", "b")]
    ops += [Op(name, name, (name[0],), (name,)) for name in ("a1", "b1", "a2", "b2")]
    graph = OpGraph(tuple(tensors), tuple(ops), ("a1", "b1", "a2", "b2"))
    grouped = in_grouped_order(index_problem(single(graph), Objective.COST))
    assert grouped.op_names == ("a", "a1", "a2", "b", "b1", "b2")


@settings(max_examples=cases(30))
@given(problem=problems(max_ops=6, max_devices=2))
def test_ops_in_groups_come_after_what_they_need(problem: Problem) -> None:
    indexed = index_problem(problem, Objective.COST)
    grouped = in_grouped_order(indexed)
    assert sorted(grouped.op_names) == sorted(indexed.op_names)
    assert all(u < i for i, before in enumerate(grouped.predecessors) for u in before)


def test_a_walk_ends_soon_after_it_is_told_to() -> None:
    """Where nothing fits, walks go on for long; they ask as they go, and all end at the first no."""
    problem = training_chain(60, 24)
    clock_s = count(0.0, 0.01)

    class Ticking(MachineTime):
        def thread_s(self) -> float:
            return next(clock_s)

    clock = Ticking()
    asked: list[bool] = []

    def may_go_on() -> bool:
        asked.append(len(asked) < 20)
        return asked[-1]

    def never_ends() -> bool:
        asked.append(True)
        return True

    assert greedy_schedule(problem, may_go_on=never_ends, clock=clock) is None
    most = len(asked)
    asked.clear()
    assert greedy_schedule(problem, may_go_on=may_go_on, clock=clock) is None
    assert most > 100
    assert asked.count(False) < 10


def test_a_small_walk_is_never_cut_short_and_a_large_one_is_at_once() -> None:
    problem = training_chain(12, 60)
    assert greedy_schedule(problem, may_go_on=lambda: False) == greedy_schedule(problem)
    assert greedy_schedule(training_chain(130, 400), may_go_on=lambda: False) is None


def test_no_larger_budgets_are_tried_when_the_time_is_up() -> None:
    problem = training_chain(12, 20)
    assert schedule_beyond_budgets(problem, Objective.COST, lambda: True, MACHINE_TIME) is not None
    assert schedule_beyond_budgets(problem, Objective.COST, lambda: False, MACHINE_TIME) is None
