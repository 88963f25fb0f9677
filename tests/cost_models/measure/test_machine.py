"""A measurement says which machine it is of, and features are of that machine."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace

import pytest

from tests.kernels.kernels import BASELINE, NATIVE, matmul
from tests.kernels.onednn.onednn_twins import kernel_of, needs_products
from tvm_xengine.cost_models.dataset import sources as dataset_sources
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import KernelSources, add_kernel, refresh_features
from tvm_xengine.cost_models.features import extract
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.measure import this_machine as machines
from tvm_xengine.cost_models.measure.machine import machine_from_json
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import SCHEMA, Measurement, MeasurementCache
from tvm_xengine.cost_models.measure.this_machine import (
    data_caches_bytes,
    device_fingerprint,
    processor_name,
    remote_machine,
    this_machine,
)
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.linear import linear

ELSEWHERE = replace(
    this_machine(), processor="another", caches_bytes=(1 << 16, 1 << 18, 1 << 20), threads=1
)


@pytest.fixture(scope="module")
def kernel() -> DeviceKernel:
    return prepare_kernel(matmul(64, 64, 64), resolve_target(BASELINE), "product")


def test_a_machine_survives_its_json():
    machine = this_machine()
    again = machine_from_json(json.loads(json.dumps(asdict(machine))))
    assert again == machine and again.key == machine.key


def test_another_processor_is_another_device_and_its_top_speed_is_not(kernel):
    here = this_machine()
    assert device_fingerprint(kernel.target) == device_fingerprint(kernel.target, here)
    for other in (
        replace(here, processor="another"),
        replace(here, caches_bytes=(1, 2, 3)),
        replace(here, vector_extensions=()),
    ):
        assert device_fingerprint(kernel.target, other) != device_fingerprint(kernel.target, here)
    faster = replace(here, frequency_mhz=1e4)
    assert device_fingerprint(kernel.target, faster) == device_fingerprint(kernel.target, here)


def test_what_the_system_does_not_say_is_not_guessed(tmp_path, monkeypatch):
    assert data_caches_bytes(tmp_path) == (None, None, None)
    for name, level, kind, size in (
        ("index0", "1", "Data", "48K"),
        ("index1", "1", "Instruction", "32K"),
        ("index2", "2", "Unified", "2048K"),
        ("index3", "3", "Unified", "?"),
    ):
        (tmp_path / name).mkdir()
        for file, text in (("level", level), ("type", kind), ("size", size)):
            (tmp_path / name / file).write_text(text + "\n")
    assert data_caches_bytes(tmp_path) == (48 << 10, 2 << 20, None)
    monkeypatch.setattr(machines.platform, "processor", lambda: "")
    assert processor_name(tmp_path / "cpuinfo") is None
    board = remote_machine(resolve_target(BASELINE), "pi:9090")
    assert (board.cores, board.threads, board.frequency_mhz) == (None, None, None)
    assert board.caches_bytes == (None, None, None)


def test_features_are_of_the_machine_that_is_named(kernel):
    here, elsewhere = kernel_features(kernel, this_machine()), kernel_features(kernel, ELSEWHERE)
    assert here.names == elsewhere.names
    found = dict(zip(elsewhere.names, elsewhere.values, strict=True))
    assert 2 ** found["log_machine_l3"] == pytest.approx(1 + (1 << 20))
    assert not (here.values == elsewhere.values).all()
    assert (kernel_features(kernel).values == here.values).all()


def test_refreshing_elsewhere_gives_the_same_features(tmp_path, kernel, monkeypatch):
    """A dataset that is carried to another machine keeps describing the first."""
    folder = DatasetFolder(tmp_path)
    device = device_fingerprint(kernel.target)
    KernelSources(tmp_path).add(kernel, device)
    record = add_kernel(folder, kernel, device, ("lenet",))
    folder.add(replace(record, feature_set="tir-v0", features=(1.0,)), ("one",))
    monkeypatch.setattr(extract, "this_machine", lambda: ELSEWHERE)
    monkeypatch.setattr(dataset_sources, "machine_of", lambda _target: ELSEWHERE)
    assert refresh_features(DatasetFolder(tmp_path)) == (1, 0)
    assert DatasetFolder(tmp_path).find(kernel.key, device) == record


@needs_products
def test_what_a_library_runs_is_kept_with_the_kernel(tmp_path):
    func = kernel_of(lambda e, p: e.call(linear, p, "made"), [(64, 64), (64, 64)])
    kernel = prepare_onednn_kernel(func, resolve_target(NATIVE), "linear")
    assert kernel is not None and kernel.library_stages
    KernelSources(tmp_path).add(kernel, "d")
    again = KernelSources(tmp_path).find(kernel.key, "d")
    assert again is not None and again.library_stages == kernel.library_stages
    assert (kernel_features(again).values == kernel_features(kernel).values).all()


def test_every_measurement_names_its_machine(tmp_path, kernel):
    path = tmp_path / "measurements.jsonl"
    measured = measure_kernels([kernel], MeasurementCache(path), effort=Effort(rounds=1))
    again = MeasurementCache(path)
    assert again.find_machine(measured[kernel.symbol].machine) == this_machine()
    assert again.machines() == (this_machine(),)
    assert sum('"processor"' in line for line in path.read_text().splitlines()) == 1


def test_measurements_of_an_earlier_version_are_ignored_with_one_sentence(tmp_path, caplog):
    path = tmp_path / "measurements.jsonl"
    cache = MeasurementCache(path)
    for k in range(20):
        row = Measurement(f"k{k}", "d", "name", 5.0, 4.0, 6.0, "thread", ((5.0,),))
        cache.add(row)
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 2'))
    with caplog.at_level(logging.INFO):
        assert not MeasurementCache(path).kernels()
    (said,) = caplog.records
    assert "20 lines of an earlier version are ignored" in said.getMessage()


def test_a_dataset_that_names_no_machine_is_refused(tmp_path, kernel):
    add_kernel(DatasetFolder(tmp_path), kernel, "d", ("lenet",))
    path = tmp_path / "kernels.jsonl"
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1'))
    with pytest.raises(InvalidDatasetError, match="which machine they were measured"):
        DatasetFolder(tmp_path)
