"""Measured times, and the file on disk that keeps them between runs."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measurement:
    """Measured run time of a kernel on a device.

    Attributes
    ----------
    kernel, device
        Hash of the kernel and fingerprint of the device: the key.
    name
        What the kernel is called where it was first met.
    compute_us
        Run time: the median over rounds of the typical batch of each round, which is the lower
        quartile by the thread's clock and the shortest by the wall clock.
    lo_us, hi_us
        Smallest and largest typical batch of a round.
    clock
        ``"thread"`` (CPU time of the calling thread) or ``"wall"``.
    rounds_us
        For each round the mean run time of each of its batches.
    """

    kernel: str
    device: str
    name: str
    compute_us: float
    lo_us: float
    hi_us: float
    clock: str
    rounds_us: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.compute_us) and self.compute_us > 0):
            raise ValueError(f"{self.name}: compute_us must be > 0, got {self.compute_us}")
        if not self.lo_us <= self.compute_us <= self.hi_us:
            raise ValueError(
                f"{self.name}: compute_us {self.compute_us} lies outside {self.lo_us}..{self.hi_us}"
            )


@dataclass(frozen=True)
class LinkMeasurement:
    """Measured cost of copies over a link: ``latency_us + bytes / (1000 * bandwidth_gb_s)``.

    Attributes
    ----------
    link
        Fingerprint of the link: the key.
    samples
        Pairs (bytes, microseconds) the line was fitted to.
    """

    link: str
    latency_us: float
    bandwidth_gb_s: float
    samples: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_us) and self.latency_us >= 0):
            raise ValueError(f"latency_us must be >= 0, got {self.latency_us}")
        if not (math.isfinite(self.bandwidth_gb_s) and self.bandwidth_gb_s > 0):
            raise ValueError(f"bandwidth_gb_s must be > 0, got {self.bandwidth_gb_s}")


def default_cache_path() -> Path:
    """``measurements.jsonl`` in the user's cache folder (``$XDG_CACHE_HOME/tvm_xengine``)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tvm_xengine" / "measurements.jsonl"


class MeasurementCache:
    """Measurements in a file that is only ever appended to, one JSON object per line.

    A line is written as soon as its measurement is known, so a killed process loses at most the
    one it was writing; a line that cannot be read is skipped. Of several lines with one key the
    last one counts.

    Parameters
    ----------
    path
        The file; it and its folder are made by the first :meth:`add`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kernels: dict[tuple[str, str], Measurement] = {}
        self._links: dict[str, LinkMeasurement] = {}
        self._ends_in_newline = True
        self._read()

    def find(self, kernel: str, device: str) -> Measurement | None:
        """The measurement of a kernel on a device, None when there is none."""
        return self._kernels.get((kernel, device))

    def find_link(self, link: str) -> LinkMeasurement | None:
        """The measurement of a link, None when there is none."""
        return self._links.get(link)

    def add(self, measurement: Measurement | LinkMeasurement) -> None:
        """Remember a measurement here and on disk."""
        self._remember(measurement)
        line = json.dumps(asdict(measurement)) + "\n"
        if not self._ends_in_newline:
            line = "\n" + line
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        self._ends_in_newline = True

    def _read(self) -> None:
        if not self._path.exists():
            return
        text = self._path.read_text(encoding="utf-8", errors="replace")
        self._ends_in_newline = not text or text.endswith("\n")
        for number, line in enumerate(text.splitlines(), start=1):
            if not line:
                continue
            try:
                self._remember(_parse(line))
            except (ValueError, TypeError, KeyError) as error:
                _logger.warning("%s:%d is skipped: %s", self._path, number, error)

    def _remember(self, measurement: Measurement | LinkMeasurement) -> None:
        if isinstance(measurement, Measurement):
            self._kernels[measurement.kernel, measurement.device] = measurement
        else:
            self._links[measurement.link] = measurement


def _parse(line: str) -> Measurement | LinkMeasurement:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, found {type(row).__name__}")
    if "link" in row:
        row["samples"] = tuple((int(size), float(us)) for size, us in row["samples"])
        return LinkMeasurement(**row)
    row["rounds_us"] = tuple(tuple(map(float, batches)) for batches in row["rounds_us"])
    return Measurement(**row)
