"""Sparse programs: what is collected in blocks comes out sorted."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.program import ProgramBuilder


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
