"""The allowed values of integer inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ValueRange:
    """The values that an integer input may have.

    Attributes
    ----------
    low, high
        First and last value.
    besides
        Further values, such as the label that a loss ignores.
    """

    low: int
    high: int
    besides: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{''.join(f' or {value}' for value in self.besides)}"

    def first_outside(self, values: NDArray[Any]) -> tuple[int, ...] | None:
        """Where the first integer is that is not allowed; None if all are."""
        if not values.size or (values.min() >= self.low and values.max() <= self.high):
            return None
        outside = (values < self.low) | (values > self.high)
        for value in self.besides:
            outside &= values != value
        if not outside.any():
            return None
        return tuple(map(int, np.unravel_index(int(outside.argmax()), values.shape)))
