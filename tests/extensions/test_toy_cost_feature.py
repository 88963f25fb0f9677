"""Another package adds a feature that cost models learn from."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tvm import te

from tests.commands.in_process import run_command
from tests.extensions.toy_package import installed
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.models.model_file import read_model
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL, default_model
from tvm_xengine.errors import ExtensionError, InvalidDatasetError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.targets import resolve_target

TOY = """
def length_of_name(kernel, machine):
    return len(kernel.name) + machine.cores


def nothing(kernel, machine):
    return float("nan")
"""
LENGTH = {"cost_features": "name_length = toy:length_of_name"}


def kernel() -> DeviceKernel:
    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1.0, name="y")])
    return prepare_kernel(func, resolve_target("llvm -mcpu=x86-64"), "add")


def collected(folder: Path, count: int) -> Path:
    """A dataset of so many kernels that are measured here."""
    options = ("--targets", "llvm -mcpu=x86-64", "--rounds", "1", "--kernels", str(count))
    done = run_command("costs", "collect", "--dataset", str(folder), "--networks", "mlp", *options)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Collected without the package."""
    return collected(tmp_path / "dataset", 12)


@pytest.mark.slow
def test_a_feature_reaches_a_trained_model_and_its_file(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, toy = tmp_path / "plain.costmodel", tmp_path / "toy.costmodel"
    trained = run_command("costs", "train", "--dataset", str(dataset), "-o", str(plain))
    assert trained.returncode == 0, trained.stderr
    with installed(TOY, LENGTH, tmp_path, monkeypatch):
        before = DatasetFolder(dataset).load().table
        assert run_command("costs", "refresh", "--dataset", str(dataset)).returncode == 0
        data = DatasetFolder(dataset).load()
        assert data.table.names == (*before.names, "name_length")
        np.testing.assert_array_equal(data.table.values[:, :-1], before.values)
        cores = {
            len(name) - value
            for name, value in zip(data.names, data.table.column("name_length"), strict=True)
        }
        assert len(cores) == 1

        trained = run_command("costs", "train", "--dataset", str(dataset), "-o", str(toy))
        assert trained.returncode == 0, trained.stderr
        document = json.loads(zipfile.ZipFile(toy).read("model.json"))
        assert document["feature_set"] == f"{FEATURE_SET}+name_length"
        assert document["feature_names"][-1] == "name_length"
        predictor = read_model(toy).predictor
        learned, without = (
            {booster.num_features() for booster in (*shared.machine, *shared.caches)}
            for shared in (predictor.shared, read_model(plain).predictor.shared)
        )
        assert learned == {count + 1 for count in without}
        assert np.isfinite(predictor.predict(data.table).time_us).all()

        # A model that does not know it leaves it out, the one that comes with the package too.
        again = read_model(plain).predictor.predict(data.table)
        np.testing.assert_array_equal(
            again.time_us, read_model(plain).predictor.predict(before).time_us
        )
        done = run_command("costs", "predict", "mlp", "--cost-model", str(toy), "--json", "-")
        assert done.returncode == 0, done.stderr
        shipped = default_model()
        assert shipped is not None
        assert math.isfinite(shipped.predictor.predict(data.table).time_us.sum())

    with pytest.raises(InvalidDatasetError, match="'name_length', which no installed package"):
        read_model(toy)
    done = run_command("costs", "predict", "mlp", "--cost-model", str(toy))
    assert done.returncode == 2
    assert "install the package that adds it" in " ".join(done.stderr.split())
    assert read_model(SHIPPED_MODEL)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("depth = toy:length_of_name", "'depth': expected a name that no feature"),
        ("mine_0 = toy:length_of_name", "'mine_0': expected a name .* without the ends _0"),
        ("empty = toy:nothing", "'empty' of add: expected a finite number, got nan"),
        ("none = toy:lost", "'none' of the entry points .*toy:lost"),
    ],
)
def test_a_feature_that_cannot_be_is_named(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        installed(TOY, {"cost_features": line}, tmp_path, monkeypatch),
        pytest.raises(ExtensionError, match=said),
    ):
        kernel_features(kernel())
