"""The command line as a user meets it; one command of each outcome has a process of its own."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.commands.in_process import Finished, run_command
from tvm_xengine.api import processor
from tvm_xengine.frontends.load import load_model

TWO_CPUS = """
[[device]]
name = "cpu"
target = "llvm -mcpu=native -num-cores=native"
budget = "1GiB"

[[device]]
name = "cpu_generic"
target = "llvm -mcpu=x86-64"
budget = "1GiB"

[[link]]
src = "cpu"
dst = "cpu_generic"
both_ways = true
"""


ROOFLINE = ("--costs", "roofline")
"""Measures nothing."""


def run_process(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tvm_xengine", *arguments, "--cache", str(cache)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def run(*arguments: str, cache: Path) -> Finished:
    return run_command(*arguments, "--cache", str(cache))


def refused(*arguments: str, cache: Path) -> str:
    return run(*arguments, cache=cache).refusal()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "lenet", "--batch", "many"), "many"),
        pytest.param(("train", "letnet"), "letnet", marks=pytest.mark.slow),
    ],
)
def test_a_refusal_ends_the_process_with_a_sentence_and_a_code(
    arguments: tuple[str, ...], said: str, cache: Path
) -> None:
    done = run_process(*arguments, cache=cache)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_train_reports_the_same_numbers_as_its_json(tmp_path: Path, cache: Path) -> None:
    report, platform = tmp_path / "report.json", tmp_path / "two.toml"
    platform.write_text(TWO_CPUS)
    done = run(
        *("train", "mlp", "--data", "digits", "--platform", str(platform)),
        *("--budget-ratio", "0.7", "--steps", "30", "--time-limit", "3", "--json", str(report)),
        *("--save-schedule", str(tmp_path / "schedule.json"), *ROOFLINE),
        cache=cache,
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(report.read_text())
    assert set(numbers) >= {
        *("model", "batch", "steps", "loss_first", "loss_last", "accuracy", "status", "cost_us"),
        *("bound_us", "gap", "solve_s", "recomputed_ops", "transfers", "step_us_predicted"),
        *("step_us_measured", "keep_all", "identical_to_keep_all", "max_rel_diff", "devices"),
    }
    assert numbers["slowdown_ratio"] is None  # no kernel was measured
    assert numbers["loss_last"] < numbers["loss_first"]
    assert numbers["bound_us"] <= numbers["cost_us"] * (1 + 1e-9)
    assert numbers["identical_to_keep_all"] or numbers["max_rel_diff"] <= 1e-5
    for device in numbers["devices"]:
        assert device["planned_arena_bytes"] <= device["budget_bytes"]
        assert device["measured_peak_bytes"] == device["planned_arena_bytes"]
    assert json.loads((tmp_path / "schedule.json").read_text())["steps"]
    assert f"{100 * numbers['accuracy']:.1f} %" in done.stdout


def test_plan_says_what_would_happen_and_executes_nothing(tmp_path: Path, cache: Path) -> None:
    report = tmp_path / "plan.json"
    done = run("plan", "mlp", "--budget", "cpu=1MiB", *ROOFLINE, "--json", str(report), cache=cache)
    assert done.returncode == 0, done.stderr
    numbers = json.loads(report.read_text())
    assert numbers["status"] == "optimal"
    assert "loss_first" not in numbers
    assert numbers["devices"][0]["budget_bytes"] == 2**20
    assert numbers["devices"][0]["measured_peak_bytes"] is None


def test_an_unlimited_budget_keeps_everything(tmp_path: Path, cache: Path) -> None:
    report = tmp_path / "plan.json"
    assert run("plan", "mlp", *ROOFLINE, "--json", str(report), cache=cache).returncode == 0
    assert json.loads(report.read_text())["recomputed_ops"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "letnet"), "letnet"),
        (("train", "absent.onnx"), "absent.onnx"),
        (("train", "absent.pt2"), "absent.pt2"),
        (("train", "mlp", "--platform", "absent.toml"), "absent.toml"),
        (("train", "mlp", "--budget", "gpu=1MiB"), "gpu"),
        (("train", "mlp", "--budget", "cpu=-5"), "expected a size"),
        (("train", "mlp", "--budget", "cpu=1MiB", "--budget", "cpu=2MiB"), "cpu is given twice"),
        (("train", "mlp", "--freeze", "*"), "no parameter that is not frozen"),
        (("train", "mlp", "--budget", "cpu=lots"), "expected a size"),
        (("train", "mlp", "--budget", "cpu"), "DEVICE=BYTES"),
        (("train", "mlp", "--budget-ratio", "nan"), "at least 0"),
        (("train", "mlp", "--solver", "oracle"), 'invalid value "oracle" for --solver'),
        (("train", "mlp", "--steps", "0"), "at least 1"),
        (("train", "mlp", "--batch", "x"), "at least 1"),
        (("frobnicate",), 'unknown command "frobnicate"'),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    arguments: tuple[str, ...], said: str, cache: Path
) -> None:
    assert said in refused(*arguments, cache=cache)


@pytest.mark.parametrize("name", ["broken.onnx", "broken.pt2"])
def test_a_broken_model_file_is_refused(tmp_path: Path, name: str, cache: Path) -> None:
    broken = tmp_path / name
    broken.write_bytes(b"this is no model")
    assert name in refused("plan", str(broken), cache=cache)


def test_a_budget_below_the_minimum_says_what_would_work(cache: Path) -> None:
    said = refused(
        *("plan", "mlp", "--budget", "cpu=1KiB", "cpu_generic=1KiB", "--time-limit", "5"),
        cache=cache,
    )
    assert "1024" in said
    assert "bytes" in said


def test_energy_without_power_figures_is_refused(cache: Path) -> None:
    assert "power_w" in refused("plan", "mlp", "--objective", "energy", cache=cache)


def test_a_front_is_written_and_drawn(tmp_path: Path, cache: Path) -> None:
    report, picture = tmp_path / "front.json", tmp_path / "front.svg"
    done = run(
        *("pareto", "mlp", "--ratios", "1", "0.8", "--time-limit", "1", *ROOFLINE),
        *("--json", str(report), "--plot", str(picture)),
        cache=cache,
    )
    assert done.returncode == 0, done.stderr
    values = [point["value"] for point in json.loads(report.read_text())["points"]]
    assert values[0] <= values[1]
    assert picture.read_text().lstrip().startswith("<?xml")


@pytest.mark.slow
def test_a_front_goes_on_in_slices_where_the_batch_has_no_room(tmp_path: Path, cache: Path) -> None:
    report, saved = tmp_path / "front.json", tmp_path / "problem.json"
    options = ("mlp", "--batch", "256", *ROOFLINE, "--platform", str(_one_processor(tmp_path)))
    arguments = ("pareto", *options, "--time-limit", "2", "--json", str(report))
    done = run(*arguments, "--ratios", "1", "0.5", "--save-problem", str(saved), cache=cache)
    assert done.returncode == 0, done.stderr
    ample, tight = json.loads(report.read_text())["points"]
    assert ample["slices"] == 1
    assert tight["slices"] > 1
    assert tight["value"] > ample["value"]
    assert f"{tight['slices']} slices" in done.stdout
    budget = f"cpu={tight['budgets']['cpu']}B"
    assert "no schedule fits" in run_command("solve", str(saved), "--budget", budget).refusal()


@pytest.mark.slow
def test_a_front_with_active_costs_goes_on_below_the_smallest_budget_of_the_whole_batch(
    tmp_path: Path, cache: Path
) -> None:
    report = tmp_path / "front.json"
    options = ("mlp", "--batch", "256", "--platform", str(_one_processor(tmp_path)))
    arguments = (
        "pareto",
        *options,
        "--costs",
        "active",
        "--time-limit",
        "2",
        "--json",
        str(report),
    )
    done = run(*arguments, "--ratios", "1", "0.5", cache=cache)
    assert done.returncode == 0, done.stderr
    ample, tight = json.loads(report.read_text())["points"]
    assert (ample["slices"], ample["status"]) == (1, "optimal")
    assert tight["slices"] > 1


def _one_processor(folder: Path) -> Path:
    path = folder / "one.toml"
    processor().save(path)
    return path


def test_a_platform_with_a_missing_key_is_refused(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TWO_CPUS.replace('budget = "1GiB"', "", 1))
    assert "lacks the key 'budget'" in refused("plan", "mlp", "--platform", str(path), cache=cache)


def test_a_target_that_tvm_does_not_know_is_refused(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TWO_CPUS.replace("-mcpu=x86-64", "-mcpu=abacus"))
    assert "abacus" in refused("plan", "mlp", "--platform", str(path), cache=cache)


def test_own_data_trains_and_the_trained_tensors_are_saved(tmp_path: Path, cache: Path) -> None:
    random = np.random.default_rng(0)
    saved, data = tmp_path / "trained.safetensors", tmp_path / "data.npz"
    np.savez(data, x=random.normal(size=(40, 1, 8, 8)), y=random.integers(0, 10, 40))
    done = run(
        *("train", "mlp", "--data", str(data), "--steps", "4", "--freeze", "*bias"),
        *("--costs", "roofline", "--time-limit", "3", "--save", str(saved)),
        cache=cache,
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" not in done.stdout  # nothing is held out
    tensors = load_file(saved)
    first = load_model("mlp").parameters
    assert set(tensors) == set(first)
    changed = {name for name in first if not np.array_equal(tensors[name], first[name])}
    assert changed == {name for name in first if not name.endswith("bias")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "absent.npz"), "absent.npz"),
        (("--freeze", "absent*"), "absent*"),
        (("--freeze", "*"), "nothing to train"),
    ],
)
def test_data_and_patterns_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], said: str, cache: Path
) -> None:
    given = ("--costs", "roofline", "--steps", "1", "--time-limit", "3")
    assert said in refused("train", "mlp", *given, *arguments, cache=cache)


def test_the_version_is_told() -> None:
    command = [sys.executable, "-m", "tvm_xengine", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == version("tvm-xengine")


@pytest.mark.parametrize(
    "command",
    [
        *("train --version", "explain --version", "costs --version", "costs collect --version"),
        *("export-state --version", "--version plan", "plan mlp --version --json x"),
    ],
)
def test_every_command_tells_the_version_of_this_program(command: str) -> None:
    done = run_command(*command.split())
    assert (done.returncode, done.stdout.strip()) == (0, version("tvm-xengine"))
