"""A file that describes many equal machines: a platform, how many there are, and the network between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tvm_xengine.checks.documents import reject_unknown_keys, typed_value
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import platform_from_document, read_toml

_KEYS = ("count", "latency_us", "bandwidth_gb_s")


@dataclass(frozen=True)
class ReplicaGroup:
    """Equal machines, each of which trains on an equal share of the batch.

    Attributes
    ----------
    machine
        One of them.
    count
        How many there are.
    latency_us, bandwidth_gb_s
        Of the network, for each machine and direction.
    """

    machine: Platform
    count: int
    latency_us: float
    bandwidth_gb_s: float

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, got {self.count}")
        if not 0 <= self.latency_us < math.inf:
            raise ValueError(f"latency_us must be finite and >= 0, got {self.latency_us}")
        if not 0 < self.bandwidth_gb_s < math.inf:
            raise ValueError(f"bandwidth_gb_s must be finite and > 0, got {self.bandwidth_gb_s}")

    def all_reduce_us(self, size_bytes: int) -> float:
        """Time in which all machines add a tensor, along a ring: each sends 2 (N - 1) pieces of 1/N of it.

        No way to add takes less of the bandwidth (Patarasuk and Yuan, 2009).
        """
        return self._rounds_us(2 * (self.count - 1), size_bytes)

    def all_gather_us(self, size_bytes: int) -> float:
        """Time in which all machines get what each has a piece of; `size_bytes` is all of it."""
        return self._rounds_us(self.count - 1, size_bytes)

    def _rounds_us(self, rounds: int, size_bytes: int) -> float:
        sent_us = size_bytes / self.count / (1000 * self.bandwidth_gb_s)
        return rounds * (self.latency_us + sent_us)


def read_replica_group(path: str | Path) -> ReplicaGroup:
    """The machines that a platform file with a table ``[replicas]`` describes.

    Raises
    ------
    InvalidPlatformError
        If the file is no platform file, its table is missing or wrong, or a link has no times.
    """
    path = Path(path)
    document = dict(read_toml(path))
    try:
        table = document.pop("replicas", None)
        if not isinstance(table, dict):
            raise ValueError(f"expected a table [replicas] with {', '.join(_KEYS)}")
        reject_unknown_keys("replicas", table, _KEYS)
        machine = platform_from_document(document)
        if missing := next((link for link in machine.links if not link.is_measured), None):
            raise ValueError(
                f"link {missing.src} -> {missing.dst}: a simulation measures nothing, so give latency_us"
                " and bandwidth_gb_s"
            )
        return ReplicaGroup(
            machine,
            typed_value(int, table["count"]),
            float(typed_value(float, table["latency_us"])),
            float(typed_value(float, table["bandwidth_gb_s"])),
        )
    except KeyError as error:
        raise InvalidPlatformError(f"{path}: replicas lacks {error}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidPlatformError(f"{path}: {error}") from error
