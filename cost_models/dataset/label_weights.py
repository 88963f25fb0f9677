"""How much each measured kernel counts in what a model learns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset

_NOISE_RATIO = 0.05
"""Spread of two measurements of kernels above 20 us, relative to their time."""

_MOST_NOISE_RATIO = 0.5
"""Wider spreads say no more."""

_TIME_POWER = 0.25
"""Long kernels are few, and make up most of a network's time."""


def weights_of(data: Dataset) -> NDArray[np.float64]:
    """Weights with mean 1, (rows,): of noise as a variance, and of time."""
    noise = np.minimum(data.noise_ratio, _MOST_NOISE_RATIO)
    weights = data.time_us**_TIME_POWER / (_NOISE_RATIO**2 + noise**2)
    return np.asarray(weights / weights.mean(), dtype=np.float64)
