"""Gradients against differences of the loss, which no second implementation takes part in."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.training.step import TrainingStep

DIRECTIONS = 3
DISTANCES = (1e-8, 1e-9, 1e-10, 1e-7)
"""Relative to the root mean square of each tensor: small, since every ReLU on the way is a kink,
but not so small that the difference drowns in rounding. The best is different in each network;
a wrong gradient agrees with none."""
CLOSE = 1e-6
"""No other distance is tried after one with an error this small."""


def directional_error(
    training: TrainingStep,
    executable: StepExecutable,
    gradients: Mapping[str, NDArray[np.floating]],
    batch: tuple[torch.Tensor, torch.Tensor],
) -> float:
    """Largest error of the slope along random directions, relative to a typical slope.

    Of the distances the one that suits the network best counts.
    """
    values = dict(zip(training.batch_names, (part.numpy() for part in batch), strict=True))
    initial = {name: training.initial_state[name] for name in gradients}
    random = np.random.default_rng(0)

    def loss(direction: Mapping[str, NDArray[np.floating]], distance: float) -> float:
        executable.write(training.initial_state)
        executable.write({name: initial[name] + distance * v for name, v in direction.items()})
        return float(executable.step({**values, "lr": np.asarray(0.0)})["loss"])

    directions = [
        {name: random.standard_normal(v.shape) * _size(v) for name, v in initial.items()}
        for _ in range(DIRECTIONS)
    ]
    slopes = [
        sum(float((gradients[name] * v).sum()) for name, v in direction.items())
        for direction in directions
    ]
    typical = sqrt(
        sum(float(((gradients[name] * _size(v)) ** 2).sum()) for name, v in initial.items())
    )
    best = np.inf
    for distance in DISTANCES:
        differences = [
            (loss(direction, distance) - loss(direction, -distance)) / (2 * distance)
            for direction in directions
        ]
        worst = max(abs(found - slope) for found, slope in zip(differences, slopes, strict=True))
        best = min(best, worst / typical)
        if best <= CLOSE:
            break
    return best


def _size(value: NDArray[np.floating]) -> float:
    """Root mean square of a tensor; one where it is all zero."""
    return float(np.sqrt((value**2).mean())) or 1.0
