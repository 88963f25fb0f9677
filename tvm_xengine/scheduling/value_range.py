"""The allowed values of integer inputs."""

from __future__ import annotations

from dataclasses import dataclass


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
