from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, KernelRecord
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.measure.measurements import Measurement
from tvm_xengine.errors import InvalidDatasetError

NAMES = ("one", "two")


def record(kernel="k", families=("lenet",), features=(1.0, 2.0), feature_set=FEATURE_SET):
    return KernelRecord(
        *(kernel, "d", '{"kind":"llvm"}', "name", families, "", feature_set, features),
        *(10.0, 20.0, 30.0, 0),
    )


def measurement(kernel="k"):
    return Measurement(kernel, "d", "name", 5.0, 4.0, 6.0, "thread", ((5.0, 5.0),))


def test_measured_kernels_are_loaded_with_their_features(tmp_path):
    folder = DatasetFolder(tmp_path)
    folder.add(record("a"), NAMES)
    folder.add(record("b"), NAMES)
    folder.measurements.add(measurement("a"))
    data = DatasetFolder(tmp_path).load()
    assert data.kernels == ("a",)
    assert data.table.names == NAMES
    assert data.table.values.tolist() == [[1.0, 2.0]]
    assert data.time_us.tolist() == [5.0]
    assert data.noise_ratio.tolist() == [0.2]


def test_families_of_a_kernel_add_up(tmp_path):
    folder = DatasetFolder(tmp_path)
    for family in ("lenet", "mlp", "lenet"):
        folder.add(record(families=(family,)), NAMES)
    folder.measurements.add(measurement())
    assert DatasetFolder(tmp_path).load().families == (("lenet", "mlp"),)
    assert len((tmp_path / "kernels.jsonl").read_text().splitlines()) == 3  # names, two records


def test_a_kernel_belongs_to_the_families_it_was_met_in_on_any_device(tmp_path):
    folder = DatasetFolder(tmp_path)
    for device, family in (("d", "lenet"), ("e", "mlp")):
        folder.add(replace(record(families=(family,)), device=device), NAMES)
        folder.measurements.add(replace(measurement(), device=device))
    data = folder.load()
    assert data.families == (("lenet", "mlp"),) * 2


def test_a_line_cut_off_by_a_kill_is_skipped_and_the_next_is_whole(tmp_path, caplog):
    folder = DatasetFolder(tmp_path)
    folder.add(record("a"), NAMES)
    path = tmp_path / "kernels.jsonl"
    path.write_text(path.read_text() + json.dumps({"kernel": "b"})[:-4])
    with caplog.at_level(logging.WARNING):
        again = DatasetFolder(tmp_path)
    assert "skipped" in caplog.text
    again.add(record("c"), NAMES)
    assert DatasetFolder(tmp_path).find("c", "d") is not None
    assert DatasetFolder(tmp_path).find("a", "d") is not None


def test_of_many_lines_that_cannot_be_read_the_first_are_named(tmp_path, caplog):
    (tmp_path / "kernels.jsonl").write_text('{"kernel": 1}\n' * 50)
    DatasetFolder(tmp_path)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert said[0].endswith("kernels.jsonl:1 is skipped: expected schema 2, found None")
    assert said[-1].endswith("50 lines are skipped in all")


def test_a_target_that_is_no_json_is_skipped(tmp_path, caplog):
    DatasetFolder(tmp_path).add(replace(record(), target='"llvm"'), NAMES)
    assert not DatasetFolder(tmp_path).records()
    assert "expected a target as JSON" in caplog.text


def test_kernels_whose_features_cannot_be_renewed_are_left_out(tmp_path, caplog):
    folder = DatasetFolder(tmp_path)
    for kernel, feature_set in (("a", "tir-v0"), ("b", FEATURE_SET)):
        folder.add(record(kernel, feature_set=feature_set), NAMES)
        folder.measurements.add(measurement(kernel))
    assert folder.load().kernels == ("b",)
    assert "1 of 2 kernels are left out" in caplog.text


def test_an_empty_dataset_says_how_to_fill_it(tmp_path):
    with pytest.raises(InvalidDatasetError, match="costs collect"):
        DatasetFolder(tmp_path).load()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record(feature_set="tir-v0"), "of tir-v0; read them again"),
        (record(features=(1.0,)), "found 1 of"),
        (record(features=(1.0, float("nan"))), "not a number"),
    ],
)
def test_features_of_another_version_or_without_value_are_refused(tmp_path, bad, message):
    folder = DatasetFolder(tmp_path)
    folder.add(bad, NAMES)
    folder.measurements.add(measurement())
    with pytest.raises(InvalidDatasetError, match=message):
        folder.load()
