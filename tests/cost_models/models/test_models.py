from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from scipy.spatial import cKDTree

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.judging.evaluate import SPLITS, evaluate, hold_out
from tvm_xengine.cost_models.judging.metrics import metrics_of, noise_floor
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours, Roofline
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees, family_folds
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.cost_models.models.model_file import ModelFile, read_model, write_model
from tvm_xengine.cost_models.prediction.transfer import (
    choose_kernels,
    evaluate_transfer,
    other_devices,
)
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.report.costs import print_families, print_metrics

QUICK = BoostedTrees(members=2, trees=80, learning_rate=0.2, depth=5)


@pytest.fixture(scope="module")
def data():
    return synthetic(600)


@pytest.fixture(scope="module")
def predictor(data):
    return QUICK.fit(data)


def test_trees_learn_the_law_and_beat_the_simple_models(data):
    errors = {
        model.name: evaluate(model, data, "family").median_error_ratio
        for model in (QUICK, Roofline(), LogLinear(), NearestNeighbours())
    }
    assert errors["boosted trees"] < 0.06
    assert errors["boosted trees"] == min(errors.values())


def test_a_rate_extrapolates_to_larger_kernels(data):
    assert evaluate(QUICK, data, "size").median_error_ratio < 0.06


def test_intervals_hold_four_out_of_five_kernels_of_unseen_families(data):
    assert 0.7 <= evaluate(QUICK, data, "family").coverage_ratio <= 0.95


def test_equal_seeds_predict_equally(data, predictor):
    again = QUICK.fit(data)
    np.testing.assert_array_equal(
        predictor.predict(data.table).time_us, again.predict(data.table).time_us
    )


def test_sums_of_times_are_predicted_without_a_bias():
    """With 30 % of noise the mean lies 4.6 % above the typical time."""
    exact = synthetic(1500, seed=3)
    noise = np.exp(0.3 * np.random.default_rng(1).standard_normal(len(exact)))
    noisy = replace(exact, time_us=exact.time_us * noise)
    known, unknown = np.arange(1000), np.arange(1000, 1500)
    fitted = QUICK.fit(noisy.take(known))
    table = noisy.table.take(unknown)

    def bias(predicted_us):
        return np.mean(predicted_us / exact.time_us[unknown]) - 1

    typical_us, _ = fitted.times_us(table)
    answer = fitted.predict(table)
    assert bias(answer.time_us) - bias(typical_us) == pytest.approx(0.046, abs=0.02)
    assert ((answer.lo_us <= answer.time_us) & (answer.time_us <= answer.hi_us)).all()


@pytest.mark.parametrize("split", SPLITS)
def test_no_kernel_is_learned_and_judged(data, split):
    for train, test in SPLITS[split](data):
        assert not set(train) & set(test)
        if split == "family":
            learned = {family for row in train for family in data.families[row]}
            assert not any(learned.intersection(data.families[row]) for row in test)


def test_a_kernel_of_two_families_is_never_learned_when_one_of_them_is_judged(data):
    shared = replace(data, families=(("family0", "family1"), *data.families[1:]))
    for train, test in family_folds(shared):
        judged = {family for row in test for family in shared.families[row]}
        if judged & {"family0", "family1"}:
            assert 0 not in train


def test_a_model_file_predicts_what_was_written(tmp_path, data, predictor):
    path = tmp_path / "cpu.costmodel"
    write_model(ModelFile(predictor, ("llvm x86_64",), card={"kernels": len(data)}), path)
    read = read_model(path)
    assert read.architectures == ("llvm x86_64",)
    assert read.card["kernels"] == len(data)
    for name in ("time_us", "lo_us", "hi_us"):
        np.testing.assert_array_equal(
            getattr(predictor.predict(data.table), name),
            getattr(read.predictor.predict(data.table), name),
        )


def test_a_model_of_other_features_is_refused(tmp_path, data, predictor):
    path = tmp_path / "old.costmodel"
    write_model(ModelFile(replace(predictor, feature_set="tir-v0"), ("llvm x86_64",)), path)
    with pytest.raises(InvalidDatasetError, match=r"found schema \d on tir-v0; train it again"):
        read_model(path)
    with pytest.raises(InvalidDatasetError, match="train it again"):
        predictor.predict(replace(data.table, names=(*data.table.names[:-1], "other")))


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "x").write_text("hello")
    for path in (tmp_path / "x", tmp_path / "missing"):
        with pytest.raises(InvalidDatasetError, match="expected a cost model"):
            read_model(path)


