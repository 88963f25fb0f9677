"""Memory regions of one processor as the devices of a scheduling problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.sizes import parse_bytes

FLASH = "flash"
"""The region that holds constants: read where they are, never written by a step."""
_MACROS = ("checkpoint", "stack", "state")
"""Headers say how many bytes these take, by macros such as those of regions."""


@dataclass(frozen=True)
class Region:
    """Memory that the processor addresses directly.

    Attributes
    ----------
    name
        A C identifier in lower case, e.g. ``"sram"``.
    size_bytes
        What the step may take of it; for flash, what constants and code may take.
    bandwidth_gb_s
        Speed of access in GB/s, e.g. 0.04 for a PSRAM behind a quad SPI bus at 80 MHz; None
        when accesses cost nothing beyond the instruction.
    """

    name: str
    size_bytes: int
    bandwidth_gb_s: float | None = None

    def __post_init__(self) -> None:
        if not (self.name.isidentifier() and self.name.isascii() and self.name.islower()):
            raise InvalidPlatformError(
                f"a region's name must be a C identifier in lower case, got {self.name!r}"
            )
        if c_identifier(self.name) != self.name or self.name in _MACROS:
            raise InvalidPlatformError(
                f"no region can be called {self.name!r}, which is a word of C or a name in every package;"
                f" call it e.g. {self.name}_memory"
            )
        if self.size_bytes <= 0:
            raise InvalidPlatformError(f"region {self.name} must have more than 0 bytes")
        if self.bandwidth_gb_s is not None and self.bandwidth_gb_s <= 0:
            raise InvalidPlatformError(
                f"region {self.name}: the bandwidth must be > 0, got {self.bandwidth_gb_s}"
            )


# GB/s. PSRAM and SDRAM: 8 data lines at 80 MHz, and 16 at 100 MHz; flash is not copied.
_USUAL_BANDWIDTH_GB_S = {"psram": 0.08, "sdram": 0.2, "dram": 0.4}
_COPY_LATENCY_US = 1.0
_COPY_GB_S = 0.4
"""A call and the set-up of its loop in 100 cycles, then a word of 4 bytes per cycle, at 100 MHz."""


def parse_regions(text: str) -> tuple[Region, ...]:
    """The regions that ``"sram=192KiB,psram=4MiB@0.04"`` describes, fastest first.

    A number behind ``@`` is the bandwidth in GB/s; psram, sdram and dram have usual ones.

    Raises
    ------
    InvalidPlatformError
        If the text is malformed, a name comes twice, or there is no region to write to.
    """
    regions = []
    for part in text.split(","):
        name, equals, rest = part.strip().partition("=")
        size, at, bandwidth = rest.partition("@")
        try:
            if not equals:
                raise ValueError("expected NAME=BYTES")
            gb_s = float(bandwidth) if at else _USUAL_BANDWIDTH_GB_S.get(name)
            regions.append(Region(name, parse_bytes(size), gb_s))
        except ValueError as error:
            raise InvalidPlatformError(
                f"cannot read the region {part.strip()!r}: {error}; write e.g. sram=192KiB,psram=4MiB"
            ) from error
    names = [region.name for region in regions]
    if len(set(names)) != len(names):
        raise InvalidPlatformError(f"regions must have different names, got {names}")
    if all(name == FLASH for name in names):
        raise InvalidPlatformError(f"expected a region besides {FLASH}, e.g. sram=192KiB")
    return tuple(regions)


def regions_platform(
    regions: Sequence[Region], alignment_bytes: int, *, copies_beside: bool = False
) -> Platform:
    """The platform whose devices are `regions`, flash left out: nothing is ever written there.

    Every region computes, because the processor addresses all of them; an op has its operands in
    one region. The first one is home.

    Parameters
    ----------
    copies_beside
        Whether copies run beside computations (DMA). Then only the first region computes: two would be two
        processors side by side.
    """
    writable = [region for region in regions if region.name != FLASH]
    devices = tuple(
        Device(region.name, None if number and copies_beside else "c", region.size_bytes)
        for number, region in enumerate(writable)
    )
    links = tuple(
        Link(src.name, dst.name, _COPY_LATENCY_US, _copy_gb_s(src, dst))
        for src in writable
        for dst in writable
        if src != dst
    )
    return Platform(devices, links, alignment_bytes=alignment_bytes)


def platform_regions(platform: Platform) -> tuple[Region, ...]:
    """The regions of a platform file, each as fast as its link from the first one.

    Raises
    ------
    InvalidPlatformError
        If a name is no C identifier or a link has no figures: there is no board to measure on.
    """
    first = platform.computing[0].name
    for link in platform.links:
        if not link.is_measured:
            raise InvalidPlatformError(
                f"link {link.src} -> {link.dst}: give latency_us and bandwidth_gb_s; an export has no"
                " board to measure them on"
            )
    regions = []
    for device in platform.devices:
        to_it = platform.link_between.get((first, device.name))
        bandwidth = None if to_it is None else to_it.bandwidth_gb_s
        regions.append(Region(device.name, device.budget_bytes, bandwidth))
    return tuple(regions)


def writable_platform(
    platform: Platform, alignment_bytes: int, *, copies_beside: bool = False
) -> Platform:
    """`platform` without flash, its tensors aligned as asked; see `regions_platform`."""
    first = platform.computing[0].name
    devices = tuple(
        replace(device, target=None) if copies_beside and device.name != first else device
        for device in platform.devices
        if device.name != FLASH
    )
    links = tuple(link for link in platform.links if FLASH not in (link.src, link.dst))
    home = platform.home if platform.home != FLASH else ""
    return Platform(devices, links, home, alignment_bytes)


def copy_link(src: str, dst: str, bandwidth_gb_s: float) -> Link:
    """The usual link from a region that is read with that bandwidth."""
    return Link(src, dst, _COPY_LATENCY_US, min(bandwidth_gb_s, _COPY_GB_S))


def _copy_gb_s(src: Region, dst: Region) -> float:
    return min(region.bandwidth_gb_s or _COPY_GB_S for region in (src, dst))
