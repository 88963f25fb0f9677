"""How the threads of generated code and of libraries share the cores of this process."""

from __future__ import annotations

import os


def share_cores() -> None:
    """Let TVM's threads and a library's take turns on all cores, unless the environment says otherwise.

    Both pools read the environment once: TVM's when it is first used, OpenMP's when its library is
    loaded. By default TVM's takes half of the cores and ties its threads to them, the main thread
    included, from which OpenMP's threads inherit a single core; and the threads of both spin when
    their kernel has ended, for up to 100 ms, on the cores that the other's next kernel needs.
    """
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def usable_cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
