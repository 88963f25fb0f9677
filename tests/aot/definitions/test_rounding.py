"""How far off sums are taken to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tests.aot.examples import export, tiny_mlp
from tvm_xengine.aot.check import reference
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
    drawn = Expressions(np.float64, rng.standard_normal).rounded(exact, terms)
    ratio = np.std(drawn - exact) / np.std(added - exact)
    assert 2.0 < ratio < 20.0


def test_sums_are_exact_where_no_errors_are_drawn() -> None:
    total = np.arange(5.0)
    assert Expressions(np.float64).rounded(total, 1000) is total
    counts = np.arange(5)
    drawn = np.random.default_rng(0).standard_normal
    assert Expressions(np.float64, drawn).rounded(counts, 1000) is counts


def test_a_kink_is_crossed_by_errors_of_one_sign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a loss that is off on one side only, the tolerance knows."""
    run, signs, threads = reference._run, [], []

    def kinked(training, kernels, trial, wide, errors=None):
        threads.extend(
            info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"
        )
        made = run(training, kernels, trial, wide, errors)
        signs.append(0.0 if errors is None else np.sign(errors((1,))[0]))
        kink = 0.1 if signs[-1] > 0 else 0.0
        return replace(made, losses=(*made.losses[:-1], made.losses[-1] + kink))

    monkeypatch.setattr(reference, "_run", kinked)
    expected = export(tiny_mlp(), tmp_path / "out").expected
    assert sorted(signs) == [-1.0, 0.0, 1.0]
    assert expected.rounding_error > 0.01
    assert expected.tolerances[-1] == 10 * expected.rounding_error
    assert expected.tolerances[0] == reference.LOSS_TOLERANCE
    assert set(threads) <= {1}
