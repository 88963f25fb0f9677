"""Errors of the system that name a file, also where the system does not (no space left)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let every OSError of the body name `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = error.strerror or os.strerror(error.errno)
        raise type(error)(error.errno, reason, str(path)) from error


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Let a RuntimeError that compilers or linkers make of a full disk become an OSError with `path`."""
    try:
        yield
    except RuntimeError as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
