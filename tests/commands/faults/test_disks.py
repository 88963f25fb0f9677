"""A full disk: the file is named and nothing is left. No cache: the command works, and says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which

import pytest

from tests.commands.faults.disks import full_disk, read_only_disk
from tests.commands.faults.long_commands import write_dataset
from tvm_xengine.__main__ import main

PLAN = ("plan", "mlp", "--costs", "roofline", "--solver", "greedy")
TRAIN = ("train", "mlp", "--steps", "2", "--costs", "roofline", "--solver", "greedy")
EXPORT = ("export", "mlp", "--target", "host", "--arena-bytes", "8MiB")


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    with full_disk(tmp_path / "disk") as disk:
        yield disk


def is_refused(arguments: tuple[str, ...], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(arguments)) == 2
    errors = capsys.readouterr().err.splitlines()
    assert f"tvm-xengine: error: {file}: No space left on device" in errors
    assert [path.name for path in file.parent.iterdir() if path.name != "fill"] in ([], [file.name])


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        (PLAN, "--save-problem", "problem.json"),
        (PLAN, "--json", "report.json"),
        (TRAIN, "--save", "state.npz"),
        (TRAIN, "--checkpoint", "run.ckpt"),
    ],
)
def test_an_output_on_a_full_disk_is_named_and_left_out(
    command: tuple[str, ...],
    option: str,
    name: str,
    full: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    is_refused((*command, option, str(full / name)), full / name, capsys)
    assert not (full / name).exists()


@pytest.mark.parametrize(
    ("kind", "inside"), [("c", "mlp.h"), pytest.param("tvm", "mlp.so", marks=pytest.mark.slow)]
)
def test_an_export_to_a_full_disk_names_its_file(
    kind: str, inside: str, full: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = full / "package"
    assert main([*EXPORT, "--format", kind, "-o", str(package)]) == 2
    errors = capsys.readouterr().err
    assert f"error: {package / inside}: No space left on device" in errors
    assert [path.name for path in full.iterdir()] == ["fill"]


def test_pictures_are_all_written_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main([*PLAN, "--quiet", "--save-plan", plan]) == 0
    # The first picture has room, and all of them take twice as much.
    with full_disk(tmp_path / "disk", left_bytes=100_000) as full:
        figures = full / "figures"
        assert main(["explain", plan, "--solve-again", "0", "--figures", str(figures)]) == 2
        errors = capsys.readouterr().err
        assert f"error: {figures}/" in errors
        assert "No space left on device" in errors
        assert [path.name for path in full.rglob("*") if path.is_file()] == ["fill"]


def test_what_cannot_be_written_keeps_no_other_output_from_it(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, kept = (
        (full / "problem.json", full / "plan.html"),
        (tmp_path / "plan.json", "report.json"),
    )
    options = (
        "--save-problem",
        str(lost[0]),
        "--report",
        str(lost[1]),
        "--save-plan",
        str(kept[0]),
    )
    assert main([*PLAN, *options, "--json", str(tmp_path / kept[1])]) == 2
    said = "; ".join(f"{path}: No space left on device" for path in lost)
    assert f"tvm-xengine: error: {said}" in capsys.readouterr().err.splitlines()
    assert json.loads(kept[0].read_text())
    assert json.loads((tmp_path / kept[1]).read_text())
    assert [path.name for path in full.iterdir()] == ["fill"]


def test_what_was_trained_is_saved_though_its_trace_cannot_be(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state.npz"
    is_refused(
        (*TRAIN, "--trace", str(full / "t.json"), "--save", str(state)), full / "t.json", capsys
    )
    assert state.exists()


def test_a_cost_model_is_not_left_in_part(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(tmp_path / "kernels", kernels=40)
    train = ("costs", "train", "--dataset", str(tmp_path / "kernels"), "-o")
    is_refused((*train, str(full / "a.costmodel")), full / "a.costmodel", capsys)
    assert not (full / "a.costmodel").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "mlp", "--costs", "measured", "--cache", "measurements.jsonl"),
        ("costs", "collect", "--kernels", "20", "--rounds", "1", "--dataset", "."),
    ],
)
def test_rows_on_a_full_disk_are_whole(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with full_disk(tmp_path / "disk", left_bytes=4096) as full:  # a page: some rows fit
        assert main([*command[:-1], str(full / command[-1])]) == 2
        errors = capsys.readouterr().err
        assert f"error: {full}" in errors
        assert "No space left on device" in errors
        for path in full.rglob("*.jsonl"):
            assert all(json.loads(line) for line in path.read_text().splitlines())
        assert list(full.rglob("*.part")) == []


def run(arguments: tuple[str, ...], variables: Mapping[str, str | None]) -> tuple[int, str]:
    """Exit code and errors of a command in a process with other variables of its environment."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name, value in variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    done = subprocess.run(
        [sys.executable, "-m", "tvm_xengine", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_full_disk_for_caches_stops_nothing(full: Path) -> None:
    where = {"XDG_CACHE_HOME": str(full), "NUMBA_CACHE_DIR": str(full / "numba")}
    code, errors = run((*TRAIN, "--budget-ratio", "0.9"), where)
    assert code == 0, errors
    assert f"compiled kernels are not kept: no space left in {full}" in errors
    assert f"compiled solvers are not kept: {full}" in errors


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with read_only_disk(tmp_path / "disk") as disk:
        home = {"HOME": str(disk), "XDG_CACHE_HOME": None}
        code, errors = run(("plan", "mlp", "--costs", "measured"), home)
        assert code == 0, errors
        assert f"compiled kernels are not kept: cannot write {disk}" in errors
        assert f"what is measured is not kept: {disk}" in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "command"),
    [
        *((home, PLAN[:2]) for home in ("/dev/null", "", None)),
        ("relative", PLAN),  # which keeps no compiled search either
        ("/proc/none", ("plan", "mlp", "--costs", "measured")),
        ("/proc/none", ("tune", "mlp", "--trials", "4", "--database", "{}/tuned")),
        ("/proc/none", ("costs", "measure", "mlp")),
        ("/proc/none", ("costs", "train", "-o", "{}/own.costmodel")),
    ],
)
def test_a_home_that_is_no_folder_stops_nothing(
    home: str | None, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, errors = run(
        tuple(each.format(tmp_path) for each in command), {"HOME": home, "XDG_CACHE_HOME": None}
    )
    assert code == 0, errors
    assert "no space" not in errors
    if home in ("/proc/none", "/dev/null"):
        assert f"not kept: {home}" in errors or f"not kept: cannot write {home}" in errors
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.slow
def test_a_home_that_belongs_to_somebody_else_stops_nothing(tmp_path: Path) -> None:
    """Permissions hold for root as well, once it gives up the right to pass over them."""
    bound: tuple[str, ...] = ()
    if os.getuid() == 0:
        if (capsh := which("capsh")) is None:
            pytest.skip("root needs capsh for this")
        drop = "--drop=cap_dac_override,cap_dac_read_search"
        bound = (capsh, drop, "--", "-c", 'exec "$0" "$@"')
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    done = subprocess.run(
        [*bound, sys.executable, "-m", "tvm_xengine", "plan", "mlp", "--costs", "measured"],
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"compiled kernels are not kept: cannot write {home}" in done.stderr
    assert f"what is measured is not kept: {home}" in done.stderr
    assert not list(home.iterdir())


@pytest.mark.slow
def test_without_a_home_nothing_is_made_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = {"HOME": str(tmp_path / "missing"), "XDG_CACHE_HOME": None}
    with read_only_disk(tmp_path / "disk") as disk:
        nowhere["HOME"] = str(disk / "missing")
        code, errors = run(PLAN, nowhere)
    assert code == 0, errors
    assert [path.name for path in tmp_path.iterdir()] == ["disk"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "mlp", "--costs", "measured", "--cache", "{}/measurements.jsonl"),
        ("costs", "collect", "--kernels", "20", "--rounds", "1", "--dataset", "{}"),
        ("tune", "mlp", "--trials", "8", "--database", "{}", "--cache", "{}/measurements.jsonl"),
    ],
    ids=lambda command: command[0],
)
def test_two_processes_share_a_file_of_rows(command: tuple[str, ...], tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "tvm_xengine", *(each.format(tmp_path) for each in command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(2)
    ]
    ends = [(process.communicate(timeout=600)[1], process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0], ends
    files = list(tmp_path.rglob("*.jsonl"))
    assert files
    for path in files:
        assert all(json.loads(line) for line in path.read_text().splitlines())
    assert list(tmp_path.rglob("*.part")) == []
