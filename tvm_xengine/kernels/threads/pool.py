"""The thread pool of TVM's runtime, one for each thread that calls kernels."""

from __future__ import annotations

from threading import local

import numpy as np
import tvm

from tvm_xengine.kernels.threads.settings import sharing_cores

_FILLED_NUMBERS = 4096
"""Numbers of the tensor that all threads fill together: many times as many as there are threads."""


class _Started(local):
    """Whether the pool of the calling thread is known to run, as TVM keeps its pools."""

    threads = 0


_STARTED = _Started()


def thread_pool_size() -> int:
    """Start the pool of the calling thread, if it does not run; the number of its threads.

    A pool keeps the settings it has started with (`sharing_cores`). One that TVM has started before
    keeps its own.
    """
    if not _STARTED.threads:
        with sharing_cores():
            threads = int(tvm.get_global_func("runtime.NumThreads")())
            _wait_for_workers()
        _STARTED.threads = threads
    return _STARTED.threads


def _wait_for_workers() -> None:
    """Have every thread of the pool work once: by then it has read the environment."""
    fill = tvm.get_global_func("tvm.contrib.random.random_fill_for_measure", allow_missing=True)
    if fill is not None:
        fill(tvm.runtime.tensor(np.zeros(_FILLED_NUMBERS, "float32")))
