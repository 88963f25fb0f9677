"""Measured times, and the file on disk that keeps them between runs."""

from __future__ import annotations

import atexit
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.checks.documents import typed
from tvm_xengine.cost_models.measure.caches import COLD
from tvm_xengine.cost_models.measure.machine import Machine, machine_from_json
from tvm_xengine.files.append_only import AppendOnlyFile, OldRowError
from tvm_xengine.files.atomic_write import can_write_into
from tvm_xengine.files.say_once import say_once

_logger = logging.getLogger(__name__)

_PLACE = Path("tvm_xengine") / "measurements.jsonl"

SCHEMA = 5
"""Version of the rows of kernels."""

_OLD_SCHEMAS = (1, 2, 3, 4)
"""Rows whose keys were made of the source text of the code generator, and that name no machine; rows of
positive values only, in hot caches; rows of kernels whose threads slept between the calls; rows of
kernels each of whose threads found in its own caches what it had written itself."""


@dataclass(frozen=True)
class Measurement:
    """Measured run time of a kernel on a device.

    Attributes
    ----------
    kernel, device
        Hash of the kernel and fingerprint of the device: the rest of the key.
    name
        What the kernel is called where it was first met.
    compute_us
        Run time: the median over calm rounds of the typical batch of each round, which is the
        lower quartile by the thread's clock and the shortest by the wall clock.
    lo_us, hi_us
        Smallest and largest typical batch of a calm round.
    clock
        ``"thread"`` (CPU time of the calling thread) or ``"wall"``.
    rounds_us
        For each round the mean run time of each of its batches.
    load_averages
        For each round the number of processes that wanted to run on the machine.
    sentinels_us
        For each round the run time of a kernel that is always the same, the longer of before and
        after it: which rounds were calm (`calm_rounds`). 0 where it was not timed.
    energy_uj
        What one call draws, where a board's meter says; 0 is not measured.
    machine
        `Machine.key` of what it was measured on; empty where that is unknown.
    caches
        ``"cold"``, as a step leaves them, or ``"hot"``, as the kernel itself does: part of the key.
    schema
        Version of these rows.
    """

    kernel: str
    device: str
    name: str
    compute_us: float
    lo_us: float
    hi_us: float
    clock: str
    rounds_us: tuple[tuple[float, ...], ...]
    load_averages: tuple[float, ...] = ()
    sentinels_us: tuple[float, ...] = ()
    energy_uj: float = 0.0
    machine: str = ""
    caches: str = COLD
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"{self.name}: expected schema {SCHEMA}, found {self.schema}")
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


def typical_us(batches_us: Sequence[float], clock: str) -> float:
    """The batch of a round that stands for it.

    Whatever else runs only adds to the wall clock, so its shortest batch counts; the clock of a
    thread errs in both directions, and the lower quartile counts.
    """
    return float(np.percentile(batches_us, 0 if clock == "wall" else 25))


def default_cache_path() -> Path:
    """``measurements.jsonl`` in the user's cache folder (``$XDG_CACHE_HOME/tvm_xengine``).

    Without a home it lies in a folder that is deleted when the process ends.
    """
    try:
        given = os.environ.get("XDG_CACHE_HOME")
        folder = Path(given) if given else Path.home() / ".cache"
    except RuntimeError:
        folder = _folder_of_this_process()
    return (folder if folder.is_absolute() else _folder_of_this_process()) / _PLACE


def writable_cache_folder(name: str) -> Path:
    """The folder of this name in the user's cache folder.

    Where it cannot be written it lies in a folder that is deleted when the process ends, and a warning
    says so.
    """
    folder = default_cache_path().parent / name
    if can_write_into(folder):
        return folder
    say_once(_logger, f"what is computed is not kept: cannot write {folder}")
    return _folder_of_this_process() / name


@cache
def _folder_of_this_process() -> Path:
    """A folder that is deleted when the process ends, for users without a home."""
    folder = tempfile.mkdtemp(prefix="tvm_xengine-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@dataclass(frozen=True)
class MeasurementFailure:
    """A kernel that could not be timed on a device, which is not tried again.

    Attributes
    ----------
    failed
        What happened.
    """

    kernel: str
    device: str
    name: str
    failed: str


MeasurementRow = Measurement | LinkMeasurement | MeasurementFailure | Machine


class MeasurementCache:
    """Measurements in a file that is only ever appended to, one JSON object per line.

    A line is written as soon as its measurement is known, so a killed process loses at most the
    one it was writing; a line that cannot be read is skipped. Of several lines with one key the
    last one counts.

    Parameters
    ----------
    path
        The file; it and its folder are made by the first :meth:`add`.
    must_write
        Whether a file that cannot be written is an error. Otherwise a warning says so once, and what
        is added is known to this object only.

    Attributes
    ----------
    measured_s
        How long measuring for it took so far, with compiling what is measured.
    """

    def __init__(self, path: Path, *, must_write: bool = True) -> None:
        self.measured_s = 0.0
        self._file = AppendOnlyFile(path)
        self._must_write = must_write
        self._is_lost = False
        self._kernels: dict[tuple[str, str, str], Measurement] = {}
        self._failures: dict[tuple[str, str], MeasurementFailure] = {}
        self._links: dict[str, LinkMeasurement] = {}
        self._machines: dict[str, Machine] = {}
        for row in self._file.read(_parse):
            self._remember(row)

    def find(self, kernel: str, device: str, caches: str = COLD) -> Measurement | None:
        """The measurement of a kernel on a device, None when there is none."""
        return self._kernels.get((kernel, device, caches))

    def find_failure(self, kernel: str, device: str) -> MeasurementFailure | None:
        """Why a kernel could not be measured on a device; None when it never failed."""
        return self._failures.get((kernel, device))

    def find_link(self, link: str) -> LinkMeasurement | None:
        """The measurement of a link, None when there is none."""
        return self._links.get(link)

    def kernels(self) -> tuple[Measurement, ...]:
        """Every measurement of a kernel."""
        return tuple(self._kernels.values())

    def find_machine(self, key: str) -> Machine | None:
        """The machine that a measurement names, None when it is not known."""
        return self._machines.get(key)

    def machines(self) -> tuple[Machine, ...]:
        """Every machine that something was measured on."""
        return tuple(self._machines.values())

    def add(self, row: MeasurementRow) -> None:
        """Remember a measurement here and on disk; a machine only once."""
        if isinstance(row, Machine) and row.key in self._machines:
            return
        self._remember(row)
        if self._is_lost:
            return
        try:
            self._file.append(asdict(row))
        except OSError as error:
            if self._must_write:
                raise
            self._is_lost = True
            _logger.warning("what is measured is not kept: %s: %s", self._file.path, error.strerror)

    def _remember(self, row: MeasurementRow) -> None:
        match row:
            case Measurement():
                self._kernels[row.kernel, row.device, row.caches] = row
            case MeasurementFailure():
                self._failures[row.kernel, row.device] = row
            case LinkMeasurement():
                self._links[row.link] = row
            case Machine():
                self._machines[row.key] = row


def _parse(row: dict[str, Any]) -> MeasurementRow:
    if "processor" in row:
        return machine_from_json(row)
    if row.get("schema") in _OLD_SCHEMAS:
        raise OldRowError
    if "failed" in row:
        return typed(MeasurementFailure, row)
    if "link" in row:
        return typed(LinkMeasurement, row)
    return typed(Measurement, row)
