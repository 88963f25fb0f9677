"""A fixed reference workload: its time detects disturbed rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

_SIZE = 96
"""Rows of the matrix product that is timed: it fits the second level cache and takes some 0.1
ms."""

_EVERY_S = 0.05
"""The product is not timed more often beside kernels, so that it costs less than a hundredth of the time."""

BETWEEN_STEPS_S = 0.5
"""Nor more often between steps, of whose time it costs less than five thousandths."""

SLOWED_RATIO = 1.06
"""The work takes within 3 % of the same time while nothing disturbs it, and more than 10 % longer
while something does that the clock of a thread does not see, such as its core's other thread."""


def calm_rounds(sentinels_us: Sequence[float], fastest_us: float | None = None) -> list[int]:
    """The undisturbed rounds; all rounds where no reference workload was timed.

    Parameters
    ----------
    fastest_us
        How fast the machine can be; None means as in the fastest of these rounds.
    """
    slowest_calm_us = SLOWED_RATIO * min((*sentinels_us, fastest_us or math.inf))
    watched = all(sentinels_us)
    return [k for k, us in enumerate(sentinels_us) if us <= slowest_calm_us or not watched]


class Sentinel:
    """Times a small matrix product, at most once in so many seconds."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        rng = np.random.default_rng(0)
        self._matrix = rng.random((_SIZE, _SIZE))
        self._last_s = -np.inf
        self._last_us = 0.0
        self.fastest_us = np.inf

    def time_us(self) -> float:
        """CPU time of the work on this thread, the shortest of five."""
        if time.monotonic() - self._last_s < self._every_s:
            return self._last_us
        self._last_us = min(self._once_us() for _ in range(5))
        self._last_s = time.monotonic()
        self.fastest_us = min(self.fastest_us, self._last_us)
        return self._last_us

    def _once_us(self) -> float:
        start_ns = time.thread_time_ns()
        # Without BLAS, so that no threads are involved.
        np.einsum("ij,jk->ik", self._matrix, self._matrix, optimize=False)
        return (time.thread_time_ns() - start_ns) / 1000
