"""The machine a training step runs on: devices and the links between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tvm_xengine.checks.arguments import checked, checked_fields
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES

STREAM_TIMES = ("handover_us", "start_us")
"""Times of streams that a platform may have."""

MOST_DEVICES = 256
"""Solvers keep the cheapest route between any two devices for every tensor: chosen, so that a plan of a small
network takes half a minute."""

Stream = tuple[str, ...]
"""What runs one call after the other: a device that computes, or the two devices of a link."""

_CUDA_ALIGNMENT_BYTES = 256
"""That of CUDA's own allocations. cuBLAS refuses temporary memory with less on an H200."""


@checked_fields
@dataclass(frozen=True)
class Device:
    """One memory space with one execution stream.

    Attributes
    ----------
    name
        Unique name, e.g. ``"cpu"`` or ``"sram"``.
    target
        What kernels are compiled for, e.g. ``"llvm -mcpu=native"``; None for a device
        that only stores (host memory, SD card, flash).
    budget_bytes
        Memory that the arena of the step may occupy.
    kernels
        Kernel sources in order of preference, such as ``"tir"`` (generated code, which every
        device has) or the name of a library; ``"auto"`` is the best that this machine has.
    power_w
        Power drawn while the device computes; 0 when unknown.
    energy_nj_per_flop
        Energy of a floating-point operation, in addition to `power_w`.
    cores
        Cores of the processor on which kernels run where devices run side by side, by number; none
        are all that the process may use. How many threads a kernel has is said by the target.
    folder
        Where the file lies that holds the bytes of a device without target; by default they lie in
        memory of the host. The file has no name, and is gone with the process.
    rank
        Number of the process that holds the device, where a run has several.
    host
        Name or address of the machine whose process holds the device, or ``NAME/K``, its K-th process from
        0; empty where `rank` says it.
    """

    name: str
    target: str | None
    budget_bytes: int = UNLIMITED_BYTES
    kernels: tuple[str, ...] = ("auto",)
    power_w: float = 0.0
    energy_nj_per_flop: float = 0.0
    cores: tuple[int, ...] = ()
    folder: str | None = None
    rank: int = 0
    host: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a device needs a non-empty name")
        if not 0 < self.budget_bytes <= UNLIMITED_BYTES:
            raise ValueError(
                f"{self.name}: budget_bytes must be in 1..2^53-1, got {self.budget_bytes}"
            )
        for name in ("power_w", "energy_nj_per_flop"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{self.name}: {name} must be finite and >= 0, got {value}")
        if len(set(self.cores)) != len(self.cores) or any(core < 0 for core in self.cores):
            raise ValueError(
                f"{self.name}: cores must be different numbers >= 0, got {list(self.cores)}"
            )
        if self.folder is not None and self.can_compute:
            raise ValueError(
                f"{self.name}: a device with a folder only stores, so it has no target; got"
                f" {self.target!r}"
            )
        if self.rank < 0:
            raise ValueError(f"{self.name}: rank must be >= 0, got {self.rank}")
        if not self.kernels:
            raise ValueError(f'{self.name}: kernels must name at least one source, e.g. ["tir"]')

    @property
    def can_compute(self) -> bool:
        """Whether ops can run here at all."""
        return self.target is not None


@checked_fields
@dataclass(frozen=True)
class Link:
    """A one-way connection that copies tensors from `src` to `dst`.

    Attributes
    ----------
    src, dst
        Names of the devices that it copies from and to.
    latency_us, bandwidth_gb_s
        Time of a copy is ``latency_us + bytes / (1000 * bandwidth_gb_s)``. Both None: not
        known yet, to be measured before a problem is made.
    energy_nj_per_byte, energy_uj_per_copy
        Energy of a copy: a part per byte and a fixed part.
    engine
        The one of both devices that makes the copies between its kernels. None: something else does, at
        the same time as the kernels of both. Between two ranks, such a device copies through memory that
        both processes see; without one, copies are messages.
    """

    src: str
    dst: str
    latency_us: float | None = None
    bandwidth_gb_s: float | None = None
    energy_nj_per_byte: float = 0.0
    energy_uj_per_copy: float = 0.0
    engine: str | None = None

    def __post_init__(self) -> None:
        where = f"link {self.src} -> {self.dst}"
        if self.engine not in (None, self.src, self.dst):
            raise ValueError(
                f"{where}: engine must be one of its two devices, got {self.engine!r}; leave it out where"
                " neither makes the copies"
            )
        if self.src == self.dst:
            raise ValueError(f"{where}: a link joins two different devices")
        if (self.latency_us is None) != (self.bandwidth_gb_s is None):
            raise ValueError(
                f"{where}: give latency_us and bandwidth_gb_s together, or neither (then they"
                " are measured)"
            )
        for name in ("energy_nj_per_byte", "energy_uj_per_copy"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{where}: {name} must be finite and >= 0, got {value}")
        if self.latency_us is None or self.bandwidth_gb_s is None:
            return
        if not (math.isfinite(self.latency_us) and self.latency_us >= 0):
            raise ValueError(f"{where}: latency_us must be >= 0, got {self.latency_us}")
        if not (math.isfinite(self.bandwidth_gb_s) and self.bandwidth_gb_s > 0):
            raise ValueError(f"{where}: bandwidth_gb_s must be > 0, got {self.bandwidth_gb_s}")

    @property
    def is_measured(self) -> bool:
        """Whether the time of a copy is known."""
        return self.latency_us is not None

    def transfer_us(self, size_bytes: int) -> float:
        """Time of copying `size_bytes` over this link."""
        if self.latency_us is None or self.bandwidth_gb_s is None:
            raise ValueError(f"link {self.src} -> {self.dst} has not been measured yet")
        return self.latency_us + size_bytes / (1000.0 * self.bandwidth_gb_s)

    @property
    def latency_bytes(self) -> float:
        """A copy of so many bytes takes twice the latency."""
        if self.latency_us is None or self.bandwidth_gb_s is None:
            raise ValueError(f"link {self.src} -> {self.dst} has not been measured yet")
        return 1000.0 * self.bandwidth_gb_s * self.latency_us

    def transfer_uj(self, size_bytes: int) -> float:
        """Energy of copying `size_bytes` over this link."""
        return self.energy_uj_per_copy + self.energy_nj_per_byte * size_bytes / 1000.0


@checked_fields
@dataclass(frozen=True)
class Platform:
    """The devices a training step may use, and the links between them.

    Attributes
    ----------
    devices
        At least one, and at least one that computes. Where they name hosts and no ranks, ranks number the
        hosts as they appear; a run on several hosts finds out which one each of its processes is.
    links
        At most one for each ordered pair of devices. No link: no copy.
    home
        Name of the device on which inputs, parameters and other state live between steps;
        by default the first device that computes.
    alignment_bytes
        Every tensor starts at a multiple of this and occupies a multiple of it. With an NVIDIA GPU it
        is 256 at least, which cuBLAS asks of temporary memory.
    handover_us
        Where devices and links run side by side: the time from the end of a call in one stream to the
        begin of one in another stream that waits for it. None: not known yet, to be measured.
    start_us
        The time that the threads of such streams take to start and to end a step. None: likewise.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    home: str = ""
    alignment_bytes: int = 64
    handover_us: float | None = None
    start_us: float | None = None

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        _check_names(names)
        computing = [device.name for device in self.devices if device.can_compute]
        if not computing:
            raise ValueError(f"at least one device must have a target, none of {names} has")
        if not self.home:
            object.__setattr__(self, "home", computing[0])
        if self.home not in names:
            raise ValueError(f"home must be one of {names}, got {self.home!r}")
        alignment = self.alignment_bytes
        if alignment <= 0 or alignment & (alignment - 1):
            raise ValueError(f"alignment_bytes must be a power of two, got {alignment}")
        if any((device.target or "").startswith("cuda") for device in self.devices):
            object.__setattr__(self, "alignment_bytes", max(alignment, _CUDA_ALIGNMENT_BYTES))
        for name in STREAM_TIMES:
            time_us = getattr(self, name)
            if time_us is not None and not 0 <= time_us < math.inf:
                raise ValueError(f"{name} must be finite and >= 0, got {time_us}")
        _check_links(self.links, names, computing)
        if self.hosts:
            object.__setattr__(self, "devices", _with_a_rank_for_each_host(self.devices))
        _check_ranks({device.rank for device in self.devices})

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each device."""
        return {device.name: d for d, device in enumerate(self.devices)}

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the devices in the order in which they appear; none where ranks are numbered."""
        return tuple(dict.fromkeys(device.host for device in self.devices if device.host))

    @cached_property
    def link_between(self) -> Mapping[tuple[str, str], Link]:
        """The link of each connected ordered pair (src, dst)."""
        return {(link.src, link.dst): link for link in self.links}

    def copy_stream(self, src: str, dst: str) -> Stream:
        """The stream in which copies from `src` to `dst` run: that of the link's engine, or its own."""
        link = self.link_between.get((src, dst))
        return (src, dst) if link is None or link.engine is None else (link.engine,)

    def device(self, name: str) -> Device:
        """The device called `name`; a `ValueError` lists the names there are."""
        if name not in self.index:
            raise ValueError(f"expected one of the devices {list(self.index)}, got {name!r}")
        return self.devices[self.index[name]]

    @property
    def ranks(self) -> int:
        """Number of processes that hold the devices."""
        return 1 + max(device.rank for device in self.devices)

    def joins_ranks(self, link: Link) -> bool:
        """Whether a link leads from one process to another."""
        return self.device(link.src).rank != self.device(link.dst).rank

    def without_ranks(self, lost: Collection[int]) -> Platform:
        """The devices of the other processes, whose ranks are numbered anew.

        Raises
        ------
        ValueError
            If none of them computes.
        """
        return self.only(device.name for device in self.devices if device.rank not in lost)

    def only(self, names: Iterable[str]) -> Platform:
        """The devices called so and the links between them; ranks are numbered anew.

        Raises
        ------
        ValueError
            If none of them computes.
        """
        names = set(names)
        kept = [device for device in self.devices if device.name in names]
        ranks = sorted({device.rank for device in kept})
        return replace(
            self,
            devices=tuple(replace(device, rank=ranks.index(device.rank)) for device in kept),
            links=tuple(link for link in self.links if {link.src, link.dst} <= names),
            home=self.home if self.home in names else "",
        )

    @property
    def computing(self) -> tuple[Device, ...]:
        """The devices that have a target."""
        return tuple(device for device in self.devices if device.can_compute)

    @classmethod
    @checked
    def load(cls, path: str | Path) -> Platform:
        """The platform that a TOML file describes; see `platform_file.read_platform`."""
        from tvm_xengine.scheduling.platform_file import platform_path, read_platform

        return read_platform(platform_path(path))

    @checked
    def save(self, path: str | Path) -> None:
        """Write the TOML file that `load` reads."""
        from tvm_xengine.scheduling.platform_file import write_platform

        write_platform(self, path)

    @checked
    def with_budgets(self, budgets: Mapping[str, int]) -> Platform:
        """The same platform with other budgets for the devices that `budgets` names."""
        for name in budgets:
            self.device(name)
        return replace(
            self,
            devices=tuple(
                replace(device, budget_bytes=budgets.get(device.name, device.budget_bytes))
                for device in self.devices
            ),
        )


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise ValueError("a platform needs at least one device, got none")
    if len(names) > MOST_DEVICES:
        raise ValueError(
            f"expected at most {MOST_DEVICES} devices, got {len(names)}; describe many equal machines"
            " by one of them and a table [replicas], and plan with --simulate"
        )
    if len(set(names)) != len(names):
        raise ValueError(f"device names must be unique, got {names}")


def _check_ranks(ranks: Collection[int]) -> None:
    missing = next(rank for rank in itertools.count() if rank not in ranks)
    if missing < max(ranks):
        raise ValueError(
            f"ranks are numbered from 0 without gaps, got {sorted(ranks)}: no device is on rank"
            f" {missing}"
        )


def _check_links(links: Sequence[Link], names: Sequence[str], computing: Sequence[str]) -> None:
    pairs = [(link.src, link.dst) for link in links]
    for src, dst in pairs:
        if src not in names or dst not in names:
            raise ValueError(f"link {src} -> {dst} names a device that is not one of {names}")
    if len(set(pairs)) != len(pairs):
        raise ValueError(f"there may be one link for each ordered pair, got {pairs}")
    for link in links:
        if link.engine is not None and link.engine not in computing:
            raise ValueError(
                f"link {link.src} -> {link.dst}: engine must be a device that computes, one of"
                f" {computing}, got {link.engine!r}"
            )


def _with_a_rank_for_each_host(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices with the rank of their host; without any rank, hosts are numbered as they appear."""
    for device in devices:
        if not device.host:
            raise ValueError(
                f"device {device.name} has no host, and others have one: name the host of every device, or"
                " give all of them ranks instead"
            )
    if not any(device.rank for device in devices):
        hosts = list(dict.fromkeys(device.host for device in devices))
        devices = [replace(device, rank=hosts.index(device.host)) for device in devices]
    for one, other in itertools.combinations(devices, 2):
        if (one.host == other.host) != (one.rank == other.rank):
            raise ValueError(
                f"one process runs on each host: {one.name} is on rank {one.rank} of host {one.host}, and"
                f" {other.name} on rank {other.rank} of host {other.host}"
            )
    return tuple(devices)


def generated_only(platform: Platform) -> Platform:
    """The platform without libraries, which boards behind RPC do not have."""
    return replace(
        platform, devices=tuple(replace(device, kernels=("tir",)) for device in platform.devices)
    )
