"""What the environment says of threads, and what it should say where it says nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock


def thread_settings() -> Mapping[str, str]:
    """Variables that let the pools of TVM use all cores, and leave them when their work is done.

    TVM reads the environment when a pool of its threads starts. By default a pool takes half of the
    cores and binds its threads to them, the main thread included, from which OpenMP's threads inherit a
    single core; and its threads spin for up to 100 ms on the cores that OpenMP's need. What the
    environment says already is not among them.
    """
    wanted = {
        "TVM_NUM_THREADS": str(usable_cores()),
        "TVM_BIND_THREADS": "0",
        "TVM_THREAD_POOL_SPIN_COUNT": "0",
    }
    return {name: value for name, value in wanted.items() if name not in os.environ}


class _Sharing:
    """The settings of the environment while anyone shares cores."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._settings: Mapping[str, str] = {}

    def begin(self) -> None:
        """Set what is not set; the first of several users does."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._settings = thread_settings()
                os.environ.update(self._settings)

    def end(self) -> None:
        """Remove it; the last of several users does."""
        with self._lock:
            self._users -= 1
            if not self._users:
                for name in self._settings:
                    os.environ.pop(name, None)

    def is_given(self, name: str) -> bool:
        """Whether a variable is set, and not by this module."""
        with self._lock:
            return name in os.environ and name not in (self._settings if self._users else ())


_SHARING = _Sharing()
"""One per process, as the environment is."""


@contextmanager
def sharing_cores() -> Iterator[None]:
    """Set `thread_settings` for the pools that start and the libraries that load inside.

    The environment is as before afterwards; other threads see the settings meanwhile, and may share
    cores, too.
    """
    _SHARING.begin()
    try:
        yield
    finally:
        _SHARING.end()


def most_threads() -> int | None:
    """Threads that the environment allows a kernel (``TVM_NUM_THREADS``), None where it says nothing."""
    if not _SHARING.is_given("TVM_NUM_THREADS"):
        return None
    given = os.environ["TVM_NUM_THREADS"].strip()
    return int(given) if given.isdecimal() and int(given) > 0 else None


def usable_cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
