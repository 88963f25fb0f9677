"""Distributions of initial weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt

import numpy as np

from tvm_xengine.relax_ir.types import Array

WeightDistribution = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Draws weights of shape (outputs, inputs, kernel...)."""


def uniform_by_fan_in(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Uniform in +-1 / sqrt(fan in), which PyTorch's layers take by default."""
    bound = 1 / sqrt(fan_in(shape))
    return random.uniform(-bound, bound, shape).astype("float32")


def he_normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal with variance 2 / fan in, for deep networks with ReLU (He et al. 2015)."""
    return (random.standard_normal(shape) * sqrt(2 / fan_in(shape))).astype("float32")


def small_normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal with deviation 0.02, as GPT-2 (Radford et al. 2019)."""
    return (random.standard_normal(shape) * 0.02).astype("float32")


def fan_in(shape: tuple[int, ...]) -> int:
    """How many inputs one output of a layer with weights of this shape reads."""
    return max(prod(shape[1:]), 1)
