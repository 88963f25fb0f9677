"""Measure how long copies between the memories of two devices take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_xengine.cost_models.measure.measurements import (
    LinkMeasurement,
    MeasurementCache,
)
from tvm_xengine.cost_models.measure.this_machine import link_fingerprint

_SIZES_BYTES = tuple(4**exponent for exponent in range(3, 13))  # 64 B ... 16 MiB
_ROUNDS = 5
"""Of copies of all sizes; the median of five stands against two that are disturbed."""

_LEAST_SAMPLE_S = 0.0005
"""Copies are repeated for so long, 1000 times the overhead of a call from Python."""


_RENEWED_COPIES = 3
"""Of a size in a round, each timed alone; 16 MiB take 20 ms in a round with what renews them."""


@dataclass(frozen=True)
class Copy:
    """A copy that can be repeated.

    Attributes
    ----------
    run
        Makes the copy.
    renew
        Brings both memories into the state in which a step leaves them for a copy; None: copies are
        timed as they leave them themselves.
    """

    run: Callable[[], object]
    renew: Callable[[], object] | None = None


def measure_link(
    src: str,
    dst: str,
    copy_of: Callable[[int], Copy],
    cache: MeasurementCache,
) -> LinkMeasurement:
    """Return latency and bandwidth of copies between two memories, from the cache or measured.

    Copies of several sizes are timed in rounds. The line through the medians minimises the sum of
    relative errors, so that small copies count as much as large ones, and a few sizes that were
    disturbed, or that a cache favours, do not move it.

    Parameters
    ----------
    src, dst
        Names of the memories, under which the cache knows the link.
    copy_of
        What copies a number of bytes.
    """
    link = link_fingerprint(src, dst)
    known = cache.find_link(link)
    if known is not None:
        return known
    copies = [copy_of(size_bytes) for size_bytes in _SIZES_BYTES]
    rounds = [[_copy_us(copy) for copy in copies] for _ in range(_ROUNDS)]
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    samples = tuple(zip(_SIZES_BYTES, medians, strict=True))
    latency_us, bandwidth_gb_s = fit_line(samples)
    measured = LinkMeasurement(link, latency_us, bandwidth_gb_s, samples)
    cache.add(measured)
    return measured


def fit_line(samples: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return (latency_us, bandwidth_gb_s) of ``us = latency + bytes / (1000 * bandwidth)``.

    The sum over the samples of the relative error, without its sign, is least, with latency >= 0.
    Such a line goes through two samples, or through one without latency (least absolute
    deviations; Bloomfield and Steiger, 1983), so all of these are tried.
    """
    sizes, times = (np.array(column, dtype=np.float64) for column in zip(*samples, strict=True))
    one, other = np.triu_indices(len(sizes), k=1)
    slopes = (times[other] - times[one]) / (sizes[other] - sizes[one])
    slopes = np.concatenate([slopes, times / sizes, np.zeros_like(times)])
    starts = np.concatenate([times[one] - slopes[: len(one)] * sizes[one], 0 * times, times])
    errors = np.abs(starts[:, None] + slopes[:, None] * sizes - times) / times
    allowed = (starts >= -1e-9) & (slopes >= 0)
    best = int(np.argmin(np.where(allowed, errors.sum(axis=1), np.inf)))
    return max(float(starts[best]), 0.0), float(1 / max(1000 * slopes[best], 1e-9))


def _copy_us(copy: Copy) -> float:
    """Mean time of a copy, over as many copies as the clock can see; of renewed ones the median."""
    if copy.renew is not None:
        return statistics.median(_renewed_copy_us(copy) for _ in range(_RENEWED_COPIES))
    copies, start, now = 0, time.perf_counter(), 0.0
    while now - start < _LEAST_SAMPLE_S:
        copy.run()
        copies += 1
        now = time.perf_counter()
    return (now - start) * 1e6 / copies


def _renewed_copy_us(copy: Copy) -> float:
    assert copy.renew is not None
    copy.renew()
    begun_ns = time.perf_counter_ns()
    copy.run()
    return (time.perf_counter_ns() - begun_ns) / 1000
