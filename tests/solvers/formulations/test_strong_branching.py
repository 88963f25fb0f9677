"""The choice of time points by strong branching on the linear relaxation."""

from __future__ import annotations

import pytest

from tests.solvers.samples.chains import training_chain
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.relaxation.relaxations import Relaxations
from tvm_xengine.solvers.relaxation.strong_branching import with_chosen_time_points
from tvm_xengine.solvers.result import Objective, Scope

CHAIN = training_chain(8, 56)
AMPLE = training_chain(8, 4000)


def run_here(program: Program, options: BackendOptions, _floor: float) -> Answer:
    answer = solve_program(program, options, lambda _: None)
    assert isinstance(answer, Answer)
    return answer


def relaxations_of(problem: Problem) -> Relaxations:
    return Relaxations(index_problem(problem, Objective.COST), Scope.EVERY_SCHEDULE)


def linear_bound(relaxations: Relaxations, time_points: set[int]) -> float:
    program = relaxations.at(time_points).program.relaxed()
    return run_here(program, BackendOptions(), 0.0).bound


def trunk_of(relaxations: Relaxations) -> list[int]:
    """A chain of dependences, from the first op on."""
    chain = [0]
    for op in range(1, relaxations.indexed.op_count):
        if relaxations.ancestors[op] >> chain[-1] & 1:
            chain.append(op)
    return chain


def test_no_other_candidate_raises_the_bound_more() -> None:
    relaxations = relaxations_of(CHAIN)
    trunk = trunk_of(relaxations)
    start = {trunk[-1]}
    before = linear_bound(relaxations, start)
    candidates = trunk[:: max(1, len(trunk) // 6)][:7]
    found = with_chosen_time_points(relaxations, start, candidates, run=run_here, limit_s=10.0)
    rises = [linear_bound(relaxations, start | {op}) - before for op in candidates]
    assert start < found <= start | set(candidates)
    assert linear_bound(relaxations, found) - before >= 0.8 * max(rises) > 0.0


def test_candidates_that_change_nothing_are_left_out() -> None:
    relaxations = relaxations_of(AMPLE)
    trunk = trunk_of(relaxations)
    assert with_chosen_time_points(relaxations, {trunk[0]}, trunk, run=run_here, limit_s=10.0) == {
        trunk[0]
    }


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FEASIBLE])
def test_without_time_the_time_points_stay_as_they_are(outcome: Outcome) -> None:
    relaxations = relaxations_of(CHAIN)
    trunk = trunk_of(relaxations)

    def late(_program: Program, _options: BackendOptions, _floor: float) -> Answer:
        return Answer(outcome, None, None, 0.0, "out of time")

    assert with_chosen_time_points(relaxations, {trunk[0]}, trunk, run=late, limit_s=0.1) == {
        trunk[0]
    }


def test_time_points_stay_a_chain_of_dependences() -> None:
    relaxations = relaxations_of(CHAIN)
    trunk = trunk_of(relaxations)
    every_op = range(relaxations.indexed.op_count)
    found = sorted(
        with_chosen_time_points(relaxations, {trunk[-1]}, every_op, run=run_here, limit_s=10.0)
    )
    assert all(relaxations.fits(found, op) for op in found)
