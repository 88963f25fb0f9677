from __future__ import annotations

import numpy as np
import pytest

from tvm_xengine.cost_models.features.table import (
    BODY_SLOTS,
    FEATURE_SET,
    FeatureTable,
)
from tvm_xengine.cost_models.models.body_sum import body_rows, fit_body_sum, sum_of_bodies_us

PARTS = ("share", "log_iterations", "width")
PARAMETERS = {"max_depth": 4, "learning_rate": 0.2, "min_child_weight": 1, "nthread": 1}


def kernels(count: int, most_bodies: int, seed: int) -> tuple[FeatureTable, np.ndarray]:
    """Each body takes a nanosecond times its width for each iteration; the sum is known."""
    rng = np.random.default_rng(seed)
    names = tuple(f"{part}_{slot}" for slot in BODY_SLOTS for part in PARTS)
    values = np.zeros((count, len(names)))
    time_us = np.full(count, 0.1)
    for row in range(count):
        for body in range(int(rng.integers(1, most_bodies + 1))):
            iterations, width = np.round(2 ** rng.uniform(4, 16)), rng.choice((1.0, 2.0, 4.0, 8.0))
            values[row, 3 * body : 3 * body + 3] = 0.5, np.log2(1 + iterations), width
            time_us[row] += 1e-3 * iterations * width
    ones = np.ones(count)
    return FeatureTable(FEATURE_SET, names, values, ones, ones, ones), time_us


def test_rows_are_the_bodies_that_exist():
    table, _ = kernels(50, 3, seed=0)
    bodies = body_rows(table)
    shares = table.values[:, :: len(PARTS)]
    assert len(bodies.kernel) == (shares > 0).sum()
    assert bodies.iterations == pytest.approx(2 ** bodies.values[:, 1] - 1)
    assert set(bodies.kernel) == set(range(50))


def test_kernels_of_more_bodies_than_were_ever_seen_together_are_predicted():
    table, time_us = kernels(800, 2, seed=1)
    booster = fit_body_sum(body_rows(table), time_us, np.ones(len(table)), PARAMETERS, trees=150)
    unseen, expected_us = kernels(200, 6, seed=2)
    errors = np.abs(sum_of_bodies_us(booster, body_rows(unseen)) / expected_us - 1)
    assert np.median(errors) < 0.05
