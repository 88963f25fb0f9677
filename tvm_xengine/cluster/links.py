"""Links between processes, measured through the transport that the step uses."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.cluster.shared_memory import see_one_memory, share_memories, shared_events
from tvm_xengine.cost_models.measure.measure_link import fit_line
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.device_kinds import PROCESSOR, device_kind
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.runtime.events import SIGNAL, SPIN, event_functions
from tvm_xengine.runtime.executable import link as vm_code
from tvm_xengine.runtime.mapped_memory import MappedMemory
from tvm_xengine.runtime.vm_function import emit_events
from tvm_xengine.scheduling.platform import Device, Link, Platform

if TYPE_CHECKING:
    import torch

_SIZES_BYTES = tuple(4**exponent for exponent in range(3, 12))  # 64 B ... 4 MiB
_ROUNDS = 9
"""Of copies of all sizes, of which the fastest counts: what else runs only adds to some of them."""
_MOST_HANDOVER_US = 100.0
"""Four times what it takes to wake up a process: more is the time of others."""
_TURNS = 100
"""Handovers there and back: 0.2 ms on two cores that are free."""
_ANSWER_TAG, _MESSAGE_TAG = 1, 0
"""Different, so that an answer is never taken for a message of the other direction."""


def with_links_of_ranks(
    platform: Platform, ranks: Ranks, measure_own: Callable[[Platform], Platform]
) -> Platform:
    """Collective: the platform with latency and bandwidth of every link, the same in all processes.

    A link inside a process is measured by that process, one between two processes by both: a copy by the
    link's engine of what the other process has just written, or else a message, whose time is that until
    its answer of one byte is there, less half of such an answer's own round trip. Where the platform has a
    link in the other direction, too, a size counts with the time that it takes while that is as busy, if
    it is longer: a plan that uses both at once gets what it promises.

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
            measure = _messages_between if link.engine is None else _copies_between
            _add(found, measure(link, platform, ranks))
    everywhere: dict[tuple[str, str], tuple[float, float]] = {}
    for text in ranks.gather_texts(json.dumps([[*pair, *times] for pair, times in found.items()])):
        everywhere.update({(src, dst): (us, gb_s) for src, dst, us, gb_s in json.loads(text)})

    def measured(link: Link) -> Link:
        latency_us, bandwidth_gb_s = everywhere[link.src, link.dst]
        return replace(link, latency_us=latency_us, bandwidth_gb_s=bandwidth_gb_s)

    links = tuple(link if link.is_measured else measured(link) for link in platform.links)
    handover_us = platform.handover_us
    if handover_us is None and links != platform.links and copies_between_ranks(platform):
        handover_us = _handover_us(ranks)
    return replace(platform, links=links, handover_us=handover_us)


def with_engines(platform: Platform, ranks: Ranks) -> Platform:
    """Collective: links between processes of one host that are not described copy through memory.

    The device that receives makes the copies then, or the one that sends where only that computes. A link
    that is described stays what it is, and so do all on a platform with other memory than the processor's.

    Raises
    ------
    InvalidPlatformError
        If some links between ranks have an engine and some have none, or the processes share no memory.
    """
    between = [link for link in platform.links if platform.joins_ranks(link)]
    on_processors = all(d.folder is not None or _is_host_memory(d) for d in platform.devices)
    can_copy = see_one_memory(ranks) and on_processors
    if can_copy and not any(link.is_measured or link.engine for link in between):
        engine = {link: _engine(platform, link) for link in between}
        if None not in engine.values():
            links = [replace(link, engine=engine.get(link, link.engine)) for link in platform.links]
            return replace(platform, links=tuple(links))
    copied = [link for link in between if link.engine is not None]
    if copied and (len(copied) < len(between) or not can_copy):
        raise InvalidPlatformError(
            f"link {copied[0].src} -> {copied[0].dst} has an engine, which copies through memory that"
            " two ranks share: give all links between ranks one, and run all ranks on one host; or leave"
            " out all of them"
        )
    return platform


def _engine(platform: Platform, link: Link) -> str | None:
    return next((name for name in (link.dst, link.src) if platform.device(name).can_compute), None)


def copies_between_ranks(platform: Platform) -> bool:
    """Whether devices copy between ranks through memory; else there are messages."""
    return any(link.engine for link in platform.links if platform.joins_ranks(link))


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


def _goes_both_ways(link: Link, platform: Platform) -> bool:
    return any((other.src, other.dst) == (link.dst, link.src) for other in platform.links)


