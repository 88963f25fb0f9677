from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands.faults.long_commands import write_dataset
from tvm_xengine.__main__ import main
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.models.model_file import read_model


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset folder of two devices."""
    write_dataset(tmp_path / "kernels", kernels=120)
    return tmp_path / "kernels"


def test_a_model_is_trained_inspected_and_judged(dataset, tmp_path, capsys):
    model, report = tmp_path / "my.costmodel", tmp_path / "report.json"
    assert main(["costs", "train", "--dataset", str(dataset), "-o", str(model)]) == 0
    assert read_model(model).architectures == ("llvm x86_64",)
    assert main(["costs", "inspect", str(model), "--json", str(report)]) == 0
    assert json.loads(report.read_text())["kernels"] == 240
    assert main(["costs", "inspect", str(dataset)]) == 0
    assert "family0: 80" in capsys.readouterr().out
    arguments = ["costs", "eval", "--dataset", str(dataset), "--baselines", "--json", str(report)]
    assert main(arguments) == 0
    rows = json.loads(report.read_text())["family"]
    assert set(rows) >= {"measured again", "boosted trees", "roofline"}
    assert rows["boosted trees"]["kernels"] == 240


@pytest.mark.slow
def test_transfer_reports_each_number_of_measurements(dataset, tmp_path):
    report = tmp_path / "report.json"
    arguments = ["costs", "transfer", "--dataset", str(dataset), "--measurements", "10", "30"]
    assert main([*arguments, "--json", str(report)]) == 0
    (rows, *_) = json.loads(report.read_text()).values()
    assert {"no measurement", "10 chosen", "30 at random"} <= set(rows)
    assert main(["costs", "transfer", "--dataset", str(dataset), "--measurements", "900"]) == 2


@pytest.mark.slow
def test_a_model_is_corrected_by_few_measurements_on_another_device(dataset, tmp_path, capsys):
    model, report = tmp_path / "my.costmodel", tmp_path / "report.json"
    other = DatasetFolder(tmp_path / "other")
    known = DatasetFolder(dataset)
    for record, measured in known.measured():
        device = other if record.device == "slow" else DatasetFolder(tmp_path / "fast")
        device.add(record, known.feature_names)
        device.measurements.add(measured)
    fast = ["--dataset", str(tmp_path / "fast")]
    assert main(["costs", "train", *fast, "-o", str(model)]) == 0
    arguments = ["costs", "transfer", "--dataset", str(other.folder), "--cost-model", str(model)]
    assert main([*arguments, "--measurements", "10", "30", "--json", str(report)]) == 0
    (rows,) = json.loads(report.read_text()).values()
    # The other device is three times as slow, for all kernels alike.
    assert rows["no measurement"]["median_error_ratio"] > 0.5
    assert rows["30 chosen"]["median_error_ratio"] < 0.15
    assert main([*arguments, "--measurements", "100"]) == 2
    assert "expected at least 200 kernels" in capsys.readouterr().err


def test_kernels_are_collected_and_a_second_run_goes_on(tmp_path, capsys):
    folder = tmp_path / "new"
    arguments = ["costs", "collect", "--dataset", str(folder), "--networks", "mlp"]
    arguments += ["--targets", "llvm -mcpu=x86-64", "--rounds", "1", "--kernels"]
    assert main([*arguments, "3"]) == 0
    count = len(DatasetFolder(folder).load())
    assert count == 3
    lines = (folder / "measurements.jsonl").read_text()
    assert main([*arguments, "3"]) == 0
    assert (folder / "measurements.jsonl").read_text() == lines
    assert f"{count} measured kernels" in capsys.readouterr().out


@pytest.mark.slow
def test_features_are_read_anew_from_what_was_collected(tmp_path, capsys):
    folder = tmp_path / "new"
    arguments = ["costs", "collect", "--dataset", str(folder), "--networks", "mlp"]
    arguments += ["--targets", "llvm -mcpu=x86-64", "--rounds", "1", "--kernels", "2"]
    assert main(arguments) == 0
    kernels = folder / "kernels.jsonl"
    expected = DatasetFolder(folder).load().table.values
    kernels.write_text(kernels.read_text().replace(FEATURE_SET, "tir-v0"))
    assert main(["costs", "eval", "--dataset", str(folder)]) == 2
    assert "costs refresh" in capsys.readouterr().err
    assert main(["costs", "refresh", "--dataset", str(folder)]) == 0
    np.testing.assert_array_equal(DatasetFolder(folder).load().table.values, expected)


def test_a_dataset_travels_as_a_parquet_file(dataset, tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "kernels.parquet"
    assert main(["costs", "export", "--dataset", str(dataset), "-o", str(file)]) == 0
    assert main(["costs", "import", str(file), "--dataset", str(tmp_path / "copy")]) == 0
    assert len(DatasetFolder(tmp_path / "copy").load()) == len(DatasetFolder(dataset).load())


def test_costs_are_predicted_without_running_anything(tmp_path):
    report = tmp_path / "report.json"
    assert main(["costs", "predict", "mlp", "--json", str(report)]) == 0
    kernels = json.loads(report.read_text())["kernels"]
    assert {row["device"] for row in kernels} == {"cpu", "cpu_generic"}
    assert all(0 <= row["lo_us"] <= row["compute_us"] <= row["hi_us"] for row in kernels)
    assert {row["source"] for row in kernels} <= {"predicted", "transferred", "roofline"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "--dataset", "missing"], "costs collect"),
        (["inspect", "missing.costmodel"], "expected a cost model"),
        (["predict", "mlp", "--cost-model", "missing.costmodel"], "expected a cost model"),
        (["measure", "mlp", "--rpc", "127.0.0.1:1"], "expected a TVM RPC server"),
        (["predict", "no-such-network"], "nor in the zoo"),
    ],
)
def test_bad_input_is_a_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["costs", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_says_which_of_its_costs_are_guessed(tmp_path, capsys):
    platform = tmp_path / "board.toml"
    device = '[[device]]\nname = "{0}"\ntarget = "{1}"\nbudget = "64MiB"\n'
    platform.write_text(
        device.format("host", "llvm -mcpu=x86-64")
        + device.format("board", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
        + '[[link]]\nsrc = "host"\ndst = "board"\nboth_ways = true\n'
        + "latency_us = 10.0\nbandwidth_gb_s = 1.0\n"
    )
    arguments = ["plan", "mlp", "--platform", str(platform), "--costs", "predicted"]
    assert main([*arguments, "--solver", "greedy"]) == 0
    assert "no data of them: tir on llvm" in " ".join(capsys.readouterr().out.split())
