"""Measure how long copies between the memories of two devices take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
import tvm

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


def measure_link(
    src: tvm.runtime.Device, dst: tvm.runtime.Device, cache: MeasurementCache
) -> LinkMeasurement:
    """Return latency and bandwidth of tensor copies, from the cache or measured.

    Copies of several sizes are timed in rounds. The line through the medians minimises the sum of
    relative errors, so that small copies count as much as large ones, and a few sizes that were
    disturbed, or that a cache favours, do not move it.
    """
    link = link_fingerprint(str(src), str(dst))
    known = cache.find_link(link)
    if known is not None:
        return known
    buffers = [_buffers(size_bytes, src, dst) for size_bytes in _SIZES_BYTES]
    rounds = [[_copy_us(source, target) for source, target in buffers] for _ in range(_ROUNDS)]
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


def _buffers(
    size_bytes: int, src: tvm.runtime.Device, dst: tvm.runtime.Device
) -> tuple[tvm.runtime.Tensor, tvm.runtime.Tensor]:
    zeros = np.zeros(size_bytes, "uint8")
    return tvm.runtime.tensor(zeros, src), tvm.runtime.tensor(zeros, dst)


def _copy_us(source: tvm.runtime.Tensor, target: tvm.runtime.Tensor) -> float:
    """Mean time of a copy, over as many copies as the clock can see."""
    copies, start, now = 0, time.perf_counter(), 0.0
    while now - start < _LEAST_SAMPLE_S:
        source.copyto(target)
        copies += 1
        now = time.perf_counter()
    return (now - start) * 1e6 / copies
