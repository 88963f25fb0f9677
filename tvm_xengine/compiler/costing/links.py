"""Measured links of a platform."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

import numpy as np
import tvm

from tvm_xengine.cluster.agreement import check_agreement
from tvm_xengine.cluster.hosts import with_ranks_of_hosts
from tvm_xengine.cluster.links import (
    check_links_are_known,
    with_engines,
    with_links_of_ranks,
)
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.compiler.costing.handover import handover_us, start_us
from tvm_xengine.compiler.costing.host_copies import HostLink, measure_host_link
from tvm_xengine.cost_models.measure.measure_link import Copy, measure_link
from tvm_xengine.cost_models.measure.measurements import LinkMeasurement, MeasurementCache
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.file_memory import (
    READ,
    WRITE,
    FileMemory,
    compiled_file_functions,
    storage_folder,
)
from tvm_xengine.runtime.storage import PINNED, Arena, is_for_cuda, runtime_device
from tvm_xengine.runtime.stream_threads import free_cores
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.sizes import round_up


def devices_of_run(platform: Platform, cache: MeasurementCache) -> tuple[Platform, Ranks | None]:
    """The platform with all links measured, and the processes that hold its devices.

    Raises
    ------
    InvalidPlatformError
        If the run has another number of processes than the platform, these have other packages or
        platforms than one another or run on other hosts, or a link cannot be measured.
    """
    ranks = Ranks.join(platform)
    if ranks is None:
        check_links_are_known(platform)
        return with_measured_links(platform, cache), None
    check_agreement(ranks, platform)
    platform = with_ranks_of_hosts(platform, ranks)
    platform = with_engines(platform, ranks)
    return with_links_of_ranks(platform, ranks, partial(with_measured_links, cache=cache)), ranks


def with_measured_links(platform: Platform, cache: MeasurementCache) -> Platform:
    """The platform with latency, bandwidth and engine of every link, measured where they are not given.

    A copy between memories of the processor takes a core. Where the devices leave none free, a thread of
    the link would take turns with their kernels, so one of both devices makes the copies.

    Raises
    ------
    InvalidPlatformError
        If a link joins a file and something else than memory of the processor.
    """
    links = []
    for link in platform.links:
        src, dst = (platform.device(name) for name in (link.src, link.dst))
        _check_file_link(src, dst)
        if not link.is_measured:
            engine = link.engine or (None if free_cores(platform) else _engine(platform, src, dst))
            measured = _measured(platform, src, dst, engine, cache)
            link = replace(
                link,
                latency_us=measured.latency_us,
                bandwidth_gb_s=measured.bandwidth_gb_s,
                engine=engine,
            )
        links.append(link)
    linked = replace(platform, links=tuple(links))
    return _with_times_of_streams(linked, cache) if _can_time_streams(platform) else linked


def _measured(
    platform: Platform, src: Device, dst: Device, engine: str | None, cache: MeasurementCache
) -> LinkMeasurement:
    if _are_on_processor(src, dst):
        copier = free_cores(platform) if engine is None else platform.device(engine).cores
        return measure_host_link(HostLink(src.cores, dst.cores, copier), cache)
    copy = partial(_copy, src, dst, platform.alignment_bytes)
    source, target = (_memory(d, platform.alignment_bytes) for d in (src, dst))
    return measure_link(source, target, copy, cache)


def _engine(platform: Platform, src: Device, dst: Device) -> str | None:
    """Which of both makes copies on its cores: not the home device, where it can be the other one."""
    if not _are_on_processor(src, dst):
        return None  # the drive, or a card, moves the bytes
    computing = [device.name for device in (src, dst) if device.can_compute]
    others = [name for name in computing if name != platform.home]
    return next(iter([*others, *computing]), None)


def _are_on_processor(*devices: Device) -> bool:
    return all(device.folder is None and _is_on_processor(device) for device in devices)


def _is_on_processor(device: Device) -> bool:
    kind = runtime_device(device.target).dlpack_device_type()
    return bool(kind == tvm.cpu().dlpack_device_type())


def _can_time_streams(platform: Platform) -> bool:
    """Whether streams run side by side here, where a link is measured."""
    if all(link.is_measured for link in platform.links) or not can_overlap():
        return False
    if not any(map(_is_on_processor, platform.computing)):
        return False  # streams of a GPU wait for each other by themselves
    return not any(
        {*d.cores} - os.sched_getaffinity(0) for d in platform.devices
    )  # of another machine


def _with_times_of_streams(platform: Platform, cache: MeasurementCache) -> Platform:
    """The platform with the times of a handover and of a start, measured where they are not given."""
    first, *others = platform.computing
    cores = (first.cores, others[0].cores if others else ())
    if platform.handover_us is None:
        platform = replace(platform, handover_us=handover_us(cache, cores))
    if platform.start_us is None:
        platform = replace(platform, start_us=start_us(cache, cores))
    return platform


def _check_file_link(src: Device, dst: Device) -> None:
    for stored, other in ((src, dst), (dst, src)):
        if stored.folder is None:
            continue
        if other.folder is not None or not _is_on_processor(other):
            raise InvalidPlatformError(
                f"link {src.name} -> {dst.name}: {stored.name} is a file, which is read and written"
                " from memory of the processor only; go over a device that is such memory"
            )


def _memory(device: Device, alignment_bytes: int) -> str:
    """The name of a kind of memory on this machine."""
    if device.folder is None:
        return str(runtime_device(device.target))
    probe = FileMemory(2 * alignment_bytes, device.folder, alignment_bytes=alignment_bytes)
    blocks = "" if probe.block_bytes == 1 else f", directly in blocks of {alignment_bytes} bytes"
    return f"file in {storage_folder(device.folder)}{blocks}"


def _copy(src: Device, dst: Device, alignment_bytes: int, size_bytes: int) -> Copy:
    """Something that copies so many bytes between the memories of two devices."""
    zeros = np.zeros(size_bytes, "uint8")
    if src.folder is None and dst.folder is None:
        devices = [runtime_device(d.target) for d in (src, dst)]
        gpus = [device for device in devices if is_for_cuda(device)]
        memories = [PINNED if gpus and device == tvm.cpu(0) else device for device in devices]
        source, target = (tvm.runtime.tensor(zeros, memory) for memory in memories)

        def copy() -> None:
            source.copyto(target)
            for gpu in gpus[:1]:
                gpu.sync()

        return Copy(copy)
    folder = src.folder or dst.folder
    function = compiled_file_functions()[READ if src.folder else WRITE]
    memory, stored = (
        Arena(
            round_up(size_bytes, alignment_bytes),
            tvm.cpu(),
            alignment_bytes=alignment_bytes,
            folder=where,
        )
        for where in (None, folder)
    )
    stored.poison()  # what was never written is not read from the disk
    piece = memory.view(ArenaView("", 0, (round_up(size_bytes, stored.block_bytes),), "uint8"))

    def move() -> None:
        function(piece, stored.file, 0)

    return Copy(move)
