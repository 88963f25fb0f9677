"""``train`` of several models: one budget, turns, reports and files of each, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.commands.in_process import Finished, run_command
from tests.docs.test_schemas import faults

QUICK = ("--costs", "roofline", "--solver", "greedy", "--time-limit", "2")


def train(cache: Path, *arguments: str) -> Finished:
    return run_command("train", *arguments, *QUICK, "--cache", str(cache))


def report(cache: Path, *arguments: str) -> dict[str, Any]:
    done = train(cache, *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings of one network, with options of their own."""
    path = tmp_path_factory.mktemp("workloads") / "pair.toml"
    path.write_text(
        """
        [[workload]]
        model = "mlp"
        name = "slow"
        lr = 0.001
        steps = 4

        [[workload]]
        model = "mlp"
        name = "adam"
        share = 2
        optimizer = "adam"
        betas = [0.8, 0.9]
        no-compare = true
        steps = 6
        """
    )
    return path


def test_two_models_share_a_budget(cache: Path, tmp_path: Path) -> None:
    saved = ("--save", str(tmp_path / "t.safetensors"))
    found = report(cache, "mlp", "mlp", "--budget", "cpu=600KiB", "--steps", "3", *saved)
    assert faults("report-train-together", found) == []
    cpu = found["memory"]["cpu"]
    assert cpu["measured_peak_bytes"] == cpu["planned_arena_bytes"] <= 600 * 1024
    assert cpu["planned_arena_bytes"] < cpu["apart_bytes"]
    assert list(found["workloads"]) == ["mlp", "mlp-2"] == list(cpu["state_bytes"])
    one, other = (load_file(tmp_path / f"t.{name}.safetensors") for name in ("mlp", "mlp-2"))
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


@pytest.mark.slow
def test_checkpoints_of_each_are_resumed_as_if_it_were_alone(cache: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "run.ckpt")
    first = report(cache, "mlp", "mlp", "--steps", "3", "--checkpoint", file)["workloads"]
    alone = report(cache, "mlp", "--steps", "5")
    rest = report(cache, "mlp", "mlp", "--steps", "5", "--resume", file, "--share", "2", "1")
    for name, document in rest["workloads"].items():
        assert first[name]["losses"] + document["losses"] == alone["losses"]
        assert document["steps"] == 5
    assert {path.name for path in tmp_path.iterdir()} == {"run.mlp.ckpt", "run.mlp-2.ckpt"}


@pytest.mark.slow
def test_a_file_gives_each_workload_its_options(cache: Path, file: Path, tmp_path: Path) -> None:
    found = report(cache, str(file), "--batch", "8", "--save", str(tmp_path / "t.npz"))["workloads"]
    assert {name: document["batch"] for name, document in found.items()} == {"slow": 8, "adam": 8}
    slow = report(cache, "mlp", "--batch", "8", "--lr", "0.001", "--steps", "4")
    options = ("--optimizer", "adam", "--betas", "0.8", "0.9")
    adam = report(cache, "mlp", "--batch", "8", *options, "--steps", "6")
    assert found["slow"]["losses"] == slow["losses"]
    assert found["adam"]["losses"] == adam["losses"]
    assert found["slow"]["identical_to_keep_all"] == slow["identical_to_keep_all"]
    assert found["adam"]["identical_to_keep_all"] is None
    assert {path.name for path in tmp_path.iterdir()} == {"t.slow.npz", "t.adam.npz"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mlp", "mlp", "--share", "1"), "expected a share for each of 2 models, got 1"),
        (("mlp", "--share", "2"), "--share is for several models"),
        (("mlp", "mlp", "--replan"), "--replan is for one model"),
        (("mlp", "mlp", "--schedule", "s.json"), "--schedule is for one model"),
        (
            ("mlp", "mlp", "--budget", "cpu=100KiB"),
            "mlp and mlp-2 do not fit together: cpu has 100 KiB",
        ),
        (("mlp", "none.toml"), "a file of workloads names all models"),
        (("none.toml",), "cannot read the workloads none.toml: No such file"),
        ((), "expected a model, such as lenet"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: tuple[str, ...], said: str, cache: Path
) -> None:
    assert said in train(cache, *arguments).refusal()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps = 3", "expected [[workload]] tables and nothing else, found ['steps']"),
        ("[[workload]]\nsteps = 3", 'workload 1 needs a model, such as model = "lenet"'),
        ('[[workload]]\nmodel = "mlp"\nshare = 0', "workload mlp: share must be a whole number"),
        (
            '[[workload]]\nmodel = "mlp"\nlearning = 1',
            "workload mlp has no option learning; it takes",
        ),
        ('[[workload]]\nmodel = "mlp"\nbudget = "cpu=1MiB"', "budget holds for all workloads"),
        ('[[workload]]\nmodel = "mlp"\nsteps = -3', "workload mlp: "),
        ('[[workload]]\nmodel = "mlp"\nlr = {a = 1}', "lr must be text, a number, true or a list"),
        ('[[workload]]\nmodel = "mlp"\nname = "a/b"', "a name is text without /"),
        (
            '[[workload]]\nmodel = "mlp"\nsave = "a.npz"\n[[workload]]\nmodel = "mlp"\nsave = "a.npz"',
            "mlp-2 and mlp would both write a.npz",
        ),
        ("[[workload", "is not valid TOML"),
        ("workload = []", "expected at least one [[workload]]"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    text: str, said: str, cache: Path, tmp_path: Path
) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text)
    assert said in train(cache, str(path)).refusal()
