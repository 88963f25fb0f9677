"""A piece of work that is always the same: its time shows how the machine drifts."""

from __future__ import annotations

import time

import numpy as np

_SIZE = 96
_EVERY_S = 1.0


class Sentinel:
    """Times a small matrix product, at most once a second."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._matrix = rng.random((_SIZE, _SIZE))
        self._last_s = -np.inf
        self._last_us = 0.0

    def time_us(self) -> float:
        """CPU time of the work on this thread, the shortest of five."""
        if time.monotonic() - self._last_s < _EVERY_S:
            return self._last_us
        self._last_us = min(self._once_us() for _ in range(5))
        self._last_s = time.monotonic()
        return self._last_us

    def _once_us(self) -> float:
        start_ns = time.thread_time_ns()
        # Without BLAS, so that no threads are involved.
        np.einsum("ij,jk->ik", self._matrix, self._matrix, optimize=False)
        return (time.thread_time_ns() - start_ns) / 1000