def _messages_between(link: Link, platform: Platform, ranks: Ranks) -> tuple[Link, ...]:
    """Collective: the link with its times, in the process that sends; nothing in the others."""
    src, dst = (platform.device(name).rank for name in (link.src, link.dst))
    if ranks.rank not in (src, dst):
        return ()
    trips: dict[int, list[float]] = {}
    crossings: dict[int, list[float]] = {}
    crossed = _SIZES_BYTES if _goes_both_ways(link, platform) else ()
    for _ in range(_ROUNDS):
        for size in (1, *_SIZES_BYTES):
            trips.setdefault(size, []).append(_round_trip_us(ranks, src, dst, size))
            if size in crossed:
                crossings.setdefault(size, []).append(_crossing_us(ranks, src, dst, size))
    if ranks.rank == dst:
        return ()
    answer_us = min(trips[1]) / 2
    slowest = {s: max(min(trips[s]), min(crossings.get(s, trips[s]))) for s in _SIZES_BYTES}
    # Half of a round trip of the least size is the least that a message takes.
    fastest = [(size, max(time_us - answer_us, answer_us)) for size, time_us in slowest.items()]
    latency_us, bandwidth_gb_s = fit_line(fastest)
    return (replace(link, latency_us=latency_us, bandwidth_gb_s=bandwidth_gb_s),)


def _copies_between(link: Link, platform: Platform, ranks: Ranks) -> tuple[Link, ...]:
    """Collective: the link with its times, in the process of its engine; nothing in the others."""
    src, dst = (platform.device(name).rank for name in (link.src, link.dst))
    engine = platform.device(link.engine or link.dst).rank
    most = max(_SIZES_BYTES)
    far = {"far": MappedMemory.create(most)} if ranks.rank == src + dst - engine else {}
    memory = share_memories(ranks, far).all["far"]
    here = tvm.runtime.tensor(np.zeros(most, "uint8"))
    samples: dict[tuple[int, bool], list[float]] = {}
    ways = (False, True) if _goes_both_ways(link, platform) else (False,)
    for number in range(_ROUNDS):
        for size, at_once in product(_SIZES_BYTES, ways):
            if far:
                memory.write(bytes([number]) * size)  # so that it lies in the other core's cache
            ranks.least(0)
            if ranks.rank == engine or (far and at_once):
                copied_us = _copy_us(memory.tensor(0, (size,), "uint8"), here, size, engine == dst)
                samples.setdefault((size, at_once), []).append(copied_us)
            ranks.least(0)
    if ranks.rank != engine:
        return ()
    slowest: dict[int, float] = {}
    for (size, _), times in samples.items():
        slowest[size] = max(slowest.get(size, 0.0), min(times))
    latency_us, bandwidth_gb_s = fit_line(list(slowest.items()))
    return (replace(link, latency_us=latency_us, bandwidth_gb_s=bandwidth_gb_s),)


def _copy_us(far: tvm.runtime.Tensor, here: tvm.runtime.Tensor, size: int, receives: bool) -> float:
    near = here._create_view((size,), "uint8")
    src, dst = (far, near) if receives else (near, far)
    began_s = time.perf_counter()
    src.copyto(dst)
    return (time.perf_counter() - began_s) * 1e6


def _handover_us(ranks: Ranks) -> float | None:
    """Collective: the time between a signal of one process and the end of another one's wait.

    It is None where others leave the processes too little time to measure it.
    """
    events = shared_events(ranks, 2)
    turn = [(SIGNAL, 0), (SPIN, 1)] if ranks.leads else [(SPIN, 0), (SIGNAL, 1)]
    times_us = [math.inf]
    if ranks.rank < 2:
        function = emit_events(turn * _TURNS, "turns")
        linked = vm_code({"turns": function.function}, [], event_functions(2))
        run = relax.VirtualMachine(linked, tvm.cpu())["turns"]
    for _ in range(_ROUNDS):
        ranks.least(0)
        if ranks.rank < 2:
            began_s = time.perf_counter()
            run(events.tensor)
            times_us.append((time.perf_counter() - began_s) * 1e6 / (2 * _TURNS))
    found_us = float(ranks.share_text(repr(min(times_us))))
    return found_us if found_us < _MOST_HANDOVER_US else None


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


def _crossing_us(ranks: Ranks, src: int, dst: int, size_bytes: int) -> float:
    """Time of a message and its answer of one byte, while one of the same size comes the other way.

    It is that of the end that began first, which has both messages in it, whatever the other one did.
    """
    import torch

    peer = dst if ranks.rank == src else src
    mine, others, answer, answered = (
        torch.zeros(size, dtype=torch.uint8) for size in (size_bytes, size_bytes, 1, 1)
    )
    began_s = time.perf_counter()
    _both(ranks, peer, mine, others, _MESSAGE_TAG)
    _both(ranks, peer, answer, answered, _ANSWER_TAG)
    took = torch.tensor([time.perf_counter() - began_s])
    took_there = torch.zeros_like(took)
    _both(ranks, peer, took, took_there, _MESSAGE_TAG)
    return float(max(took, took_there)) * 1e6


def _both(ranks: Ranks, peer: int, sent: torch.Tensor, received: torch.Tensor, tag: int) -> None:
    """Exchange two tensors, at once: a message is taken only when the other end receives."""
    for message in (ranks.receive(received, peer, tag), ranks.send(sent, peer, tag)):
        message.finish()


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