def test_a_model_file_whose_parts_are_wrong_is_refused(tmp_path, predictor):
    whole, bad = tmp_path / "whole.costmodel", tmp_path / "bad.costmodel"
    write_model(ModelFile(predictor, ("llvm x86_64",), card={"targets": {}}), whole)
    with zipfile.ZipFile(whole) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    document = json.loads(parts["model.json"])
    for changed in (
        {"model.json": b"[1, 2]"},
        {"model.json": json.dumps(document | {"widths": None}).encode()},
        {"model.json": json.dumps(document | {"card": None}).encode()},
        {"model.json": json.dumps(document | {"card": {"targets": {"llvm": 1}}}).encode()},
        {"member0.ubj": parts["member0.ubj"][:100]},
    ):
        content = {**parts, **changed}
        members = [content[name] for name in content if name.endswith(".ubj")]
        digest = hashlib.sha256(b"".join((content["model.json"], *members))).hexdigest()
        write_zip(bad, {**content, "sha256": digest.encode()})
        with pytest.raises(InvalidDatasetError, match=r"expected a cost model(?!.*not what was)"):
            read_model(bad)


def test_a_model_file_that_was_changed_is_refused_unread(tmp_path, predictor):
    path = tmp_path / "x.costmodel"
    write_model(ModelFile(predictor, ("llvm x86_64",)), path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    for name, old, new in (
        ("model.json", b'"most_threads": 1', b'"most_threads": 2'),
        ("member1.ubj", b"base_weights", b"base_heights"),
        ("sha256", parts["sha256"][:4], b"\0\0\0\0"),
    ):
        assert old in parts[name]
        write_zip(path, {**parts, name: parts[name].replace(old, new)})
        with pytest.raises(InvalidDatasetError, match="not what was written"):
            read_model(path)
    write_zip(path, {name: parts[name] for name in parts if name != "sha256"})
    with pytest.raises(InvalidDatasetError, match="sha256"):
        read_model(path)


def write_zip(path, parts):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)


def test_labels_that_are_no_times_are_refused(data):
    times = data.time_us.copy()
    times[3] = np.nan
    with pytest.raises(InvalidDatasetError, match="kernel3"):
        QUICK.fit(replace(data, time_us=times))


def test_metrics_are_what_they_say():
    measured = np.array([10.0, 100.0, 1000.0])
    predicted = np.array([11.0, 80.0, 1000.0])
    families = [("a",), ("a",), ("b",)]
    metrics = metrics_of(measured, predicted, families, (0.95 * predicted, 1.05 * predicted))
    assert metrics.mean_error_ratio == pytest.approx((0.1 + 0.2 + 0) / 3)
    assert metrics.median_error_ratio == pytest.approx(0.1)
    assert metrics.long_within_25_ratio == 1
    assert metrics.kendall == 1
    assert metrics.weighted_error_ratio == pytest.approx(21 / 1110)
    assert metrics.worst_total_ratio == pytest.approx(19 / 110)
    assert metrics.coverage_ratio == pytest.approx(1 / 3)


def test_the_noise_floor_compares_first_and_last_round():
    floor = noise_floor([(10.0, 5.0, 11.0), (7.0,)], [("a",), ("a",)])
    assert floor.kernels == 1
    assert floor.median_error_ratio == pytest.approx(1 / 11)


def test_few_measurements_on_a_new_device_help(data):
    target = synthetic(400, seed=1, slowdown=4.0)
    rows = evaluate_transfer(QUICK, data, target, (20, 100))
    assert rows["no measurement"].median_error_ratio > 0.5
    assert rows["20 chosen"].median_error_ratio < 0.3
    assert rows["100 chosen"].median_error_ratio < 0.12


def test_every_kernel_has_a_chosen_one_like_it(data):
    chosen = choose_kernels(data.table, 40)
    assert len(set(chosen)) == 40
    drawn = [np.random.default_rng(seed).choice(len(data), 40, replace=False) for seed in range(5)]
    assert mean_distance(data, chosen) < min(mean_distance(data, rows) for rows in drawn)


