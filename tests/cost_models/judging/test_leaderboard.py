"""The leaderboard: every model on every split that the data allows."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.judging.evaluate import SPLITS, HeldOut
from tvm_xengine.cost_models.judging.leaderboard import leaderboard, page, row_of
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours
from tvm_xengine.cost_models.models.catalogue import cost_models
from tvm_xengine.cost_models.models.model import Prediction

EXAMPLE = Path(__file__).parents[3] / "examples" / "cost_model"


def test_splits_are_those_that_the_data_allows():
    data = synthetic(120)
    models = (LogLinear(), NearestNeighbours())
    board = leaderboard(models, data)
    assert set(board) == {"random", "family", "size"}
    both = replace(data, processors=("a", "b") * 60, sources=("tir", "onednn") * 60)
    assert {"source", "processor"} <= set(leaderboard(models, both))
    text = page(board, data, ["Made-up data."])
    assert text.count("| log-linear |") == 3


def test_a_kernel_keeps_its_random_fold_when_the_dataset_grows():
    data = synthetic(100)

    def fold_of(part):
        folds = [test for _, test in SPLITS["random"](part)]
        return {part.kernels[row]: k for k, rows in enumerate(folds) for row in rows}

    small, large = fold_of(data.take(range(60))), fold_of(data)
    assert all(large[kernel] == fold for kernel, fold in small.items())


def test_intervals_hold_the_error_of_all_kernels():
    """Bootstrap intervals of a known error hold it in about 95 % of repetitions."""
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(20):
        data = synthetic(150, seed=seed)
        times = data.time_us * np.exp(0.2 * rng.standard_normal(len(data)))
        row = row_of("m", HeldOut(data, Prediction(times, times, times)), seed)
        inside += row.median_error[1] <= 0.1344 <= row.median_error[2]  # of exp(0.2 z) - 1
    assert inside >= 16


def test_every_model_of_the_catalogue_learns_a_plain_law():
    train, test = synthetic(400, seed=1), synthetic(100, seed=2)
    for name, make in cost_models().items():
        if name == "adapted-trees":  # knows the features of its prior only
            continue
        answer = make().fit(train).predict(test.table)
        error = np.median(np.abs(answer.time_us / test.time_us - 1))
        assert error < (0.9 if name == "roofline" else 0.5), name


def test_the_example_of_a_plug_in_is_compared_with_the_models_that_ship(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(EXAMPLE)
    forest = import_module("kernel_forest").RandomForest(trees=20)
    data = synthetic(120)
    ranked = [row.model for row in leaderboard((forest, LogLinear()), data)["random"]]
    assert ranked == [forest.name, "log-linear"]
