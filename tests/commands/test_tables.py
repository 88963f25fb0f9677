"""Tables fit a terminal of 80 columns, nothing in them is cut, and no number is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands.in_process import run_command

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
STORED = ("plan", "train", "pareto", "eval", "estimate")
NUMBER = re.compile(r"^[\s.\d]*\d\.$|^\s*(?:[KMG]iB|us|ms|%)\s*$")
"""A line that holds the end of a number or a unit alone."""


def shown(name: str, folder: Path, cache: Path) -> str:
    line = COMMANDS[name].format(made=folder, quick=" ".join(QUICK))
    kept = ("--cache", str(cache)) if line.split()[0] in STORED else ()
    done = run_command(*line.split(), *kept)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "doctor" else n for n in COMMANDS]
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
