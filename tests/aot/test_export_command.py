"""``tvm-xengine export`` as a user meets it."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.aot.examples import need_tools
from tests.commands.in_process import run_command
from tvm_xengine.aot.plan.plan_step import plan_training
from tvm_xengine.aot.plan.planned import PlannedTraining
from tvm_xengine.files.write_directory import MANIFEST
from tvm_xengine.scheduling.schedule import read_schedule
from tvm_xengine.solvers.result import StopReason

MLP = ("export", "mlp", "--batch", "1", "--time-limit", "5")


def test_a_package_is_written_checked_and_not_overwritten(tmp_path: Path) -> None:
    need_tools("cortex-m4")
    out = tmp_path / "out"
    order = (*MLP, "--target", "cortex-m4", "--arena-bytes", "256KiB", "-o", str(out))
    done = run_command(*order, "--check")
    assert done.returncode == 0, done.stderr
    assert "self-test passed: 20 steps on cortex-m4" in done.stdout
    written = {path.name for path in out.iterdir()}
    files = "mlp.h mlp.c mlp_kernels.h mlp_kernels.c mlp_data.c mlp_plan.json mlp_selftest.c mlp.mk"
    assert {*files.split(), "CMakeLists.txt", "README.md"} <= written
    plan = json.loads((out / "mlp_plan.json").read_text())
    assert plan["regions"]["sram"]["bytes"] <= 256 * 1024
    (out / "mine.txt").write_text("precious")
    assert "--force" in run_command(*order).refusal()
    assert (out / "mine.txt").read_text() == "precious"
    subprocess.run(
        ["make", "-f", "mlp.mk", "./mlp_selftest", "MLP_CC=gcc", "MLP_CFLAGS=-std=c11 -O1"],
        cwd=out,
        check=True,
        capture_output=True,
    )
    ended = subprocess.run([str(out / "mlp_selftest")], capture_output=True, text=True, check=True)
    passed = (
        "mlp: self-test passed: the losses of 20 steps, the first update and the outputs are as"
        " expected\n"
    )
    assert ended.stdout == passed


def test_a_package_lies_in_a_folder_of_any_name(tmp_path: Path) -> None:
    """Compilers say the name in the bytes that it has, which need not be text."""
    out = tmp_path / os.fsdecode(b"odd \xff name")
    order = (*MLP, "--target", "host", "--arena-bytes", "1MiB", "-o", str(out))
    done = run_command(*order, "--check")
    assert done.returncode == 0, done.stderr
    assert (out / "mlp_plan.json").exists()


@pytest.mark.slow
def test_a_work_limit_gives_the_same_package_byte_for_byte(tmp_path: Path) -> None:
    order = (*MLP[:-2], "--target", "cortex-m7", "--regions", "sram=40KiB,psram=256KiB")
    limits = ("--work-limit", "0.5", "--objective", "makespan")
    packages = []
    for name in ("first", "second"):
        done = run_command(*order, *limits, "-o", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert "% of estimated time" in done.stdout
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        packages.append({path.name: path.read_bytes() for path in files})
    assert packages[0] == packages[1]


def test_an_interrupted_search_keeps_its_schedule_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> PlannedTraining:
        planned = plan_training(*given)
        plan = planned.function.plan
        stopped = replace(plan, result=replace(plan.result, stopped_by=StopReason.INTERRUPTED))
        return replace(planned, function=replace(planned.function, plan=stopped))

    monkeypatch.setattr("tvm_xengine.aot.prepare.plan_training", interrupted)
    out, schedule = tmp_path / "out", tmp_path / "schedule.json"
    order = (*MLP, "--target", "host", "--arena-bytes", "256KiB", "-o", str(out))
    done = run_command(*order, "--save-schedule", str(schedule))
    assert done.returncode == 130
    assert f"--schedule {schedule} exports it" in done.stdout
    assert read_schedule(schedule).computed
    assert not out.exists()
    assert "with --save-schedule FILE an interrupt keeps" in run_command(*order).stdout


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_storage_comes_with_its_error(dtype: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    order = (*MLP, "--target", "host", "--arena-bytes", "256KiB", f"--{dtype}", "all")
    done = run_command(*order, "-o", str(out))
    assert done.returncode == 0, done.stderr
    plan = json.loads((out / "mlp_plan.json").read_text())
    assert f"at most {plan['storage_error']:.1e}" in done.stdout
    assert 0 < plan["storage_error"] < 1e-2
    short = {row["name"] for row in plan["state"] if row["dtype"] == dtype}
    assert short == {row["name"] for row in plan["state"] if row["name"].endswith("weight")}


@pytest.mark.slow
def test_stochastic_rounding_has_its_seed_and_step_in_the_state(tmp_path: Path) -> None:
    need_tools("host")
    out = tmp_path / "out"
    order = (*MLP, "--target", "host", "--arena-bytes", "256KiB", "--rounding", "stochastic")
    refused = run_command(*order, "-o", str(out)).refusal()
    assert "give --float16 all" in refused
    done = run_command(*order, "--float16", "all", "--seed", "7", "--check", "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "self-test passed" in done.stdout
    state = {row["name"]: row for row in json.loads((out / "mlp_plan.json").read_text())["state"]}
    assert {"seed", "step"} <= state.keys()
    assert state["fc1_weight"]["dtype"] == "float16"


def test_storage_has_one_type(tmp_path: Path) -> None:
    order = (*MLP, "--target", "host", "--arena-bytes", "256KiB", "--float16", "all")
    done = run_command(*order, "--bfloat16", "all", "-o", str(tmp_path / "out"))
    assert "--float16 or --bfloat16, not both" in done.refusal()


def test_a_library_for_the_virtual_machine_is_written(tmp_path: Path) -> None:
    need_tools("host")
    out = tmp_path / "out"
    order = (*MLP, "--target", "host", "--arena-bytes", "512KiB", "--format", "tvm")
    done = run_command(*order, "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "arena" in done.stdout
    files = "mlp.so mlp.h mlp.c mlp.json mlp_state.bin mlp_selftest.c mlp_step.py README.md"
    assert {path.name for path in out.iterdir()} == {*files.split(), MANIFEST}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "cortex-m99", "--arena-bytes", "1MiB"), "unknown target 'cortex-m99'"),
        (("--target", "host"), "say how much memory"),
        (
            (
                *("--target", "host", "--arena-bytes", "1MiB"),
                *("--format", "tvm", "--objective", "makespan"),
            ),
            "objective cost",
        ),
        (("--target", "host", "--regions", "sram=lots"), "cannot read the region"),
        (("--target", "host", "--regions", "flash=1MiB"), "besides flash"),
        (("--target", "host", "--regions", "Fast RAM=1MiB"), "C identifier"),
        (("--target", "host", "--format", "tvm"), "--arena-bytes"),
        (
            ("--target", "host", "--format", "tvm", "--regions", "sram=1MiB"),
            "--format tvm has one memory",
        ),
    ],
)
def test_bad_orders_are_refused_in_a_sentence(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert message in run_command(*MLP, *arguments, "-o", str(tmp_path / "out")).refusal()
    assert not list(tmp_path.iterdir())


def test_a_missing_compiler_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    order = (*MLP, "--target", "cortex-m4", "--arena-bytes", "1MiB", "-o", str(tmp_path / "out"))
    assert "apt-get install gcc-arm-none-eabi" in run_command(*order, "--check").refusal()
    assert not list(tmp_path.iterdir())
