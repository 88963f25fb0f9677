"""The allowed values of integer inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_SAID = 8
"""So many parts stand in a text; an input may have one for each element."""

_INT64 = np.iinfo(np.int64)
_WHOLE = {(int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in ("int32", "int64")}
"""Ranges that leave out no index."""


@dataclass(frozen=True)
class ValueRange:
    """The values that an integer input may have.

    Attributes
    ----------
    low, high
        First and last value; of parts, of some element.
    besides
        Further values, such as the label that a loss ignores.
    parts
        Where the elements have different ranges; these have no parts.
    """

    low: int
    high: int
    besides: tuple[int, ...] = ()
    parts: Parts | None = None

    def __str__(self) -> str:
        if self.parts is not None:
            return str(self.parts)
        return f"{self.low}..{self.high}{''.join(f' or {value}' for value in self.besides)}"

    def first_outside(self, values: NDArray[Any]) -> tuple[int, ...] | None:
        """Where the first integer is that is not allowed; None if all are."""
        if self.parts is not None:
            outside = self.parts.are_outside(values)
        elif not values.size or (values.min() >= self.low and values.max() <= self.high):
            return None
        else:
            outside = (values < self.low) | (values > self.high)
            for value in self.besides:
                outside &= values != value
        if not outside.any():
            return None
        return tuple(map(int, np.unravel_index(int(outside.argmax()), values.shape)))

    def at(self, place: Sequence[int]) -> ValueRange:
        """The range of one element."""
        return self if self.parts is None else self.parts.at(place)

    def of_samples(self, shape: Sequence[int], batch_size: int) -> ValueRange:
        """The same of arrays that hold samples of any number, one by one.

        Parameters
        ----------
        shape
            Of the input, a batch.
        batch_size
            By how many samples the first dimension is divided; a range that depends on where in the
            batch a sample stands becomes that of all.
        """
        if self.parts is None:
            return self
        if not shape or shape[0] % batch_size:
            return ValueRange(self.low, self.high, self.besides)
        which = np.broadcast_to(self.parts.positions, shape)
        which = which.reshape(batch_size, -1, *which.shape[1:])
        if shape[0] == batch_size:
            which = which[:, 0]
        if (which != which[:1]).any():
            return ValueRange(self.low, self.high, self.besides)
        return by_part(self.parts.ranges, which[:1])


@dataclass(frozen=True)
class Parts:
    """The ranges of the elements of an input.

    Attributes
    ----------
    ranges
        That some elements have.
    shape
        Of `which`; a dimension of 1 stands for all places along it.
    which
        Which range each element has, in flat order.
    """

    ranges: tuple[ValueRange, ...]
    shape: tuple[int, ...]
    which: tuple[int, ...]

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """`which` in its shape."""
        return np.array(self.which, np.int64).reshape(self.shape)

    def at(self, place: Sequence[int]) -> ValueRange:
        """The range of one element."""
        pairs = zip(place, self.shape, strict=True)
        return self.ranges[int(self.positions[tuple(k if n > 1 else 0 for k, n in pairs)])]

    def are_outside(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Which values are not allowed."""
        if values.dtype == np.uint64:  # which alone holds numbers that int64 does not
            values = np.minimum(values, np.uint64(_INT64.max))
        wide = values.astype(np.int64)
        low, high = (
            np.array([np.clip(limit, _INT64.min, _INT64.max) for limit in limits], np.int64)
            for limits in zip(*((one.low, one.high) for one in self.ranges), strict=True)
        )
        outside: NDArray[np.bool_] = wide < low[self.positions]
        outside |= wide > high[self.positions]
        for value in {value for one in self.ranges for value in one.besides}:
            has = np.array([value in one.besides for one in self.ranges])
            outside &= ~(has[self.positions] & (wide == value))
        return outside

    def __str__(self) -> str:
        axes = [axis for axis, extent in enumerate(self.shape) if extent > 1]
        if len(axes) > 1 or len(self.ranges) > _MOST_SAID:
            return f"one of {len(self.ranges)} ranges, by its place"
        behind = ", :" * (len(self.shape) - 1 - axes[0])
        said = []
        for number, one in enumerate(self.ranges):
            if (one.low, one.high) in _WHOLE:
                continue
            at = [k for k, part in enumerate(self.which) if part == number]
            runs = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
            spans = [str(a[0]) if len(a) == 1 else f"{a[0]}:{a[-1] + 1}" for a in runs]
            said.append(f"{one} at {' and '.join(f'[..., {span}{behind}]' for span in spans)}")
        return ", ".join(said)


def by_part(ranges: Sequence[ValueRange], which: NDArray[Any]) -> ValueRange:
    """The range of an input whose elements have those of `ranges` that `which` says, in its shape."""
    numbers, firsts, inverse = np.unique(which, return_index=True, return_inverse=True)
    order = np.argsort(firsts)  # as they stand in the input
    used = tuple(ranges[int(numbers[k])] for k in order)
    if len(used) == 1:
        return used[0]
    places = np.argsort(order)[inverse].reshape(which.shape)
    for axis in range(which.ndim):
        if (places == places.take([0], axis)).all():
            places = places.take([0], axis)
    low, high = min(one.low for one in used), max(one.high for one in used)
    besides = sorted({v for one in used for v in one.besides if not low <= v <= high})
    parts = Parts(used, places.shape, tuple(map(int, places.reshape(-1))))
    return ValueRange(low, high, tuple(besides), parts)
