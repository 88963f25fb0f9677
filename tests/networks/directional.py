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
DISTANCE = 1e-8
"""Relative to the root mean square of each tensor: so small that hardly a ReLU changes sides."""


def directional_error(
    training: TrainingStep,
    executable: StepExecutable,
    gradients: Mapping[str, NDArray[np.floating]],
    batch: tuple[torch.Tensor, torch.Tensor],
) -> float:
    """Largest error of the slope along random directions, relative to a typical slope."""
    values = dict(zip(training.batch_names, (part.numpy() for part in batch), strict=True))
    initial = {name: training.initial_state[name] for name in gradients}
    random = np.random.default_rng(0)

    def loss(direction: Mapping[str, NDArray[np.floating]], distance: float) -> float:
        executable.write(training.initial_state)
        executable.write({name: initial[name] + distance * v for name, v in direction.items()})
        return float(executable.step({**values, "lr": np.asarray(0.0)})["loss"])

    errors = []
    for _ in range(DIRECTIONS):
        direction = {
            name: random.standard_normal(value.shape) * _size(value)
            for name, value in initial.items()
        }
        above, below = loss(direction, DISTANCE), loss(direction, -DISTANCE)
        slope = (above - below) / (2 * DISTANCE)
        expected = sum(float((gradients[name] * v).sum()) for name, v in direction.items())
        errors.append(abs(slope - expected))
    typical = sqrt(
        sum(float(((gradients[name] * _size(v)) ** 2).sum()) for name, v in initial.items())
    )
    return max(errors) / typical


def _size(value: NDArray[np.floating]) -> float:
    """Root mean square of a tensor; one where it is all zero."""
    return float(np.sqrt((value**2).mean())) or 1.0
