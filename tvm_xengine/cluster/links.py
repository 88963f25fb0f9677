"""Links between processes, measured through the transport that the step uses."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.cost_models.measure.measure_link import fit_line
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.device_kinds import PROCESSOR, device_kind
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.scheduling.platform import Device, Link, Platform

_SIZES_BYTES = tuple(4**exponent for exponent in range(3, 12))  # 64 B ... 4 MiB
_ROUNDS = 9
"""Of messages of all sizes; the median stands against four that were disturbed."""
_ANSWER_TAG, _MESSAGE_TAG = 1, 0
"""Different, so that an answer is never taken for a message of the other direction."""


def with_links_of_ranks(
    platform: Platform, ranks: Ranks, measure_own: Callable[[Platform], Platform]
) -> Platform:
    """Collective: the platform with latency and bandwidth of every link, the same in all processes.

    A link inside a process is measured by that process, one between two processes by both: the time
    of a message is that until its answer of one byte is there, less half of such an answer's own
    round trip.

    Parameters
    ----------
    measure_own
        Fills in the links of a platform whose devices all lie in this process.

    Raises
    ------
    InvalidPlatformError
        If a link between processes ends in memory that is not the processor's.
    """
    _check_ends(platform)
    mine = replace(platform, links=tuple(_inside(platform, ranks.rank)))
    found: dict[tuple[str, str], tuple[float, float]] = {}
    _add(found, measure_own(mine).links)
    for link in platform.links:
        if platform.joins_ranks(link) and not link.is_measured:
            _add(found, _measured_between(link, platform, ranks))
    everywhere: dict[tuple[str, str], tuple[float, float]] = {}
    for text in ranks.gather_texts(json.dumps([[*pair, *times] for pair, times in found.items()])):
        everywhere.update({(src, dst): (us, gb_s) for src, dst, us, gb_s in json.loads(text)})

    def measured(link: Link) -> Link:
        latency_us, bandwidth_gb_s = everywhere[link.src, link.dst]
        return replace(link, latency_us=latency_us, bandwidth_gb_s=bandwidth_gb_s)

    links = tuple(link if link.is_measured else measured(link) for link in platform.links)
    return replace(platform, links=links)


def check_links_are_known(platform: Platform) -> None:
    """Refuse links between processes whose times nobody gives, where they cannot be measured.

    Raises
    ------
    InvalidPlatformError
        If there is one.
    """
    for link in platform.links:
        if platform.joins_ranks(link) and not link.is_measured:
            raise InvalidPlatformError(
                f"link {link.src} -> {link.dst} joins two ranks, and this is one process, which cannot"
                " measure it: give latency_us and bandwidth_gb_s, or start the command with"
                " `tvm-xengine launch`"
            )


def _inside(platform: Platform, rank: int) -> list[Link]:
    return [
        link
        for link in platform.links
        if not platform.joins_ranks(link) and platform.device(link.src).rank == rank
    ]


def _add(found: dict[tuple[str, str], tuple[float, float]], links: tuple[Link, ...]) -> None:
    for link in links:
        if link.latency_us is not None and link.bandwidth_gb_s is not None:
            found[link.src, link.dst] = (link.latency_us, link.bandwidth_gb_s)


def _measured_between(link: Link, platform: Platform, ranks: Ranks) -> tuple[Link, ...]:
    """Collective: the link with its times, in the process that sends; nothing in the others."""
    src, dst = (platform.device(name).rank for name in (link.src, link.dst))
    if ranks.rank not in (src, dst):
        return ()
    samples = {size: [_round_trip_us(ranks, src, dst, size)] for size in (1, *_SIZES_BYTES)}
    for _ in range(_ROUNDS - 1):
        for size, times in samples.items():
            times.append(_round_trip_us(ranks, src, dst, size))
    if ranks.rank == dst:
        return ()
    answer_us = statistics.median(samples.pop(1)) / 2
    medians = [
        (size, max(statistics.median(times) - answer_us, 0.1)) for size, times in samples.items()
    ]
    latency_us, bandwidth_gb_s = fit_line(medians)
    return (replace(link, latency_us=latency_us, bandwidth_gb_s=bandwidth_gb_s),)


def _round_trip_us(ranks: Ranks, src: int, dst: int, size_bytes: int) -> float:
    """Time of a message and its answer of one byte."""
    import torch

    content, answer = torch.zeros(size_bytes, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    began_s = time.perf_counter()
    if ranks.rank == src:
        ranks.send(content, dst, _MESSAGE_TAG).finish()
        ranks.receive(answer, dst, _ANSWER_TAG).finish()
    else:
        ranks.receive(content, src, _MESSAGE_TAG).finish()
        ranks.send(answer, src, _ANSWER_TAG).finish()
    return (time.perf_counter() - began_s) * 1e6


def _check_ends(platform: Platform) -> None:
    for link in platform.links:
        for device in map(platform.device, (link.src, link.dst)):
            if platform.joins_ranks(link) and not _is_host_memory(device):
                raise InvalidPlatformError(
                    f"link {link.src} -> {link.dst} joins two ranks, so both ends must be memory of the"
                    f" processor, which {device.name} is not; go over a device that is such memory"
                )


def _is_host_memory(device: Device) -> bool:
    if device.target is None:
        return device.folder is None
    return device_kind(resolve_target(device.target)) is PROCESSOR
