"""How far off sums are taken to be."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_xengine.aot.check.definitions.expressions import Expressions


@pytest.mark.parametrize("terms", [16, 256, 4096, 65536])
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_drawn_errors_are_as_large_as_those_of_sums_of_one_term_after_another(
    terms: int, mean: float
) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(mean, 1, (64, terms)).astype("float32")
    exact = values.astype("float64").sum(axis=1)
    added = np.cumsum(values, axis=1, dtype="float32")[:, -1]
    drawn = Expressions(np.float64, rng).rounded(exact, terms)
    ratio = np.std(drawn - exact) / np.std(added - exact)
    assert 2.0 < ratio < 20.0


def test_sums_are_exact_where_no_errors_are_drawn() -> None:
    total = np.arange(5.0)
    assert Expressions(np.float64).rounded(total, 1000) is total
    counts = np.arange(5)
    assert Expressions(np.float64, np.random.default_rng(0)).rounded(counts, 1000) is counts
