"""Shares of a batch are whole, and follow what devices achieve."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tvm_xengine.planning.shares.divide import Trial, best_division, proportional_shares
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut, Span


@pytest.mark.parametrize("batch", [3, 4, 16, 101])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.01, 5.0, 80.0), (3.0, 2.0, 1.0)])
def test_shares_are_all_of_the_batch_and_none_is_empty(
    batch: int, weights: tuple[float, ...]
) -> None:
    shares = proportional_shares(batch, weights)
    assert sum(shares) == batch
    assert min(shares) >= 1
    ranked = sorted(zip(weights, shares, strict=True))
    assert all(a[1] <= b[1] for a, b in pairwise(ranked) if a[0] < b[0])


def test_a_batch_of_fewer_samples_than_devices_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample for each of 3"):
        proportional_shares(2, [1, 1, 1])


def test_a_device_that_was_busy_for_longer_gets_fewer_samples() -> None:
    per_sample_us = (1.0, 3.0)
    tried = []

    def attempt(samples: tuple[int, ...]) -> Trial[None]:
        tried.append(samples)
        busy = tuple(n * us for n, us in zip(samples, per_sample_us, strict=True))
        return Trial(samples, max(busy), busy, None)

    best = best_division((8, 8), attempt)
    assert best is not None
    assert best.samples == (12, 4)
    assert tried == [(8, 8), (12, 4)]


def test_the_best_division_is_kept_where_a_later_one_is_worse() -> None:
    def attempt(samples: tuple[int, ...]) -> Trial[None] | None:
        return Trial(samples, 1.0, (1.0, 3.0), None) if samples == (8, 8) else None

    best = best_division((8, 8), attempt)
    assert best is not None
    assert best.samples == (8, 8)


def test_without_time_only_the_first_division_is_planned() -> None:
    def attempt(samples: tuple[int, ...]) -> Trial[None]:
        return Trial(samples, float(samples[0]), (3.0, 1.0), None)

    best = best_division((8, 8), attempt, has_time=lambda: False)
    assert best is not None
    assert best.samples == (8, 8)


def test_slices_lie_one_behind_the_other_in_units_that_cut_none() -> None:
    cut = BatchCut.in_shares((10, 6), (2, 1))
    assert cut.samples == (5, 5, 6)
    assert cut.shares == (0, 0, 1)
    assert cut.units == 16
    assert BatchCut.in_shares((10, 6)).spans == (Span(0, 5), Span(5, 3))
    assert cut.share_samples == (10, 6)
