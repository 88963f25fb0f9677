"""The properties of a machine that features refer to, for a target."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from tvm.target import Target

from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.kernels.targets import core_count, cpu_features, vector_bytes

ASSUMED_CACHES_BYTES = (32 << 10, 1 << 20, 32 << 20)
"""Data caches that features count with where a machine does not say its own: those of a server
processor of about 2020. A dataset stores None there."""


@dataclass(frozen=True)
class Hardware:
    """The part of a machine that a kernel can use.

    Attributes
    ----------
    cores
        Number of threads that its kernels may run on.
    caches_bytes
        Sizes of the first, second and third level data cache seen by one core.
    """

    vector_bytes: int
    cores: int
    has_fma: bool
    caches_bytes: tuple[int, int, int]


def hardware_of(target: Target, machine: Machine) -> Hardware:
    """The part of a machine that kernels of `target` use."""
    return _hardware_of(str(target), machine)


@cache
def _hardware_of(text: str, machine: Machine) -> Hardware:
    """Found once: LLVM takes a millisecond to name the features of a processor."""
    target = Target(json.loads(text))
    first, second, third = (
        assumed if known is None else known
        for known, assumed in zip(machine.caches_bytes, ASSUMED_CACHES_BYTES, strict=True)
    )
    return Hardware(
        vector_bytes=vector_bytes(target),
        cores=max(1, min(core_count(target), machine.threads or 1)),
        has_fma="fma" in cpu_features(target),
        caches_bytes=(first, second, third),
    )
