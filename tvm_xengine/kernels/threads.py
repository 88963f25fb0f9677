"""Sharing of cores between the threads of generated code and of libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

_ENVIRONMENT_LOCK = Lock()


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


def share_cores() -> None:
    """Set `thread_settings` for the rest of this process, which must be a program of our own."""
    os.environ.update(thread_settings())


@contextmanager
def sharing_cores() -> Iterator[None]:
    """Set `thread_settings` for the pools that start and the libraries that load inside.

    The environment is as before afterwards; other threads see the settings meanwhile.
    """
    with _ENVIRONMENT_LOCK:
        settings = thread_settings()
        os.environ.update(settings)
        try:
            yield
        finally:
            for name in settings:
                os.environ.pop(name, None)


def usable_cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
