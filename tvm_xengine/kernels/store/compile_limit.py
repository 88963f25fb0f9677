"""A time limit for compiling, for processes that do nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path

COMPILE_LIMIT_S = 300.0
"""Seconds of processor time for one library; what is not stuck takes seconds."""


@contextmanager
def ends_after(limit_s: float) -> Iterator[None]:
    """End this process when what is inside takes more than `limit_s` of processor time.

    The compiler cannot be interrupted in another way. A signal without a handler ends it.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def was_too_slow(error: BrokenExecutor) -> bool:
    """Whether a process of loky's ended because of :func:`ends_after`."""
    return "SIGPROF" in str(error)


@contextmanager
def noted_in(folder: Path, name: str) -> Iterator[None]:
    """Have a file in `folder` while something runs; it stays when the process ends before."""
    note = folder / name
    note.touch()
    yield
    note.unlink()
