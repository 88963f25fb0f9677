"""The load of the busiest stream, which the relaxation bounds, is never above the makespan of a schedule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.oracles.exhaustive import solve_exhaustively
from tests.strategies import cases, problems
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Free, Transfer, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.relaxation.encode import projected
from tvm_xengine.solvers.relaxation.periods import ancestor_bits, periods_in_every_order
from tvm_xengine.solvers.relaxation.time_points import formulate_time_points
from tvm_xengine.solvers.result import Objective

UNIT = 64
UNIT_PER_US = UNIT / 1000.0
"""GB/s of a link that takes a microsecond for a unit of memory."""


def bound_of(problem: Problem, time_points: Collection[str], neglected: Collection[str]) -> float:
    indexed = index_problem(problem, Objective.COST)
    ops = [indexed.op_index[name] for name in time_points]
    model = formulate_time_points(
        indexed,
        periods_in_every_order(indexed, ops, ancestor_bits(indexed)),
        is_makespan=True,
        neglected=np.isin(indexed.tensor_names, list(neglected)),
    )
    answer = solve_program(model.program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    assert answer.outcome is Outcome.OPTIMAL
    return answer.bound


def test_neglected_state_is_copied_beside_the_runs_of_the_device_that_updates_it() -> None:
    graph = OpGraph(
        (
            Tensor("x", UNIT, Role.BATCH), Tensor("s", 8 * UNIT, Role.PARAMETER),
            Tensor("a", UNIT), Tensor("u", 8 * UNIT), Tensor("b", UNIT),
        ),
        (
            Op("first", "k", ("x",), ("a",)),
            Op("update", "k", ("s",), ("u",), updates=(("u", "s"),), recomputable=False),
            Op("last", "k", ("a",), ("b",)),
        ),
        ("b",),
    )  # fmt: skip
    platform = Platform(
        (Device("d", "llvm", 100 * UNIT), Device("store", None, 100 * UNIT)),
        tuple(Link(*ends, 0.0, UNIT_PER_US) for ends in (("d", "store"), ("store", "d"))),
        alignment_bytes=UNIT,
    )
    costs = {op.name: {"d": OpCost(10.0)} for op in graph.ops}
    problem = Problem(graph, platform, costs, {"s": "store"})
    steps = [
        Transfer("s", "store", "d"), Compute("first", "d"), Compute("update", "d"),
        Transfer("u", "d", "store"), Compute("last", "d"),
    ]  # fmt: skip
    assert simulate(problem, with_frees(problem, steps)).makespan_us == pytest.approx(30.0)
    assert bound_of(problem, ["last"], ["s", "u"]) == pytest.approx(30.0)


def test_a_copy_that_may_come_from_elsewhere_later_loads_no_link_before() -> None:
    """`a` is made once more on d1 when d1 has room for it, while the link from d0 brings `y`."""
    sizes = {"a": 4, "s": 1, "y": 4, "c": 1, "z": 1}
    runs = {"make": ["d0", "d1"], "short": ["d0"], "other": ["d0"], "full": ["d1"], "last": ["d2"]}
    graph = OpGraph(
        (Tensor("b", 8 * UNIT, Role.BATCH), *(Tensor(n, k * UNIT) for n, k in sizes.items())),
        (
            Op("make", "k", (), ("a",)), Op("short", "k", ("a",), ("s",)),
            Op("other", "k", (), ("y",)), Op("full", "k", ("b", "s"), ("c",)),
            Op("last", "k", ("a", "y"), ("z",)),
        ),
        ("c", "z"),
    )  # fmt: skip
    budgets = {"d0": 100, "d1": 10, "d2": 100}
    platform = Platform(
        tuple(Device(name, "llvm", units * UNIT) for name, units in budgets.items()),
        tuple(Link(*ends, 0.0, UNIT_PER_US) for ends in (("d0", "d2"), ("d1", "d2"), ("d2", "d1"))),
        "d1",
        UNIT,
    )
    costs = {op: {device: OpCost(0.01) for device in there} for op, there in runs.items()}
    problem = Problem(graph, platform, costs)
    steps = [
        Compute("make", "d0"), Compute("short", "d0"), Transfer("s", "d0", "d2"),
        Transfer("s", "d2", "d1"), Compute("other", "d0"), Transfer("y", "d0", "d2"),
        Compute("full", "d1"), Compute("make", "d1"), Transfer("a", "d1", "d2"), Compute("last", "d2"),
    ]  # fmt: skip
    makespan_us = simulate(problem, with_frees(problem, steps)).makespan_us
    assert makespan_us < 8.0  # what both tensors take over one link
    assert bound_of(problem, ["full"], []) <= makespan_us


@settings(max_examples=cases(150))
@given(problem=problems(max_devices=3, max_ops=6), data=st.data())
def test_a_schedule_sorted_by_the_ends_of_its_steps_is_a_solution(
    problem: Problem, data: st.DataObject
) -> None:
    """It fits the budgets in that order, too, and the least makespan of its columns is none above its own."""
    schedule = search(problem, objective=Objective.MAKESPAN, evaluations=300)
    assume(schedule is not None)
    assert schedule is not None
    as_run = simulate(problem, schedule)
    ends = sorted(
        (end, position)
        for position, (_, end) in enumerate(as_run.intervals_us)
        if not isinstance(schedule.steps[position], Free)
    )
    by_ends = with_frees(problem, [schedule.steps[position] for _, position in ends])
    simulate(problem, by_ends)
    indexed = index_problem(problem, Objective.COST)
    time_points = data.draw(st.lists(st.sampled_from(range(indexed.op_count)), unique=True))
    periods = periods_in_every_order(indexed, time_points, ancestor_bits(indexed))
    model = formulate_time_points(indexed, periods, is_makespan=True)
    columns = (model.run, model.at, model.keep, model.copy, model.run_takes, model.at_takes)
    of_steps = np.concatenate([grid[grid >= 0] for grid in columns])
    lower, upper = model.program.lower.copy(), model.program.upper.copy()
    lower[of_steps] = upper[of_steps] = projected(model, by_ends)[of_steps]
    program = replace(model.program.relaxed(), lower=lower, upper=upper)
    answer = solve_program(program, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer)
    assert answer.value is not None
    assert answer.value <= as_run.makespan_us + 1e-6


@settings(max_examples=cases(100))
@given(problem=problems(max_devices=3, max_ops=4), data=st.data())
def test_no_schedule_ends_before_the_bound(problem: Problem, data: st.DataObject) -> None:
    known = [greedy_schedule(problem), solve_exhaustively(problem).schedule]
    makespans_us = [simulate(problem, one).makespan_us for one in known if one is not None]
    if not makespans_us:
        return
    ops = list(index_problem(problem, Objective.COST).op_names)
    time_points = data.draw(st.lists(st.sampled_from(ops), unique=True))
    bases = [tensor.name for tensor in problem.graph.bases]
    neglected = set(data.draw(st.lists(st.sampled_from(bases), unique=True)))
    for output, state in problem.graph.update_of.items():
        neglected = neglected | {output} if state in neglected else neglected - {output}
    assert bound_of(problem, time_points, neglected) <= min(makespans_us) + 1e-6
