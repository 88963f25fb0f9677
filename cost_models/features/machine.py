"""What of a device's hardware its kernels' speed depends on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tvm.target import Target

from tvm_xengine.kernels.targets import cpu_features, thread_count, vector_bytes

_TYPICAL_CACHES_BYTES = (32 << 10, 1 << 20, 32 << 20)


@dataclass(frozen=True)
class Machine:
    """Hardware that features refer to.

    Attributes
    ----------
    caches_bytes
        Sizes of the first, second and third level data cache seen by one core.
    """

    vector_bytes: int
    cores: int
    has_fma: bool
    caches_bytes: tuple[int, int, int]


def machine_of(target: Target) -> Machine:
    """The machine that kernels of `target` run on: this one, seen through the target."""
    return _machine_of(str(target))


@cache
def _machine_of(description: str) -> Machine:
    target = Target(json.loads(description))
    return Machine(
        vector_bytes=vector_bytes(target),
        cores=thread_count(target),
        has_fma="fma" in cpu_features(target),
        caches_bytes=data_caches_bytes(),
    )


@cache
def data_caches_bytes(
    folder: Path = Path("/sys/devices/system/cpu/cpu0/cache"),
) -> tuple[int, int, int]:
    """Sizes of the three levels of data cache, of a typical CPU where the system does not say."""
    sizes = dict(enumerate(_TYPICAL_CACHES_BYTES, start=1))
    for index in sorted(folder.glob("index*")):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in sizes:
            units = {"K": 1 << 10, "M": 1 << 20}
            sizes[level] = int(size.rstrip("KM")) * units.get(size[-1], 1)
    return (sizes[1], sizes[2], sizes[3])
