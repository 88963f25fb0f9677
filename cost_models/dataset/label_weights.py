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
    """Weights with mean 1, (rows,): of noise as a variance, and of time.

    A kernel with one calm round says nothing of its noise, and the rounds of another agree by
    chance, so none has less than the median of its machine.
    """
    noise = np.minimum(np.maximum(data.noise_ratio, _machines_noise(data)), _MOST_NOISE_RATIO)
    weights = data.time_us**_TIME_POWER / (_NOISE_RATIO**2 + noise**2)
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def _machines_noise(data: Dataset) -> NDArray[np.float64]:
    """The median noise of the kernels of each row's machine that have several rounds, (rows,)."""
    machines = np.array(data.machines or [""] * len(data))
    is_repeated = np.array([len(rounds) > 1 for rounds in data.rounds_us], dtype=bool)
    noise = np.zeros(len(data))
    for machine in set(machines):
        here = machines == machine
        if (here & is_repeated).any():
            noise[here] = np.median(data.noise_ratio[here & is_repeated])
    return noise
