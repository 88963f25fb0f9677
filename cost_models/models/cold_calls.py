"""What a kernel pays more where a step leaves the caches than where its own last call does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import FeatureTable

COLD_START = (0.3, 1e-4)
"""Where the search begins: some cache misses of a call, and 10 GB/s."""

_DIGITS = 4
"""More would be noise, and differ with the processor that fits."""


@dataclass(frozen=True)
class ColdCalls:
    """A time for each call, and a time for each byte that it reads or writes.

    Both come on top of the time with hot caches, so long kernels pay relatively little.
    """

    call_us: float
    us_per_byte: float

    def extra_us(self, table: FeatureTable) -> NDArray[np.float64]:
        """What is added to the times with hot caches, (rows,)."""
        return np.asarray(self.call_us + self.us_per_byte * table.touched_bytes)


FROM_MEMORY = ColdCalls(1.6, 1.9e-5)
"""What calls and bytes cost more in a step whose tensors come from memory (`caches.MEMORY`), beside labels,
which are of steps that fit the last level. A robust fit to 394 kernels of five networks on a Zen 4, timed in
both states (`benchmarks/costs/from_memory.py`): fitted to four of the networks, predictions of the fifth sum
up to 0.75 to 0.93 of such times, and to 0.64 to 0.78 without it."""


def fit_cold_calls(
    hot_us: NDArray[np.float64], cold_us: NDArray[np.float64], table: FeatureTable
) -> ColdCalls:
    """Both numbers, by robust least squares of logarithms, with the digits that are known."""
    from scipy.optimize import least_squares  # loads slowly, and who predicts does not fit

    def residuals(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        found = ColdCalls(*map(float, np.exp(logarithms)))
        return np.asarray(np.log((hot_us + found.extra_us(table)) / cold_us), dtype=np.float64)

    found = np.exp(least_squares(residuals, np.log(COLD_START), loss="soft_l1").x)
    return ColdCalls(*(float(f"{each:.{_DIGITS}g}") for each in found))
