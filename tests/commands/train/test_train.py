"""``train`` learns from own data, resumes, runs saved schedules, and its state comes home."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.commands.in_process import Finished, run_command
from tests.shares import share

QUICK = ("--costs", "roofline", "--solver", "greedy", "--time-limit", "2")


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three numbers to predict from an image."""
    path = tmp_path_factory.mktemp("data") / "regression.npz"
    x = np.random.default_rng(0).normal(size=(64, 1, 8, 8)).astype("float32")
    np.savez(path, x=x, y=np.tile(x.reshape(64, -1)[:, :5], 2))
    return path


def train(cache: Path, *arguments: str) -> Finished:
    return run_command("train", "mlp", *QUICK, "--cache", str(cache), *arguments)


def report(cache: Path, *arguments: str) -> dict[str, Any]:
    done = train(cache, *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_a_resumed_run_takes_the_steps_that_are_left_of_its_epochs(
    cache: Path, tmp_path: Path
) -> None:
    state, whole = tmp_path / "half.safetensors", tmp_path / "whole.safetensors"
    options = ("--optimizer", "adam", "--lr-schedule", "linear:2", "--no-compare", "--batch", "64")
    steps = report(cache, *options, "--epochs", "2", "--save", str(whole))["losses"]
    half = ("--checkpoint", str(state), "--checkpoint-every", "3")
    first = report(cache, *options, "--epochs", "2", "--steps", "15", *half)["losses"]
    saved = tmp_path / "end.safetensors"
    rest = report(cache, *options, "--epochs", "2", "--resume", str(state), "--save", str(saved))
    assert len(first) == 15
    # The schedule of the first run ended earlier, so only its warm-up is the same.
    assert first[:2] == steps[:2]
    assert len(rest["losses"]) == len(steps) - 15


@pytest.mark.slow
def test_a_run_of_so_many_steps_goes_on_bit_for_bit(cache: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state.safetensors")
    options = ("--optimizer", "momentum", "--no-compare", "--batch", "64")
    whole = report(cache, *options, "--steps", "30")
    first = report(cache, *options, "--steps", "12", "--checkpoint", state)
    rest = report(cache, *options, "--steps", "30", "--resume", state)
    assert first["losses"] + rest["losses"] == whole["losses"]
    assert rest["steps"] == 30
    none_left = report(cache, *options, "--steps", "30", "--resume", state)
    assert none_left["losses"] == [] and none_left["loss_last"] is None


def test_a_saved_schedule_is_run(cache: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    planned = report(
        *(cache, "--steps", "3", "--budget-ratio", "0.9", "--save-schedule", str(schedule))
    )
    given = report(cache, "--steps", "3", "--budget-ratio", "0.9", "--schedule", str(schedule))
    assert given["solver"] == "given"
    assert given["cost_us"] == planned["cost_us"]
    assert given["losses"] == planned["losses"]


@pytest.fixture(scope="module")
def saved_schedule(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "schedule.json"
    report(cache, "--steps", "1", "--no-compare", "--save-schedule", str(path))
    return path


def test_a_hand_edited_schedule_may_leave_the_frees_out(
    cache: Path, saved_schedule: Path, tmp_path: Path
) -> None:
    schedule = tmp_path / "schedule.json"
    document = json.loads(saved_schedule.read_text())
    document["steps"] = [step for step in document["steps"] if step[0] != "free"]
    schedule.write_text(json.dumps(document))
    assert report(cache, "--steps", "1", "--schedule", str(schedule))["solver"] == "given"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda steps: steps[1:], "does not fit this step"),
        (lambda steps: [["compute", "absent", "cpu"], *steps], "'absent', not an op"),
        (lambda steps: [*steps, ["compute", steps[0][1], "gpu"]], "devices"),
        (lambda steps: [["jump"]], "expected"),
    ],
)
def test_a_schedule_that_breaks_a_rule_is_refused(
    edit: Any, said: str, cache: Path, saved_schedule: Path, tmp_path: Path
) -> None:
    schedule = tmp_path / "schedule.json"
    document = json.loads(saved_schedule.read_text())
    document["steps"] = edit([step for step in document["steps"] if step[0] != "free"])
    schedule.write_text(json.dumps(document))
    assert said in train(cache, "--steps", "1", "--schedule", str(schedule)).refusal()


def test_a_schedule_beyond_the_budget_is_refused(cache: Path, saved_schedule: Path) -> None:
    small = ("--budget", "cpu=220KiB", "--schedule", str(saved_schedule), "--steps", "1")
    assert "needs too much memory" in train(cache, *small).refusal()


def test_a_schedule_that_breaks_a_pin_is_refused(cache: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    report(cache, "--steps", "1", "--pin", "*=cpu", "--save-schedule", str(schedule))
    given = ("--schedule", str(schedule), "--steps", "1")
    assert report(cache, *given, "--pin", "*=cpu")["solver"] == "given"
    assert "is pinned to cpu_generic" in train(cache, *given, "--pin", "*=cpu_generic").refusal()


def test_pinned_ops_run_where_they_must(cache: Path) -> None:
    found = report(cache, "--pin", "*=cpu", "fc2*=cpu_generic", "--steps", "4")
    by_name = {device["name"]: device["ops"] for device in found["devices"]}
    assert by_name["cpu"] and by_name["cpu_generic"]
    assert found["max_rel_diff"] <= 1e-5


def test_recomputed_ops_are_computed_again_and_nothing_else_changes(cache: Path) -> None:
    usual = report(cache, "--pin", "*=cpu", "--steps", "4")
    again = report(cache, "--pin", "*=cpu", "--recompute", "fc*", "--steps", "4")
    assert again["recomputed_ops"] == again["graph_ops"] - usual["graph_ops"] > 0
    assert usual["recomputed_ops"] == 0
    assert again["losses"] == usual["losses"]


def test_what_is_kept_is_not_computed_again(cache: Path) -> None:
    done = train(cache, "--keep", "fc1*", "--recompute", "fc*", "--steps", "1")
    assert done.returncode == 2
    assert "keep='fc1*' and recompute both match" in done.stderr


def test_kept_ops_are_never_repeated(cache: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    arguments = ("--keep", "*", "--budget-ratio", "0.95", "--steps", "1")
    report(cache, *arguments, "--save-schedule", str(schedule))
    steps = json.loads(schedule.read_text())["steps"]
    computed = [step[1] for step in steps if step[0] == "compute"]
    assert len(set(computed)) == len(computed)


def test_another_loss_is_minimised_and_named(cache: Path, regression: Path, tmp_path: Path) -> None:
    saved = tmp_path / "state.safetensors"
    arguments = ("--data", str(regression), "--validation", "0.25", "--epochs", "3")
    done = train(cache, *arguments, "--loss", "mse", "--lr", "0.05", "--save", str(saved))
    assert done.returncode == 0, done.stderr
    assert "loss: mse" in done.stdout
    assert "epoch 3" in done.stdout and "step 9/9  loss" in done.stdout
    evaluated = run_command(
        *("eval", "mlp", "--data", str(regression), "--loss", "mse", "--state", str(saved)),
        *("--json", "-", "--cache", str(cache)),
    )
    assert json.loads(evaluated.stdout)["samples"] == 64


def test_the_loss_is_never_taken_in_silence(cache: Path, regression: Path) -> None:
    assert "loss: CrossEntropy, the only one" in train(cache, "--steps", "1").stdout
    done = train(cache, "--steps", "1", "--data", str(regression))
    assert "labels" in done.refusal()
    refused = run_command("train", "mlp", "--classes", "1", "--cache", str(cache)).refusal()
    assert "for which no loss is plain; say which one is meant" in refused


@pytest.mark.parametrize(
    "loss", share(["huber(delta=0.5)", "cross_entropy(label_smoothing=0.2)"], ["huber(delta=0.5)"])
)
def test_a_loss_takes_options(loss: str, cache: Path, regression: Path) -> None:
    data = ("--data", str(regression)) if "huber" in loss else ()
    plain = report(cache, *data, "--steps", "2", "--loss", loss.partition("(")[0])
    changed = report(cache, *data, "--steps", "2", "--loss", loss)
    assert plain["loss_first"] != changed["loss_first"]


OPTIONS = (
    "--optimizer sgd --momentum 0.8 --nesterov --weight-decay 0.01",
    "--optimizer adamw --betas 0.8 0.99 --amsgrad --eps 1e-6",
    "--optimizer sgd",
    "--optimizer rmsprop --alpha 0.9 --centered --momentum 0.5",
    "--optimizer adagrad --lr-decay 0.01",
    "--optimizer lion --lr 0.001",
    "--optimizer nadam --momentum-decay 0.01 --decoupled-weight-decay --weight-decay 0.1",
    "--optimizer adadelta --rho 0.8 --eps 1e-5",
    "--clip-norm 1 --clip-value 0.5 --micro-batches 2",
)


@pytest.mark.parametrize("options", share(OPTIONS, OPTIONS[:2]))
def test_optimizers_take_their_options(options: str, cache: Path) -> None:
    found = report(cache, *options.split(), "--steps", "3")
    assert np.isfinite(found["losses"]).all()
    assert found["identical_to_keep_all"] or found["max_rel_diff"] < 1e-4


def test_a_batch_of_nan_ends_the_run_unless_it_may_go_on(cache: Path, tmp_path: Path) -> None:
    data = tmp_path / "nan.npz"
    np.savez(data, x=np.full((32, 1, 8, 8), np.nan, "float32"), y=np.zeros(32, "int64"))
    given = ("--data", str(data), "--steps", "1")
    assert "x holds nan in the training sample 0" in train(cache, *given).refusal()
    assert "the loss of step 1 is nan" in train(cache, *given, "--no-guard").refusal()


def test_samples_that_are_not_finite_are_not_evaluated(tmp_path: Path) -> None:
    state, data = tmp_path / "state.npz", tmp_path / "nan.npz"
    np.savez(state, any=np.zeros(1))
    np.savez(data, x=np.full((16, 1, 8, 8), np.nan, "float32"), y=np.zeros(16, "int64"))
    done = run_command("eval", "mlp", "--state", str(state), "--data", str(data))
    assert "x holds nan in the training sample 0" in done.refusal()


def test_a_run_whose_validation_is_not_finite_ends_with_an_error(cache: Path) -> None:
    given = ("--steps", "2", "--lr", "1e10")
    assert "the validation loss after step 2 is nan" in train(cache, *given).refusal()
    assert train(cache, *given, "--no-guard").returncode == 0


def test_the_state_comes_home(cache: Path, tmp_path: Path) -> None:
    saved, checkpoint = tmp_path / "state.safetensors", tmp_path / "checkpoint.safetensors"
    found = report(*(cache, "--steps", "20", "--save", str(saved), "--checkpoint", str(checkpoint)))
    expected = load_file(saved)
    for source in (saved, checkpoint):
        home = tmp_path / f"{source.stem}.pt"
        assert run_command("export-state", str(source), "-o", str(home)).returncode == 0
        state = torch.load(home, weights_only=True)
        assert set(state) == set(expected)
        assert all(np.array_equal(state[name].numpy(), expected[name]) for name in expected)
        done = run_command(
            *("eval", "mlp", "--state", str(home), "--json", "-", "--cache", str(cache))
        )
        assert json.loads(done.stdout)["accuracy"] == found["accuracy"]


def test_a_state_of_another_model_is_refused(cache: Path, tmp_path: Path) -> None:
    saved = tmp_path / "state.safetensors"
    report(cache, "--steps", "1", "--save", str(saved))
    other = run_command("eval", "lenet", "--state", str(saved), "--cache", str(cache))
    assert "the state does not fit the model: it lacks" in other.refusal()
    shape = run_command(
        "eval", "mlp", "--classes", "12", "--state", str(saved), "--cache", str(cache)
    )
    assert "must have shape" in shape.refusal()


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    for name in ("state.safetensors", "state.pt", "state.npz"):
        (tmp_path / name).write_bytes(b"nothing")
        refused = run_command("export-state", str(tmp_path / name), "-o", str(tmp_path / "x.npz"))
        assert "holds no tensors that can be read" in refused.refusal()
    absent = run_command("export-state", str(tmp_path / "absent.pt"), "-o", "x.npz")
    assert "cannot read" in absent.refusal()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [16, 100])
def test_a_network_of_tokens_learns_and_is_evaluated(batch: int, cache: Path) -> None:
    """Its labels, one for each token, are one long vector to the step; no batch divides the samples."""
    given = ("--size", "8", "--batch", str(batch), "--steps", "2", "--cache", str(cache))
    done = run_command("train", "gpt_nano", *QUICK, *given, "--no-compare", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0 <= found["accuracy"] <= 1
    assert found["validation"]["loss"] == pytest.approx(found["loss_last"], rel=0.5)


def test_labels_beyond_the_classes_are_refused_by_value_and_place_before_planning(
    cache: Path,
) -> None:
    """The digits have ten classes."""
    given = ("--classes", "5", "--steps", "3", "--cache", str(cache))
    done = run_command("train", "mlp", *QUICK, *given)
    assert re.search(r"labels must be in 0\.\.4 or -100, got [5-9] in sample \d+", done.refusal())
    assert "solving" not in done.stderr


@pytest.mark.slow
def test_a_run_is_planned_again_with_the_times_it_measured(cache: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    options = ("--no-compare", "--batch", "64", "--steps", "20", "--save-plan", str(saved))
    plain = report(cache, *options)
    found = report(cache, *options, "--replan")
    assert plain["replanned"] is None
    assert found["replanned"]["steps"] == 6 * found["replanned"]["rounds"]
    assert found["replanned"]["replanned_us"] == pytest.approx(found["step_us_predicted"])
    costs = json.loads(saved.read_text())["problem"]["costs"]
    assert "measured" in {cost["source"] for there in costs.values() for cost in there.values()}
    assert "planned again: " in train(cache, *options, "--replan").stdout


def test_planning_again_contradicts_a_given_schedule_and_a_trace(
    cache: Path, tmp_path: Path
) -> None:
    for option in ("--schedule", "--trace"):
        done = train(cache, "--replan", option, str(tmp_path / "file.json"))
        assert done.returncode == 2
        assert "--replan" in done.stderr and option in done.stderr
