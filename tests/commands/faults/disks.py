"""Small file systems that can be full or read-only, also for the superuser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SIZE_BYTES = 1 << 17


@contextmanager
def full_disk(at: Path, left_bytes: int = 0) -> Iterator[Path]:
    """A full disk, mounted on a new folder; skips where mounting is not permitted."""
    with _mounted(at):
        (at / "fill").write_bytes(bytes(_SIZE_BYTES - left_bytes))
        yield at


@contextmanager
def read_only_disk(at: Path) -> Iterator[Path]:
    """A disk that nobody can write to."""
    with _mounted(at):
        _run("mount", "-o", "remount,ro", str(at))
        yield at


@contextmanager
def _mounted(at: Path) -> Iterator[None]:
    at.mkdir(parents=True)
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs", str(at))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk is not permitted")
    try:
        yield
    finally:
        _run("umount", "--lazy", str(at))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
