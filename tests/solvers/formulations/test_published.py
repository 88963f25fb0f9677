"""The published stage models: what they find is valid, and no better than `tight`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest
from hypothesis import assume, given, settings
from numpy.typing import NDArray

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import START_READ_AGAIN, repeated_start, training_chain
from tests.strategies import cases, problems
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.graph import Op, OpGraph, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.published.checkmate import formulate_checkmate
from tvm_xengine.solvers.published.cuts import Cut, Cuttable, best_executable, no_good
from tvm_xengine.solvers.published.poet import formulate_poet
from tvm_xengine.solvers.published.xengine import XEngineModel, formulate_xengine
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


@settings(max_examples=cases(60))
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


@settings(max_examples=cases(60))
@given(problem=problems())
def test_xengine_schedules_are_valid_but_for_the_memory_of_copies(problem: Problem) -> None:
    model = formulate_xengine(index_problem(problem, Objective.COST), with_products=False)
    answer = answered(model.program)
    if answer.x is not None:
        simulate(problem, model.schedule(answer.x), enforce_budgets=False)


@dataclass(frozen=True)
class OneByOne:
    """The model with cuts that each rule out the decisions of one solution only."""

    model: XEngineModel
    program: Program

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        return self.model.schedule(x)

    def cut(self, x: NDArray[np.float64], _schedule: Schedule) -> Cut:
        return no_good(self.model.decisions, x)


def crowded(seed: int) -> Problem:
    """Three or four ops on two devices, some on one only, with cheap copies and little memory."""
    random = np.random.default_rng(seed)
    names = "abcd"[: int(random.integers(3, 5))]
    reads = [tuple(u for u in names[:v] if random.random() < 0.5) for v in range(len(names))]
    sizes = {
        name: int(size) for name, size in zip(names, random.integers(2, 5, len(names)), strict=True)
    }
    ops = tuple(Op(o, "k", inputs, (o,)) for o, inputs in zip(names, reads, strict=True))
    least = max(sizes[op.name] + sum(sizes[name] for name in op.inputs) for op in ops)
    devices = tuple(Device(d, "llvm", least + int(random.integers(0, 3))) for d in ("cpu", "npu"))
    links = (Link("cpu", "npu", 0.1, 1.0), Link("npu", "cpu", 0.1, 1.0))
    costs = {}
    for name in names:
        able = devices if random.random() < 0.5 else (devices[random.integers(2)],)
        costs[name] = {d.name: OpCost(float(random.integers(1, 9))) for d in able}
    outputs = tuple(name for name in names if all(name not in inputs for inputs in reads))
    graph = OpGraph(tuple(Tensor(name, sizes[name]) for name in names), ops, outputs)
    return Problem(graph, Platform(devices, links, alignment_bytes=1), costs)


def executed(
    cuttable: Cuttable, problem: Problem, first: Answer, most: int
) -> tuple[Answer, Schedule | None, int]:
    """What at most so many cuts lead to."""
    asked = count()
    return best_executable(
        cuttable,
        first,
        answered,
        lambda schedule: next(asked) >= most or is_executable(problem, schedule),
    )


@pytest.mark.slow
def test_cuts_of_xengine_lead_to_the_best_schedule_of_its_model_that_can_be_executed() -> None:
    compared = 0
    for seed in range(30):
        problem, most = crowded(seed), 40
        model = formulate_xengine(index_problem(problem, Objective.COST), with_products=False)
        first = answered(model.program)
        found, schedule, cuts = executed(model, problem, first, most)
        judge, judged, judge_cuts = executed(OneByOne(model, model.program), problem, first, most)
        assert cuts <= judge_cuts
        if judge_cuts < most:
            assert (schedule is None) == (judged is None)
            assert schedule is None or found.value == pytest.approx(judge.value)
            compared += judge_cuts > 0
        if schedule is not None and cuts < most:
            best = solve_exhaustively(problem).value
            assert best is not None
            assert simulate(problem, schedule).cost_us >= best - 1e-6
    assert compared >= 3


def held_during_a_copy() -> Problem:
    """Op b is fast on the npu, where e is held; with a copy of what b reads that is a byte too much."""
    ops = (
        Op("e", "k", (), ("e",)),
        Op("a", "k", (), ("a",)),
        Op("b", "k", ("a",), ("b",)),
        Op("c", "k", ("b", "e"), ("c",)),
    )
    tensors = (Tensor("e", 4), Tensor("a", 4), Tensor("b", 4), Tensor("c", 1))
    links = (Link("cpu", "npu", 1.0, 1.0), Link("npu", "cpu", 1.0, 1.0))
    platform = Platform((Device("cpu", "llvm", 99), Device("npu", "llvm", 11)), links)
    costs = {
        "e": {"npu": OpCost(20.0)},
        "a": {"cpu": OpCost(1.0)},
        "b": {"cpu": OpCost(10.0), "npu": OpCost(1.0)},
        "c": {"npu": OpCost(1.0)},
    }
    return Problem(OpGraph(tensors, ops, ("c",)), replace(platform, alignment_bytes=1), costs)


@pytest.mark.parametrize("backend", ["highs", "scip"])
def test_xengine_reports_its_value_and_that_of_what_can_be_executed(backend: str) -> None:
    result = solve(held_during_a_copy(), "xengine", backend)
    assert result.model_value == pytest.approx(20 + 1 + 1 + 1 + 1.004)
    assert result.value == pytest.approx(20 + 1 + 10 + 1 + 1.004)
    assert "cannot be executed: step " in result.message
    assert "needs 12 bytes on npu, whose budget is 11 bytes; 1 cut leads to 33" in result.message
    best = solve_exhaustively(held_during_a_copy()).value
    assert best == pytest.approx(20 + 1 + 1 + 1 + 1.004)  # e runs after b: an order the model lacks


def is_executable(problem: Problem, schedule: Schedule) -> bool:
    try:
        simulate(problem, schedule)
    except InvalidScheduleError:
        return False
    return True


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
