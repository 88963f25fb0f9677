"""A model adapts what another machine taught it, and the one that ships is made by one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.commands.in_process import run_command
from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.dataset.label_weights import weights_of
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.adapted import AdaptedTrees, TreeShape
from tvm_xengine.cost_models.models.adapted_predictor import AdaptedPredictor
from tvm_xengine.cost_models.models.cold_calls import ColdCalls, fit_cold_calls
from tvm_xengine.cost_models.models.model_file import (
    PRIOR_MODEL,
    ModelFile,
    prior_predictor,
    read_model,
    write_model,
)
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL
from tvm_xengine.errors import InvalidDatasetError

CALL_US, US_PER_BYTE, SLOWER = 2.0, 1e-5, 1.5


def elsewhere(rows: int = 120):
    """Kernels with the features of the prior, on a machine that is slower by a law."""
    rng = np.random.default_rng(0)
    names = prior_predictor().feature_names
    data = synthetic(rows)
    values = rng.uniform(0, 1, (rows, len(names)))
    values[:, [k for k, name in enumerate(names) if "threads" in name]] = 1.0
    table = FeatureTable(
        prior_predictor().feature_set,
        names,
        values,
        *(data.table.work,) * 2,
        data.table.moved_bytes,
    )
    hot_us = SLOWER * prior_predictor().times_us(table)[0]
    cold_us = hot_us + CALL_US + US_PER_BYTE * table.moved_bytes
    return replace(data, table=table, time_us=cold_us, hot_us=hot_us)


def of_two_processors(rows: int = 400):
    """Kernels that ran on two processors, of which one is three times as slow."""
    data = elsewhere(rows // 2)
    data = data.take([row // 2 for row in range(rows)])
    names = tuple("fast" if row % 2 else "slow" for row in range(rows))
    ratio = np.where(np.array(names) == "slow", 3.0, 1.0)
    return replace(data, processors=names, time_us=data.time_us * ratio, hot_us=data.hot_us * ratio)


def test_each_processor_keeps_its_law_beside_the_others():
    data = of_two_processors()
    learned, asked = data.take(range(300)), data.take(range(300, 400))
    fitted = AdaptedTrees(members=1, shared=TreeShape(50, 2)).fit_point(learned)
    assert fitted.own["slow"].cold.call_us == pytest.approx(3 * CALL_US, rel=0.1)
    assert fitted.own["fast"].cold.call_us == pytest.approx(CALL_US, rel=0.1)
    placed, _ = fitted.on(asked.processors).times_us(asked.table)
    np.testing.assert_allclose(placed, asked.time_us, rtol=0.15)
    nowhere, _ = fitted.times_us(asked.table)
    assert np.median(np.abs(nowhere / asked.time_us - 1)) > 0.3


def test_a_processor_with_few_kernels_is_not_learned_apart():
    data = of_two_processors(120)
    assert AdaptedTrees(1, TreeShape(5, 2), TreeShape(5, 2)).fit_point(data).own == {}


def test_a_model_knows_each_processor_again_when_it_is_read(tmp_path: Path):
    data = of_two_processors()
    fitted = AdaptedTrees(members=1, shared=TreeShape(20, 3)).fit_point(data)
    path = tmp_path / "two.costmodel"
    write_model(ModelFile(fitted, ("llvm x86_64",)), path)
    again = read_model(path).predictor
    assert isinstance(again, AdaptedPredictor)
    assert again.processors == ("fast", "slow")
    for names in (("fast",) * 400, ("slow",) * 400, data.processors, ("other",) * 400):
        ours, theirs = (p.on(names).predict(data.table) for p in (fitted, again))
        np.testing.assert_array_equal(ours.time_us, theirs.time_us)
        np.testing.assert_array_equal(ours.hi_us, theirs.hi_us)


def test_the_law_of_another_machine_is_found_in_a_few_kernels():
    data = elsewhere()
    fitted = AdaptedTrees(members=1).fit_point(data.take(range(80)))
    assert fitted.shared.cold.call_us == pytest.approx(CALL_US, rel=0.05)
    assert fitted.shared.cold.us_per_byte == pytest.approx(US_PER_BYTE, rel=0.05)
    rest = data.take(range(80, len(data)))
    np.testing.assert_allclose(fitted.times_us(rest.table)[0], rest.time_us, rtol=0.05)


def test_a_machine_without_labels_is_expected_between_the_known_ones():
    data = elsewhere()
    fitted = AdaptedTrees(members=1).fit_point(data)
    own, between, prior = (fitted.times_us(data.table, share)[0] for share in (1.0, 0.5, 0.0))
    assert fitted.share_elsewhere == 0.5
    assert (prior < between).all() and (between < own).all()


def test_cold_calls_are_the_same_from_few_and_from_many_kernels():
    data = elsewhere()
    few = np.arange(0, len(data), 6)
    found = [
        fit_cold_calls(data.hot_us[rows], data.time_us[rows], data.table.take(rows))
        for rows in (few, np.arange(len(data)))
    ]
    assert all(isinstance(each, ColdCalls) for each in found)
    assert found[0].call_us == pytest.approx(found[1].call_us, rel=0.02)


def test_a_model_does_not_hang_on_the_last_bits_of_a_processor():
    """Processors round logarithms and sums differently; the times here differ by as much."""
    data = of_two_processors(220)
    ratio = 1.0 + 1e-13 * np.random.default_rng(1).choice([-1.0, 1.0], len(data))
    other = replace(data, time_us=data.time_us * ratio, hot_us=data.hot_us / ratio)
    model = AdaptedTrees(members=1, shared=TreeShape(40, 4), own=TreeShape(20, 3))
    first, second = (model.fit(each) for each in (data, other))
    assert first.own.keys() == second.own.keys() == {"fast", "slow"}
    pairs = [(first.shared, second.shared), *((first.own[k], second.own[k]) for k in first.own)]
    for one, two in pairs:
        assert [b.save_raw() for b in one.machine] == [b.save_raw() for b in two.machine]
        assert [b.save_raw() for b in one.caches] == [b.save_raw() for b in two.caches]
        assert one.cold == two.cold
        assert one.machine_limits == two.machine_limits
    assert (first.widths, first.smearing) == (second.widths, second.smearing)


def test_kernels_with_one_round_are_as_noisy_as_their_machine():
    data = elsewhere(8)
    rounds = tuple((1.0, 1.0) if row % 2 else (1.0,) for row in range(8))
    noise = np.array([0.0, 0.2, 0.0, 0.3, 0.0, 0.01, 0.0, 0.02])
    machines = ("noisy",) * 4 + ("calm",) * 4
    given = replace(
        data, time_us=np.ones(8), noise_ratio=noise, rounds_us=rounds, machines=machines
    )
    weights = weights_of(given)
    assert weights[0] == weights[1] > weights[3]
    assert weights[4] == weights[5] > weights[7]
    assert weights[4] > 10 * weights[0]


def test_a_model_of_another_prior_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "tvm_xengine.cost_models.models.model_file.digest_of", lambda _path: "0" * 64
    )
    with pytest.raises(InvalidDatasetError, match=PRIOR_MODEL.name):
        read_model(SHIPPED_MODEL)


@pytest.mark.slow
def test_one_command_makes_the_shipped_model_of_the_shipped_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Bit for bit with the versions of its file; otherwise within 1 %."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "made.costmodel"
    done = run_command("costs", "train", "-o", str(made))
    assert done.returncode == 0, done.stderr
    shipped, again = read_model(SHIPPED_MODEL), read_model(made)
    table = elsewhere().table
    ours, theirs = (model.predictor.times_us(table)[0] for model in (shipped, again))
    np.testing.assert_allclose(ours, theirs, rtol=0.01)
    assert again.card["kernels"] == shipped.card["kernels"]
    if again.xgboost == shipped.xgboost:
        assert made.read_bytes() == SHIPPED_MODEL.read_bytes()
