"""Copies between memories of the processor, timed as a step makes them."""

from __future__ import annotations

import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import tvm

from tvm_xengine.cost_models.measure.measure_link import Copy, measure_link
from tvm_xengine.cost_models.measure.measurements import LinkMeasurement, MeasurementCache

_SHORT_BYTES, _SHORT_COPIES = 64, 20
"""Copies of a line of the cache bring back what calls need, after a thread has woken up: without them the
latency is 1.8 us, in a step 0.3 to 0.6 us."""


@dataclass(frozen=True)
class HostLink:
    """On which cores the two ends of a link compute, and on which it copies; none are all there are."""

    src: Collection[int]
    dst: Collection[int]
    copier: Collection[int]

    def __str__(self) -> str:
        src, dst, copier = (sorted(own) or "any" for own in (self.src, self.dst, self.copier))
        return f"memory of cores {src} to {dst}, copied by {copier}"


def measure_host_link(link: HostLink, cache: MeasurementCache) -> LinkMeasurement:
    """Latency and bandwidth of copies of what the cores of the source have just made.

    It lies in their caches then, and what it is copied to in those of the destination: a copy takes up
    to three times as long as the same one made again and again.
    """
    with ExitStack() as stack:
        src, dst, copier = (
            stack.enter_context(ThreadPoolExecutor(1, "copies", _bind, (cores,)))
            for cores in (link.src, link.dst, link.copier)
        )
        copy_of = partial(_copy, src, dst)
        return copier.submit(measure_link, str(link), "", copy_of, cache).result()


def _copy(src: ThreadPoolExecutor, dst: ThreadPoolExecutor, size_bytes: int) -> Copy:
    source, target, first, second = (
        tvm.runtime.tensor(np.zeros(size, "uint8"))
        for size in (size_bytes, size_bytes, _SHORT_BYTES, _SHORT_BYTES)
    )
    made, old = map(np.from_dlpack, (source, target))

    def renew() -> None:
        src.submit(made.fill, 1).result()
        dst.submit(old.fill, 0).result()
        for _ in range(_SHORT_COPIES):
            first.copyto(second)

    return Copy(partial(source.copyto, target), renew)


def _bind(cores: Collection[int]) -> None:
    with suppress(OSError):  # cores of another machine
        if cores:
            os.sched_setaffinity(0, cores)
