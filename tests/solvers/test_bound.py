"""Bounds that rise, and hold for every objective."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.oracles.makespan import shortest_makespan
from tests.solvers.samples.chains import training_chain
from tests.solvers.samples.networks import chain, single
from tests.strategies import cases, problems
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.bound import bounds
from tvm_xengine.solvers.portfolio.context import Context
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits, Objective, Scope


def run_here(program: Program, options: BackendOptions, _floor: float) -> Answer:
    answer = solve_program(program, options, lambda _: None)
    assert isinstance(answer, Answer)
    return answer


def alone(problem: Problem, request: Request | None = None) -> Context:
    """Without a search that knows schedules, and without carrying solutions out."""
    return Context(Task(problem, request or Request()))


def test_bounds_rise_to_the_optimum_of_a_chain() -> None:
    found = [proof.bound for proof in bounds(alone(training_chain(6, 48)))]
    assert found == sorted(found)
    assert found[-1] > found[0]


def test_a_budget_that_no_order_fits_is_proven_infeasible() -> None:
    problem = training_chain(4, 56, parameter_bytes=8)
    assert list(bounds(alone(problem)))[-1].is_infeasible


@settings(max_examples=cases(40))
@given(problem=problems(max_ops=4))
def test_every_bound_is_below_the_optimum(problem: Problem) -> None:
    for scope in (Scope.EVERY_SCHEDULE, Scope.GIVEN_ORDER):
        best = solve_exhaustively(problem, in_given_order=scope is Scope.GIVEN_ORDER)
        for proof in bounds(alone(problem), scope, run_here):
            if proof.is_infeasible:
                assert best.is_infeasible
            elif best.value is not None:
                assert proof.bound <= best.value + 1e-6


@settings(max_examples=cases(100))
@given(problem=problems(max_ops=4))
def test_the_makespan_bound_is_below_the_shortest_makespan(problem: Problem) -> None:
    schedule = solve_exhaustively(problem).schedule
    if schedule is not None:
        known_us = simulate(problem, schedule).makespan_us
        makespan_us = shortest_makespan(problem, known_us)
        for proof in bounds(alone(problem, Request(Objective.MAKESPAN)), run=run_here):
            assert proof.bound <= makespan_us + 1e-6


def _two_devices(ops: list[tuple[str, list[str], str]], tensor_us: float) -> Problem:
    """Ops of 10 us, each on one of two devices, between which each tensor takes `tensor_us`."""
    size = 1000
    tensors = (Tensor("x", 0, Role.BATCH), *(Tensor(name, size) for name, _, _ in ops))
    graph = OpGraph(
        tensors,
        tuple(Op(name, "k", tuple(reads), (name,)) for name, reads, _ in ops),
        (ops[-1][0],),
    )
    ways = [("a", "b"), ("b", "a")]
    links = tuple(Link(*way, latency_us=0.0, bandwidth_gb_s=size / 1e3 / tensor_us) for way in ways)
    platform = Platform((Device("a", "llvm"), Device("b", "llvm")), links)
    return Problem(graph, platform, {name: {where: OpCost(10.0)} for name, _, where in ops})


def test_the_makespan_bound_counts_copies_along_a_path() -> None:
    """Streams are busy for 20 us each, and the links for 3 and 6."""
    path = [("p", ["x"], "a"), ("q", ["p"], "b"), ("r", ["q"], "a"), ("s", ["r"], "b")]
    context = alone(_two_devices(path, 3.0), Request(Objective.MAKESPAN))
    assert [*bounds(context, run=run_here)][-1].bound == pytest.approx(49.0)


def test_the_makespan_bound_counts_what_comes_before_and_after_a_busy_stream() -> None:
    """Four ops wait on b for what a makes, and a for all of them; no path is longer than 36 us."""
    middle = [(f"m{k}", ["p"], "b") for k in range(4)]
    graph = [("p", ["x"], "a"), *middle, ("q", [name for name, _, _ in middle], "a")]
    context = alone(_two_devices(graph, 3.0), Request(Objective.MAKESPAN))
    assert [*bounds(context, run=run_here)][-1].bound == pytest.approx(66.0)


def test_the_makespan_bound_adds_what_is_before_an_op_and_what_is_after_it() -> None:
    """Stream a is busy for 60 us until `q` ends, b for 40 us after it; no path is longer than 56 us."""
    before = [(f"m{k}", ["p"], "a") for k in range(4)]
    after = [(f"n{k}", ["q"], "b") for k in range(4)]
    middle, last = ("q", [name for name, _, _ in before], "a"), [name for name, _, _ in after]
    graph = [("p", ["x"], "a"), *before, middle, *after, ("r", last, "a")]
    context = alone(_two_devices(graph, 3.0), Request(Objective.MAKESPAN))
    assert [*bounds(context, run=run_here)][-1].bound == pytest.approx(100.0)


def test_few_relaxations_of_the_makespan_get_most_of_the_time() -> None:
    asked_s: list[float] = []

    def slow(_program: Program, options: BackendOptions, floor: float) -> Answer:
        asked_s.append(options.time_limit_s)
        return Answer(Outcome.UNKNOWN, None, None, floor, "out of time")

    large = single(chain(80), 0.5)
    list(bounds(alone(large, Request(limits=Limits(100.0))), run=slow))
    assert max(asked_s) < 50.0
    list(bounds(alone(large, Request(Objective.MAKESPAN, Limits(100.0))), run=slow))
    assert max(asked_s) > 50.0


def test_what_was_solved_is_solved_more_exactly_where_more_time_points_take_too_long() -> None:
    asked: list[tuple[int, float]] = []

    def slow(program: Program, options: BackendOptions, floor: float) -> Answer:
        asked.append((program.column_count, options.gap_ratio))
        if len(asked) == 1:
            return Answer(Outcome.OPTIMAL, None, None, floor + 1.0, "solved")
        return Answer(Outcome.UNKNOWN, None, None, floor, "out of time")

    problem = single(chain(16), 0.5)
    proofs = bounds(alone(problem), run=slow)
    for _ in range(4):
        proof = next(proofs)
    assert asked[1][0] > asked[0][0] == asked[2][0]
    assert asked[0][1] > asked[1][1] > asked[2][1]
    assert proof.bound == pytest.approx(problem.cheapest_us + 1.0)
