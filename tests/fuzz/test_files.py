"""Damaged files are read or refused in a sentence: no traceback, no crash, no hang, no memory bomb."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.readers import KINDS
from tests.fuzz.reading import READ, REFUSED, START_S, Worker, answers


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


def faults(kind: str, seeds: range, folder: Path, worker: Worker) -> list[str]:
    return [
        f"{kind}, seed {seed}: {answer[-1500:]}"
        for seed, answer in answers(kind, seeds, folder, worker)
        if answer not in (READ, REFUSED)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_share_of_damaged_files(kind: str, tmp_path: Path, worker: Worker) -> None:
    assert faults(kind, range(40), tmp_path, worker) == []


_MORE_THAN_MEMORY_BYTES = 1 << 42
"""Of a file that takes no space on the disk; no machine that runs tests has so much memory."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_read_to_its_end_is_refused(
    kind: str, tmp_path: Path, worker: Worker
) -> None:
    path = tmp_path / KINDS[kind].file
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind].write(path)
    os.truncate(path, _MORE_THAN_MEMORY_BYTES)
    assert worker.read(kind, path, START_S) == REFUSED
    path.unlink()
    os.mkfifo(path)
    assert worker.read(kind, path) == REFUSED
    path.unlink()
    path.symlink_to("/dev/zero")
    assert worker.read(kind, path) == REFUSED
    path.unlink()
    path.mkdir()
    assert worker.read(kind, path) == REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(kind: str, tmp_path: Path, worker: Worker) -> None:
    assert faults(kind, range(40, 540), tmp_path, worker) == []
