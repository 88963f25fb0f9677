"""Corrects predictions for more threads than a model has learned from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import FeatureTable

_THREADS = ("threads", "library_threads")
_ONE_THREAD = {"threads": 1.0, "machine_cores": 1.0, "library_threads": 1.0}
"""Values of these features for a kernel that runs on one thread."""
_SERIAL = ("parallel_share", "log_parallel_extent")
_SERIAL_PREFIX = "is_parallel_in"

_EFFICIENCY = 0.9
"""Share of its core that each thread makes use of; chosen: the shipped model has learned from kernels
on one thread only."""

_FORK_US = 1.0
"""Time to wake the threads and wait for the last one; chosen, as `_EFFICIENCY`."""


def most_threads(table: FeatureTable) -> int:
    """The largest number of threads of any kernel."""
    known = [table.column(name).max() for name in _THREADS if name in table.names]
    return max(1, int(max(known, default=1)))


def on_one_thread(table: FeatureTable) -> FeatureTable:
    """The same kernels as if nothing in them ran in parallel."""
    values = table.values.copy()
    for number, name in enumerate(table.names):
        if name in _ONE_THREAD:
            values[:, number] = np.minimum(values[:, number], _ONE_THREAD[name])
        elif name in _SERIAL or name.startswith(_SERIAL_PREFIX):
            values[:, number] = 0.0
    return replace(table, values=values)


def with_threads_us(serial_us: NDArray[np.float64], table: FeatureTable) -> NDArray[np.float64]:
    """Times on all threads from times on one (Amdahl, AFIPS 1967), (rows,).

    The parallel share is that of the statements executed; the call of a library is parallel in
    full.
    """
    threads = _column(table, "threads", 1.0)
    called = _column(table, "library_threads", 1.0)
    share = np.where(threads > 1, _column(table, "parallel_share", 0.0), 0.0)
    share = np.where(called > 1, 1.0, share)
    threads = np.maximum(1.0, np.maximum(threads, called))
    parallel_us = serial_us * share
    spread_us = serial_us - parallel_us + parallel_us / (threads * _EFFICIENCY) + _FORK_US
    return np.where(share > 0, spread_us, serial_us)


def _column(table: FeatureTable, name: str, missing: float) -> NDArray[np.float64]:
    return table.column(name) if name in table.names else np.full(len(table), missing)
