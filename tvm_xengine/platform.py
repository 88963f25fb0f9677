"""The machine a training step runs on: devices, links between them, and their TOML file."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from tvm_xengine.byte_sizes import parse_bytes
from tvm_xengine.errors import InvalidPlatformError

UNLIMITED_BYTES = 2**53 - 1
"""The largest budget; beyond it a float64 no longer counts single bytes."""


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
        Kernel sources in order of preference.
    power_w
        Power drawn while the device computes; 0 when unknown.
    """

    name: str
    target: str | None
    budget_bytes: int = UNLIMITED_BYTES
    kernels: tuple[str, ...] = ("tir",)
    power_w: float = 0.0

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a device needs a non-empty name")
        if not 0 < self.budget_bytes <= UNLIMITED_BYTES:
            raise ValueError(
                f"{self.name}: budget_bytes must be in 1..2^53-1, got {self.budget_bytes}"
            )
        if not (math.isfinite(self.power_w) and self.power_w >= 0):
            raise ValueError(f"{self.name}: power_w must be finite and >= 0, got {self.power_w}")
        if not self.kernels:
            raise ValueError(f'{self.name}: kernels must name at least one source, e.g. ["tir"]')

    @property
    def can_compute(self) -> bool:
        """Whether ops can run here at all."""
        return self.target is not None


@dataclass(frozen=True)
class Link:
    """A one-way connection that copies tensors from `src` to `dst`.

    Attributes
    ----------
    latency_us, bandwidth_gb_s
        Time of a copy is ``latency_us + bytes / (1000 * bandwidth_gb_s)``. Both None: not
        known yet, to be measured before a problem is made.
    energy_nj_per_byte, energy_uj_per_copy
        Energy of a copy: a part per byte and a fixed part.
    """

    src: str
    dst: str
    latency_us: float | None = None
    bandwidth_gb_s: float | None = None
    energy_nj_per_byte: float = 0.0
    energy_uj_per_copy: float = 0.0

    def __post_init__(self) -> None:
        where = f"link {self.src} -> {self.dst}"
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

    def transfer_uj(self, size_bytes: int) -> float:
        """Energy of copying `size_bytes` over this link."""
        return self.energy_uj_per_copy + self.energy_nj_per_byte * size_bytes / 1000.0


@dataclass(frozen=True)
class Platform:
    """The devices a training step may use, and the links between them.

    Attributes
    ----------
    devices
        At least one, and at least one that computes.
    links
        At most one for each ordered pair of devices. No link: no copy.
    home
        Name of the device on which inputs, parameters and other state live between steps;
        by default the first device that computes.
    alignment_bytes
        Every tensor starts at a multiple of this and occupies a multiple of it.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    home: str = ""
    alignment_bytes: int = 64

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if not names:
            raise ValueError("a platform needs at least one device, got none")
        if len(set(names)) != len(names):
            raise ValueError(f"device names must be unique, got {names}")
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
        pairs = [(link.src, link.dst) for link in self.links]
        for src, dst in pairs:
            if src not in names or dst not in names:
                raise ValueError(f"link {src} -> {dst} names a device that is not one of {names}")
        if len(set(pairs)) != len(pairs):
            raise ValueError(f"there may be one link for each ordered pair, got {pairs}")

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each device."""
        return {device.name: d for d, device in enumerate(self.devices)}

    @cached_property
    def link_between(self) -> Mapping[tuple[str, str], Link]:
        """The link of each connected ordered pair (src, dst)."""
        return {(link.src, link.dst): link for link in self.links}

    def device(self, name: str) -> Device:
        """The device called `name`; a `ValueError` lists the names there are."""
        if name not in self.index:
            raise ValueError(f"expected one of the devices {list(self.index)}, got {name!r}")
        return self.devices[self.index[name]]

    @property
    def computing(self) -> tuple[Device, ...]:
        """The devices that have a target."""
        return tuple(device for device in self.devices if device.can_compute)

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


def read_platform(path: str | Path) -> Platform:
    """The platform described by the TOML file at `path`.

    The file holds ``[[device]]`` tables (``name``, ``budget``; ``target`` unless the device
    only stores; optional ``kernels``, ``power_w``), ``[[link]]`` tables (``src``, ``dst``;
    optional ``latency_us`` with ``bandwidth_gb_s``, ``energy_nj_per_byte``,
    ``energy_uj_per_copy``, ``both_ways``) and optional ``home`` and ``alignment_bytes``.

    Raises
    ------
    InvalidPlatformError
        If the file is missing, is not TOML, or a key is missing, unknown or out of range.
    """
    path = Path(path)
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except OSError as error:
        raise InvalidPlatformError(f"cannot read platform file {path}: {error.strerror}") from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise InvalidPlatformError(f"{path} is not valid TOML: {error}") from error
    try:
        return _platform_from_document(document)
    except (ValueError, TypeError) as error:
        raise InvalidPlatformError(f"{path}: {error}") from error


