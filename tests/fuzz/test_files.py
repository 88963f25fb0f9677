"""Damaged files are read or refused in a sentence: no traceback, no crash, no hang, no memory bomb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.readers import KINDS
from tests.fuzz.reading import READ, REFUSED, Worker, answers


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(kind: str, tmp_path: Path, worker: Worker) -> None:
    assert faults(kind, range(40, 540), tmp_path, worker) == []
