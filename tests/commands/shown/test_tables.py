"""What commands show: tables of 80 columns, with ``--json -`` one document, with ``--quiet`` nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from tests.commands.faults.long_commands import write_dataset
from tests.commands.in_process import Finished, run_command
from tvm_xengine.commands.app import app

QUICK = ("--costs", "roofline", "--solver", "greedy", "--time-limit", "2")
COLUMNS = 80
PLATFORM = """
[[device]]
name = "processor_of_this_machine"
target = "llvm -mcpu=native -num-cores=native"
budget = "64MiB"

[[device]]
name = "another_processor_beside_it"
target = "llvm -mcpu=x86-64"
budget = "64MiB"

[[link]]
src = "processor_of_this_machine"
dst = "another_processor_beside_it"
both_ways = true
latency_us = 5
bandwidth_gb_s = 10
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A problem, two plans, a state and a platform with long names."""
    made = tmp_path_factory.mktemp("made")
    (made / "long.toml").write_text(PLATFORM)
    saved = ("--save-problem", str(made / "problem.json"))
    for name, ratio in (("first", "0.95"), ("second", "1.0")):
        given = ("--budget-ratio", ratio, "--save-plan", str(made / f"{name}.json"))
        done = run_command("plan", "lenet", *QUICK, *saved, *given, "--cache", str(cache))
        assert done.returncode == 0, done.stderr
    state = ("--save", str(made / "state.safetensors"), "--cache", str(cache))
    done = run_command("train", "mlp", *QUICK, "--steps", "2", "--no-compare", *state)
    assert done.returncode == 0, done.stderr
    return made


COMMANDS = {
    "plan": "plan lenet --budget-ratio 0.95 {quick}",
    "plan of long names": "plan mlp --platform {made}/long.toml {quick}",
    "train": "train mlp --steps 2 {quick}",
    "pareto": "pareto mlp --ratios 1 0.99 {quick}",
    "pareto of long names": "pareto mlp --ratios 1 --platform {made}/long.toml {quick}",
    "solve": "solve {made}/problem.json --solver greedy",
    "eval": "eval mlp --state {made}/state.safetensors",
    "estimate": "estimate mlp --fits 2MiB",
    "explain": "explain {made}/first.json --solve-again 0",
    "explain of a layer": "explain {made}/first.json conv1 --solve-again 0",
    "compare": "compare {made}/first.json {made}/second.json",
    "doctor": "doctor",
    "export": "export mlp --target host --arena-bytes 4MiB --solver greedy -o {made}/c --force",
    "export-state": "export-state {made}/state.safetensors -o {made}/state.npz",
    "costs predict": "costs predict lenet",
    "costs inspect": "costs inspect",
}
MEASURING = {
    "tune": "tune mlp --batch 2 --database {made}/tuned --trials 2",
    "costs noise": "costs noise mlp --rounds 2",
    "costs measure": "costs measure mlp --batch 2 --rounds 1",
    "costs calibrate": "costs calibrate --time-limit 20 -o {made}/machine.json",
    "costs collect": "costs collect --dataset {made}/few --kernels 3 --networks mlp --rounds 1",
    "costs refresh": "costs refresh --dataset {made}/few",
    "costs export": "costs export --dataset {made}/few -o {made}/few.parquet",
    "costs import": "costs import {made}/few.parquet --dataset {made}/again",
    "costs pack": "costs pack --dataset {made}/few --labels {made}/labels",
    "costs unpack": "costs unpack --dataset {made}/unpacked --labels {made}/labels",
    "costs train": "costs train --dataset {made}/kernels -o {made}/own.costmodel",
    "costs eval": "costs eval --dataset {made}/kernels --sketch --split random",
    "costs transfer": "costs transfer --dataset {made}/kernels",
    "costs leaderboard": "costs leaderboard --dataset {made}/kernels --models roofline --sketch"
    " -o {made}/page.md",
    "costs judge": "costs judge --why tried --dataset {made}/locked --ledger {made}/ledger"
    " --cost-model {made}/own.costmodel",
}
"""Commands that take seconds."""
PREPARING = ("costs collect", "costs export", "costs pack", "costs train")
"""Those of them that write what others read."""

WITHOUT_REPORT = {"completion": "prints a script", "launch": "hands its options on"}
STORED = ("plan", "train", "pareto", "eval", "estimate", "tune", "costs measure")
NUMBER = re.compile(r"^[\s.\d]*\d\.$|^\s*(?:[KMG]iB|us|ms|%)\s*$")
"""A line that holds the end of a number or a unit alone."""


@pytest.fixture(scope="module")
def datasets(folder: Path, cache: Path) -> Path:
    """The same folder with few kernels, and made-up ones, some of families that only `judge` sees."""
    write_dataset(folder / "kernels", kernels=500)
    write_dataset(folder / "locked", kernels=40, family="conformer")
    for name in PREPARING:
        run(name, folder, cache)
    return folder


def run(name: str, folder: Path, cache: Path, *more: str) -> Finished:
    line = {**COMMANDS, **MEASURING}[name].format(made=folder, quick=" ".join(QUICK))
    kept = ("--cache", str(cache)) if name.split(" of ")[0] in STORED else ()
    done = run_command(*line.split(), *kept, *more)
    assert done.returncode == 0, done.stderr
    return done


def shown(name: str, folder: Path, cache: Path) -> str:
    return run(name, folder, cache).stdout


def commands_of(tree: App, before: str = "") -> Iterator[str]:
    for name in tree:
        if name.startswith("-"):
            continue
        below = list(commands_of(tree[name], f"{before}{name} "))
        yield from below or [f"{before}{name}"]


def test_every_command_of_the_tree_is_tried() -> None:
    tried = {name.split(" of ")[0] for name in (*COMMANDS, *MEASURING)}
    assert {*tried, *WITHOUT_REPORT} == set(commands_of(app))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MEASURING, *COMMANDS])
def test_a_report_stands_alone_on_standard_output_and_quiet_shows_nothing(
    name: str, datasets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    done = run(name, datasets, cache, "--json", "-")
    assert isinstance(json.loads(done.stdout), dict)
    tables = [line for line in done.stderr.splitlines() if line.startswith(" ")]
    assert max(map(len, tables), default=0) <= COLUMNS
    assert "…" not in done.stderr
    quiet = run(name, datasets, cache, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("doctor", "export") else name
        for name in COMMANDS
    ],
)
def test_what_a_command_shows_fits_a_terminal(
    name: str, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(name, folder, cache))
    lines = re.split(r"[\r\n]+", text)
    assert max(map(len, lines)) <= COLUMNS
    assert "…" not in text
    assert not [line for line in lines if NUMBER.search(line)]


@pytest.mark.parametrize("name", ["plan", "train", "compare"])
def test_piped_tables_are_as_wide_and_have_no_colours(
    name: str, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    text = shown(name, folder, cache)
    assert "\x1b" not in text and "…" not in text
    tables = [line for line in text.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= COLUMNS


def test_a_report_names_one_scope_of_its_proof(folder: Path, cache: Path) -> None:
    text = " ".join(shown("plan", folder, cache).split())
    assert text.count("bound holds for") == 1
