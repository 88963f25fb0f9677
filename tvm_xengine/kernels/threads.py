"""Sharing of cores between the threads of generated code and of libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock


def thread_settings() -> Mapping[str, str]:
    """Variables that let TVM's threads and a library's take turns on all cores.

    TVM reads the environment when a pool of its threads starts, OpenMP when its library is loaded. By
    default TVM's pool takes half of the cores and binds its threads to them, the main thread
    included, from which OpenMP's threads inherit a single core; and the threads of both spin when
    their kernel has ended, for up to 100 ms, on the cores that the other's next kernel needs. What
    the environment says already is not among them.
    """
    wanted = {
        "TVM_NUM_THREADS": str(usable_cores()),
        "TVM_BIND_THREADS": "0",
        "TVM_THREAD_POOL_SPIN_COUNT": "0",
        "OMP_WAIT_POLICY": "passive",
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


def usable_cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
