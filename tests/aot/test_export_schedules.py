"""Constraints on the schedule of an export, and schedules of the user's own."""

import json
from pathlib import Path

import pytest

from tests.aot.examples import need_tools
from tests.commands.in_process import run_command

EXPORT = ("export", "mlp", "--batch", "8", "--time-limit", "2", "--target", "host")
TWO = (*EXPORT, "--regions", "sram=64KiB,psram=4MiB")


def steps_of(path: Path) -> list[list[str]]:
    return json.loads(path.read_text())["steps"]


def runs_of(path: Path) -> list[tuple[str, str]]:
    return [(step[1], step[2]) for step in steps_of(path) if step[0] == "compute"]


@pytest.mark.slow
def test_a_saved_schedule_is_edited_run_and_self_tested(tmp_path: Path) -> None:
    need_tools("host")
    saved, edited, found = (tmp_path / f"{name}.json" for name in ("saved", "edited", "found"))
    order = (*EXPORT, "--arena-bytes", "4MiB")
    first = run_command(*order, "--save-schedule", str(saved), "-o", str(tmp_path / "first"))
    assert first.returncode == 0, first.stderr
    steps = [step for step in steps_of(saved) if step[0] != "free"]
    steps.insert(1, steps[0])  # computes the first layer twice
    edited.write_text(json.dumps({"schema": 1, "steps": steps}))
    again = (*order, "--schedule", str(edited), "--save-schedule", str(found), "--check")
    done = run_command(*again, "-o", str(tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    assert "self-test passed" in done.stdout
    assert runs_of(found) == [(op, device) for _, op, device in steps]
    assert "feasible, nothing is proven of its time; 1 ops recomputed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", ["c", "tvm"])
def test_recomputed_ops_run_twice_and_kept_ones_once(form: str, tmp_path: Path) -> None:
    need_tools("host")
    saved = tmp_path / "saved.json"
    order = (*EXPORT, "--arena-bytes", "4MiB", "--format", form, "--save-schedule", str(saved))
    for number, option in enumerate(("--keep", "--recompute")):
        done = run_command(*order, option, "fc1_weight", "-o", str(tmp_path / str(number)))
        assert done.returncode == 0, done.stderr
        ops = [op for op, _ in runs_of(saved)]
        assert len([op for op in ops if op.startswith("linear_add_relu")]) == 1 + number, ops


@pytest.mark.slow
def test_pinned_ops_run_on_their_region(tmp_path: Path) -> None:
    need_tools("host")
    saved = tmp_path / "saved.json"
    order = (*TWO, "--save-schedule", str(saved), "--pin", "*=psram", "fc1*=sram")
    done = run_command(*order, "--check", "-o", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert {device for _, device in runs_of(saved)} == {"sram", "psram"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pin", "fc1*=cpu"), "names no device that computes; those are sram, psram"),
        (("--keep", "nothing*"), "matches no op"),
        (("--schedule", "missing.json"), "missing.json"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = run_command(*TWO, *options, "-o", str(tmp_path / "out"))
    assert message in done.refusal()
    assert not (tmp_path / "out").exists()


def test_a_schedule_of_another_step_is_refused_by_its_first_wrong_step(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"schema": 1, "steps": [["compute", "conv", "sram"]]}))
    done = run_command(*TWO, "--schedule", str(other), "-o", str(tmp_path / "out"))
    assert "other.json does not fit this step" in done.refusal()