def write_platform(platform: Platform, path: str | Path) -> None:
    """Write `platform` as TOML; an existing file is replaced only when all is written."""
    document = tomlkit.document()
    document["home"] = platform.home
    document["alignment_bytes"] = platform.alignment_bytes
    devices = tomlkit.aot()
    for device in platform.devices:
        table = tomlkit.table()
        table["name"] = device.name
        if device.target is not None:
            table["target"] = device.target
        table["budget"] = device.budget_bytes
        table["kernels"] = list(device.kernels)
        table["power_w"] = device.power_w
        devices.append(table)
    document["device"] = devices
    if platform.links:
        links = tomlkit.aot()
        for link in platform.links:
            table = tomlkit.table()
            table["src"], table["dst"] = link.src, link.dst
            if link.is_measured:
                table["latency_us"], table["bandwidth_gb_s"] = link.latency_us, link.bandwidth_gb_s
            table["energy_nj_per_byte"] = link.energy_nj_per_byte
            table["energy_uj_per_copy"] = link.energy_uj_per_copy
            links.append(table)
        document["link"] = links
    write_atomically(Path(path), tomlkit.dumps(document))


def write_atomically(path: Path, text: str) -> None:
    """Write `text` under a temporary name beside `path`, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _platform_from_document(document: Mapping[str, object]) -> Platform:
    _reject_unknown_keys("the file", document, {"device", "link", "home", "alignment_bytes"})
    links: list[Link] = []
    for position, table in enumerate(_tables(document, "link")):
        links.extend(_links_from_table(f"link {position + 1}", table))
    alignment = document.get("alignment_bytes", 64)
    if not isinstance(alignment, int):
        raise ValueError(f"alignment_bytes must be an integer, got {alignment!r}")
    return Platform(
        devices=tuple(
            _device_from_table(f"device {position + 1}", table)
            for position, table in enumerate(_tables(document, "device"))
        ),
        links=tuple(links),
        home=str(document.get("home", "")),
        alignment_bytes=alignment,
    )


def _tables(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"expected [[{key}]] tables, got {tables!r}")
    return tables


def _device_from_table(where: str, table: Mapping[str, object]) -> Device:
    name = _required(where, table, "name")
    where = f"device {name}"
    _reject_unknown_keys(where, table, {"name", "target", "budget", "kernels", "power_w"})
    budget = _required(where, table, "budget")
    kernels = table.get("kernels", ["tir"])
    if not isinstance(kernels, list):
        raise ValueError(f'{where}: kernels must be a list such as ["tir"], got {kernels!r}')
    target = table.get("target")
    try:
        budget_bytes = parse_bytes(budget if isinstance(budget, int) else str(budget))
    except ValueError as error:
        raise ValueError(f"{where}: budget: {error}") from error
    return Device(
        name=str(name),
        target=None if target is None else str(target),
        budget_bytes=budget_bytes,
        kernels=tuple(str(kernel) for kernel in kernels),
        power_w=_number(where, table, "power_w", 0.0),
    )


def _links_from_table(where: str, table: Mapping[str, object]) -> list[Link]:
    src, dst = str(_required(where, table, "src")), str(_required(where, table, "dst"))
    where = f"link {src} -> {dst}"
    timing = {"latency_us", "bandwidth_gb_s"}
    energy = {"energy_nj_per_byte", "energy_uj_per_copy"}
    _reject_unknown_keys(where, table, {"src", "dst", "both_ways"} | timing | energy)
    link = Link(
        src,
        dst,
        latency_us=_number(where, table, "latency_us", 0.0) if "latency_us" in table else None,
        bandwidth_gb_s=(
            _number(where, table, "bandwidth_gb_s", 0.0) if "bandwidth_gb_s" in table else None
        ),
        energy_nj_per_byte=_number(where, table, "energy_nj_per_byte", 0.0),
        energy_uj_per_copy=_number(where, table, "energy_uj_per_copy", 0.0),
    )
    if table.get("both_ways", False):
        return [link, replace(link, src=dst, dst=src)]
    return [link]


def _required(where: str, table: Mapping[str, object], key: str) -> object:
    if key not in table:
        raise ValueError(f"{where} lacks the key {key!r}; it has {sorted(table)}")
    return table[key]


def _number(where: str, table: Mapping[str, object], key: str, default: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}: {key} must be a number, got {value!r}")
    return float(value)


def _reject_unknown_keys(where: str, table: Mapping[str, object], known: set[str]) -> None:
    if unknown := sorted(set(table) - known):
        raise ValueError(f"{where} has unknown keys {unknown}; known are {sorted(known)}")
