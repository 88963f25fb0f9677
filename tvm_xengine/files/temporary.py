"""Temporary files and folders that do not outlive the process, however it ends."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_unfinished: set[Path] = set()
"""What `unfinished` holds at this moment. It belongs to the process, as its files do: whoever ends the
process early (`remove_unfinished`) knows nothing of the writers."""


@contextmanager
def unfinished(beside: Path) -> Iterator[Path]:
    """A name in the folder of `beside` for something incomplete.

    Whatever has this name at the end, or when an interrupt ends the process, is removed; a writer
    renames it once it is complete. The name is hidden and ends in ``.part``.
    """
    path = beside.parent / f".{beside.name}.{secrets.token_hex(4)}.part"
    _unfinished.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _unfinished.discard(path)


def remove_unfinished() -> None:
    """Remove everything incomplete; for a process that is about to end."""
    for path in list(_unfinished):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            os.unlink(path)  # noqa: PTH108  also where another thread was faster
        except OSError:
            return
