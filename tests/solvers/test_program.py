"""Sparse programs: what is collected in blocks comes out sorted."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.backends.answer import Answer, BackendOptions
from tvm_xengine.solvers.backends.highs import solve_program
from tvm_xengine.solvers.program import Program, ProgramBuilder, side_by_side


def test_entries_at_the_same_place_add_up_and_zeros_vanish() -> None:
    builder = ProgramBuilder()
    x = builder.binaries(2)
    row = builder.row([(int(x[1]), 2.0), (int(x[0]), 1.0)], upper=3.0)
    builder.entries([row, row], [x[0], x[1]], [4.0, -2.0])
    program = builder.build()
    assert program.starts.tolist() == [0, 1]
    assert (program.columns.tolist(), program.values.tolist()) == ([0], [5.0])


def test_the_objective_counts_linear_terms_and_products() -> None:
    builder = ProgramBuilder()
    x = builder.binaries(2)
    builder.minimise(x, [1.0, 10.0])
    builder.minimise_products(x[:1], x[1:], 100.0)
    program = builder.build()
    assert program.is_quadratic
    assert program.objective(np.array([1.0, 1.0])) == 111.0


def test_a_relaxed_program_has_the_same_rows_and_no_integers() -> None:
    builder = ProgramBuilder()
    builder.row([(int(c), 1.0) for c in builder.binaries(3)], lower=1.0)
    relaxed = builder.build().relaxed()
    assert not relaxed.is_integer.any()
    assert relaxed.row_count == 1


def test_programs_side_by_side_are_solved_each_for_itself() -> None:
    programs = [covering(weights) for weights in ([3.0, 5.0], [2.0, 9.0, 4.0], [7.0])]
    joined = side_by_side(programs)
    answer = solve_program(joined, BackendOptions(), lambda _: None)
    assert isinstance(answer, Answer) and answer.x is not None
    ends = np.cumsum([program.column_count for program in programs])
    parts = np.split(answer.x, ends[:-1])
    assert [p.objective(x) for p, x in zip(programs, parts, strict=True)] == [3.0, 2.0, 7.0]
    assert joined.objective(answer.x) == 12.0


def covering(weights: list[float]) -> Program:
    """At least one of the columns, which cost so much."""
    builder = ProgramBuilder()
    x = builder.binaries(len(weights))
    builder.minimise(x, weights)
    builder.row([(int(column), 1.0) for column in x], lower=1.0)
    return builder.build()


def test_products_stay_with_their_own_program() -> None:
    builder = ProgramBuilder()
    x = builder.binaries(2)
    builder.minimise_products(x[:1], x[1:], 100.0)
    joined = side_by_side([builder.build(), builder.build()])
    assert joined.objective(np.array([0.0, 1.0, 1.0, 0.0])) == 0.0
    assert joined.objective(np.array([0.0, 0.0, 1.0, 1.0])) == 100.0