def mean_distance(data, chosen):
    values = data.table.values / np.maximum(data.table.values.std(axis=0), 1e-9)
    return np.mean([np.linalg.norm(values[chosen] - row, axis=1).min() for row in values])


def test_more_threads_than_were_learned_from_are_worth_what_amdahl_says(data):
    names = (*data.table.names, "parallel_share")

    def kernels(threads, share):
        values = np.concatenate([data.table.values, np.full((len(data), 1), share)], axis=1)
        values[:, names.index("threads")] = threads
        return replace(data.table, names=names, values=values)

    learned = replace(data, table=kernels(1.0, 0.0))
    known = QUICK.fit_point(learned)
    serial_us = known.predict(learned.table).time_us
    long = serial_us > 1000
    half_us = known.predict(kernels(2.0, 1.0)).time_us
    assert half_us[long] / serial_us[long] == pytest.approx(1 / 1.8, abs=0.01)
    np.testing.assert_array_equal(known.predict(kernels(2.0, 0.0)).time_us, serial_us)


def test_predictors_need_no_compiler():
    script = (
        "import sys\n"
        "import tvm_xengine.cost_models.models.boosted_trees, tvm_xengine.cost_models.models.baselines\n"
        "import tvm_xengine.cost_models.models.model_file, tvm_xengine.cost_models.prediction.transfer\n"
        "import tvm_xengine.cost_models.prediction.correction, tvm_xengine.cost_models.prediction.prior\n"
        "import tvm_xengine.cost_models.judging.evaluate, tvm_xengine.cost_models.dataset.dataset\n"
        "sys.exit('tvm' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_another_version_of_the_code_generator_is_no_new_device(data):
    halves = ["old"] * 300 + ["new"] * 300
    both = replace(
        data,
        devices=tuple(halves),
        targets=("here",) * 400 + ("there",) * 200,
        sources=("tir",) * 350 + ("onednn",) * 50 + ("tir",) * 200,
    )
    source, target = other_devices(both, "here")
    assert set(source.targets) == {"there"}
    assert set(target.targets) == {"here"}
    assert set(target.devices) == {"old", "new"}
    assert set(target.sources) == {"tir"}  # nothing is known of the library on the other


def test_neighbours_are_those_that_a_search_tree_finds(data):
    values = np.random.default_rng(0).standard_normal((len(data), 40))
    names = tuple(f"feature{k}" for k in range(40))
    table = replace(data.table, names=names, values=values)
    known, unknown = np.arange(450), np.arange(450, 600)
    learned = replace(data, table=table).take(known)
    found_us = NearestNeighbours().fit(learned).predict(table.take(unknown)).time_us
    mean, scale = values[known].mean(axis=0), values[known].std(axis=0)
    _, near = cKDTree((values[known] - mean) / scale).query((values[unknown] - mean) / scale, k=3)
    rates = np.log(learned.time_us / learned.table.work)[near].mean(axis=1)
    np.testing.assert_allclose(found_us, table.work[unknown] * np.exp(rates))


def test_the_interval_of_neighbours_leaves_the_kernel_itself_out():
    """Of two kernels each is predicted by the other."""
    two = synthetic(2)
    rates = np.log(two.time_us / two.table.work)
    fitted = NearestNeighbours().fit(two)
    assert fitted.spread == pytest.approx(abs(rates[0] - rates[1]))


@dataclass(frozen=True)
class MeanRate:
    """A model of somebody else's, as the README describes it."""

    name: str = "mean rate"
    us_per_work: float = 1.0

    def fit(self, data):
        return replace(self, us_per_work=float(np.median(data.time_us / data.table.work)))

    def predict(self, table):
        time_us = self.us_per_work * table.work
        return Prediction(time_us, time_us / 2, time_us * 2)


def test_a_model_of_ones_own_gets_the_tables(data):
    done = []
    found = hold_out(MeanRate(), data, "family", lambda *news: done.append(news))
    assert done[-1] == (6, 6, "family: mean rate")
    assert len(found.data) == len(data)
    families = found.by_family()
    assert set(families) == set(data.all_families())
    assert sum(metrics.kernels for metrics in families.values()) == len(data)
    assert found.by_source() == {}
    console = Console(file=StringIO(), width=150)
    print_metrics(console, "all", {"mean rate": found.metrics()})
    print_families(console, "families", families)
    assert console.file.getvalue().count("family") >= 7
