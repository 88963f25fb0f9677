"""Real numbers as int8: scales and zero points of tensors, and of the filters of a layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST = -128, 127
LARGEST_WEIGHT = 127
"""Weights are symmetric: -128 is not used, so that a weight and its negative have the same error."""
LARGEST_BIAS = 2**30
"""Half the range of int32; the other half is for the sum of products."""
MOST_TERMS = 2**30 // (255 * LARGEST_WEIGHT)
"""So many products of a pixel and a weight, and of a zero point and a weight, fit into that half."""

Reals = NDArray[np.float32]
Whole = NDArray[np.int8]
_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """``q`` stands for ``scale * (q - zero)``.

    Attributes
    ----------
    scale
        A number of float32.
    zero
        The element that stands for 0, -128 to 127.
    """

    scale: float
    zero: int

    def quantized(self, values: Reals) -> Whole:
        """``clip(round(values / scale) + zero)``, halves to even."""
        whole = np.rint(values.astype("float32") / np.float32(self.scale)) + self.zero
        bounded: Whole = np.clip(np.nan_to_num(whole), LOWEST, HIGHEST).astype("int8")
        return bounded

    def real(self, whole: Whole) -> Reals:
        """What elements stand for."""
        centred = whole.astype("int32") - self.zero
        return centred.astype("float32") * np.float32(self.scale)

    def bound(self, value: float) -> int:
        """The element for a real number, which may be infinite."""
        place = np.rint(np.clip(value / self.scale, -256, 256)) + self.zero
        return int(np.clip(place, LOWEST, HIGHEST))


def affine_of_range(least: float, greatest: float) -> Affine:
    """The finest scale that holds a range and 0, which stands for itself exactly."""
    low, high = min(float(least), 0.0), max(float(greatest), 0.0)
    scale = float(np.float32((high - low) / (HIGHEST - LOWEST)))
    if not scale > np.finfo("float32").tiny:
        return Affine(1.0, 0)
    zero = int(np.clip(np.rint(LOWEST - low / scale), LOWEST, HIGHEST))
    return Affine(scale, zero)


@dataclass(frozen=True)
class Filters:
    """Weights and bias of a layer, the output channels first.

    Attributes
    ----------
    scales
        One for each output channel where the model gives them; None takes the finest.
    """

    weight: Reals
    bias: Reals
    scales: Reals | None = None

    def times(self, factor: Reals) -> Filters:
        """The layer with each output channel times a number."""
        column = factor.reshape(-1, *[1] * (self.weight.ndim - 1))
        scales = None if self.scales is None else self.scales * np.abs(factor)
        return Filters(self.weight * column, self.bias * factor, scales)

    def plus(self, shift: Reals) -> Filters:
        """The layer with a number added to each output channel."""
        return Filters(self.weight, self.bias + shift, self.scales)


@dataclass(frozen=True)
class IntegerFilters:
    """A layer of int8.

    Attributes
    ----------
    bias
        int32, with the part of the data's zero point.
    factor
        float32, from the sum to the scale of the result.
    """

    weight: Whole
    bias: NDArray[np.int32]
    factor: Reals


def stored_filters(filters: Filters) -> tuple[Whole, Reals]:
    """Weights by output channel, symmetric, and the scale of each channel."""
    whole, scales = _whole_filters(filters, 0.0)
    return whole.astype("int8"), scales.astype("float32")


def integer_filters(filters: Filters, data: Affine, result: Affine) -> IntegerFilters:
    """Weights by output channel, symmetric; a bias that is too large for int32 makes them coarser."""
    least = np.abs(filters.bias) / (data.scale * LARGEST_BIAS)
    whole, scales = _whole_filters(filters, least)
    sums = whole.reshape(len(whole), -1).sum(axis=1)
    bias = np.rint(filters.bias / (scales * data.scale)) - data.zero * sums
    return IntegerFilters(
        whole.astype("int8"),
        bias.astype("int32"),
        (scales * data.scale / result.scale).astype("float32"),
    )


def _whole_filters(filters: Filters, least: _Doubles | float) -> tuple[_Doubles, _Doubles]:
    """Weights as whole numbers, and the scale of each output channel, no finer than `least`."""
    flat = filters.weight.reshape(len(filters.weight), -1).astype("float64")
    if filters.scales is None:
        scales = np.abs(flat).max(axis=1) / LARGEST_WEIGHT
    else:
        scales = filters.scales.astype("float64")
    scales = np.maximum(scales, least).astype("float32").astype("float64")
    scales = np.where(scales > np.finfo("float32").tiny, scales, 1.0)
    whole = np.clip(np.rint(flat / scales[:, None]), -LARGEST_WEIGHT - 1, LARGEST_WEIGHT)
    return whole.reshape(filters.weight.shape), scales
