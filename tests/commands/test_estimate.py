"""``estimate`` answers questions of memory; its exit code says whether a step fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.in_process import Finished, run_command

PLATFORM = """
[[device]]
name = "board"
target = "llvm -mcpu=x86-64"
budget = "8MiB"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estimate")
    (folder / "platform.toml").write_text(PLATFORM)
    return folder


def estimate(folder: Path, *arguments: str) -> Finished:
    given = ("--platform", str(folder / "platform.toml"), "--cache", str(folder / "m.jsonl"))
    return run_command("estimate", "mlp", *given, *arguments)


def test_bytes_are_told_by_category(folder: Path) -> None:
    numbers = json.loads(estimate(folder, "--json", "-").stdout)
    assert numbers["device"] == "board"
    assert set(numbers["peak_bytes"]) >= {"parameters", "gradients", "optimizer state", "batch"}
    assert numbers["smallest_bytes"] <= numbers["keep_all_bytes"]
    assert numbers["fits"] is None and numbers["largest_batch"] is None


def test_the_optimizer_counts(folder: Path) -> None:
    plain, adam = (
        json.loads(estimate(folder, "--optimizer", name, "--json", "-").stdout)["keep_all_bytes"]
        for name in ("sgd", "adam")
    )
    assert plain < adam


def test_the_exit_code_says_whether_it_fits(folder: Path) -> None:
    assert estimate(folder, "--fits", "8MiB").returncode == 0
    too_large = estimate(folder, "--fits", "10KiB")
    assert too_large.returncode == 1
    assert "a batch of 16 does not fit in 10 KiB: no schedule needs less than" in too_large.stdout


def test_a_no_that_is_not_proven_says_so(folder: Path) -> None:
    known = json.loads(estimate(folder, "--json", "-").stdout)
    assert known["least_bytes"] < known["smallest_bytes"]
    between = estimate(folder, "--fits", str(known["smallest_bytes"] - 1))
    assert "a search of some seconds" in between.stdout
    assert between.returncode == (1 if "does not fit" in between.stdout else 0)


def largest_batch(folder: Path, size: str) -> int:
    found = json.loads(estimate(folder, "--largest-batch", size, "--json", "-").stdout)
    return int(found["largest_batch"])


@pytest.mark.slow
def test_the_largest_batch_is_found(folder: Path) -> None:
    known = json.loads(estimate(folder, "--json", "-").stdout)
    assert 16 <= largest_batch(folder, str(known["smallest_bytes"])) < 32
    assert largest_batch(folder, "100KiB") == 0


@pytest.mark.slow
def test_the_largest_batch_is_found_far_from_the_given_one(folder: Path) -> None:
    assert largest_batch(folder, "1MiB") > 16


@pytest.mark.parametrize("option", ["--fits", "--largest-batch"])
def test_a_size_must_be_one(option: str, folder: Path) -> None:
    assert f"invalid value for {option}" in estimate(folder, option, "lots").refusal()
