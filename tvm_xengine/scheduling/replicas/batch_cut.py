"""Where a batch is cut: slices that run one after the other, in shares that run side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Span:
    """A slice as units of its batch: the first one, and how many there are."""

    first: int
    count: int


@dataclass(frozen=True)
class BatchCut:
    """How a batch is cut in slices.

    Attributes
    ----------
    samples
        Of each slice, in their order in the batch.
    shares
        For each slice the number of its share. A slice adds its sums to those of the slices of the
        same share before it; the sums of shares are added once all are there.
    bucket_bytes
        Sums of shares that only updates read are exchanged together until they are so large; 0 exchanges
        each alone.
    """

    samples: tuple[int, ...]
    shares: tuple[int, ...]
    bucket_bytes: int = 0

    def __post_init__(self) -> None:
        if len(self.samples) != len(self.shares) or not self.samples:
            raise ValueError(
                f"expected a share for each slice, got {len(self.shares)} for {len(self.samples)}"
            )
        if any(count < 1 for count in self.samples):
            raise ValueError(f"every slice needs a sample, got {list(self.samples)}")
        if self.bucket_bytes < 0:
            raise ValueError(f"bucket_bytes must be >= 0, got {self.bucket_bytes}")
        if sorted(set(self.shares)) != list(range(max(self.shares) + 1)):
            raise ValueError(f"shares are numbered from 0 without gaps, got {list(self.shares)}")

    @classmethod
    def equal(cls, batch: int, parts: int) -> BatchCut | None:
        """Equal slices of one share; None where they do not divide the batch."""
        if batch % parts:
            return None
        return cls((batch // parts,) * parts, (0,) * parts)

    @classmethod
    def in_shares(cls, samples: Sequence[int], slices: Sequence[int] | None = None) -> BatchCut:
        """A share of so many samples each; `slices` says in how many slices each of them runs."""
        parts = [1] * len(samples) if slices is None else [*slices]
        cut = [
            (count // n + (k < count % n), share)
            for share, (count, n) in enumerate(zip(samples, parts, strict=True))
            for k in range(n)
        ]
        return cls(tuple(count for count, _ in cut), tuple(share for _, share in cut))

    @property
    def units(self) -> int:
        """In so many equal units the batch can be divided without cutting through a slice."""
        return sum(self.samples) // math.gcd(*self.samples)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Each slice in these units."""
        unit = math.gcd(*self.samples)
        firsts = accumulate((0, *self.samples))
        return tuple(
            Span(first // unit, count // unit)
            for first, count in zip(firsts, self.samples, strict=False)
        )

    @property
    def share_samples(self) -> tuple[int, ...]:
        """Samples of each share."""
        totals = [0] * (max(self.shares) + 1)
        for count, share in zip(self.samples, self.shares, strict=True):
            totals[share] += count
        return tuple(totals)
