"""Datasets of kernels with their features and measured times.

A dataset is a folder of two append-only files: ``kernels.jsonl`` with what kernels are, and
``measurements.jsonl`` (`MeasurementCache`) with what was measured.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.checks.documents import typed
from tvm_xengine.cost_models.features.added import version_of
from tvm_xengine.cost_models.features.table import FEATURE_SET, FeatureTable
from tvm_xengine.cost_models.measure.caches import HOT
from tvm_xengine.cost_models.measure.measurements import (
    Measurement,
    MeasurementCache,
    typical_us,
)
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.append_only import AppendOnlyFile
from tvm_xengine.files.read_text import parse_json

_logger = logging.getLogger(__name__)

SCHEMA = 2
"""Version of a row, raised when a field is added or changes its meaning."""

_WITHOUT_MACHINE = (1,)
"""Versions that do not say which machine features and times are of."""

RANDOM = "random"
"""The family of random networks."""

TIR = "tir"
"""The source of generated kernels."""


@dataclass(frozen=True)
class KernelRecord:
    """A kernel on a device, with its features.

    Attributes
    ----------
    kernel, device
        Hash of the code and fingerprint of the device: the key.
    machine
        `Machine.key` of what its features, and its measurement, are of.
    function
        Hash of what is computed, the same on every device; empty is the same as `kernel`.
    families
        Network families it occurs in; a model that is tested on a family must not have learned
        from any kernel that occurs there.
    shapes
        Shapes and element types of inputs and outputs, for people.
    source
        `TIR`, or the library that computes it.
    network
        `Variant.text` of the network that it was first met in; empty where that is unknown.
    """

    kernel: str
    device: str
    target: str
    name: str
    families: tuple[str, ...]
    shapes: str
    feature_set: str
    features: tuple[float, ...]
    work: float
    flops: float
    moved_bytes: float
    workspace_bytes: int
    source: str = TIR
    function: str = ""
    machine: str = ""
    network: str = ""
    schema: int = SCHEMA

    @property
    def computes(self) -> str:
        """What kernels share that compute the same on whatever device."""
        return self.function or self.kernel


@dataclass(frozen=True)
class FeatureNames:
    """What the numbers of a feature set are called."""

    feature_names: tuple[str, ...]
    feature_set: str


@dataclass(frozen=True)
class Dataset:
    """Measured kernels as arrays, one row each.

    Attributes
    ----------
    time_us, noise_ratio
        Label, and how far its rounds lie apart, relative to it.
    kernels
        What each computes (`KernelRecord.computes`).
    devices
        Kernels of a library count as those of a device of its own.
    rounds_us
        Typical time of each round of each row.
    energy_uj
        Of one call; 0 where it was not measured.
    machines
        `KernelRecord.machine` of each row; empty where all are of one.
    processors
        LLVM's name of the processor that each row was measured on; empty where that is unknown.
    hot_us
        Times of kernels called again and again; not a number where that was not measured.
    """

    table: FeatureTable
    time_us: NDArray[np.float64]
    noise_ratio: NDArray[np.float64]
    kernels: tuple[str, ...]
    names: tuple[str, ...]
    devices: tuple[str, ...]
    targets: tuple[str, ...]
    families: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    rounds_us: tuple[tuple[float, ...], ...]
    workspace_bytes: NDArray[np.float64]
    energy_uj: NDArray[np.float64]
    machines: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    hot_us: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.hot_us):
            object.__setattr__(self, "hot_us", np.full(len(self), np.nan))

    def __len__(self) -> int:
        return len(self.time_us)

    def take(self, rows: Iterable[int] | NDArray[np.int_]) -> Dataset:
        """These rows only."""
        at = np.asarray(list(rows), dtype=int)
        return Dataset(
            table=self.table.take(at),
            time_us=self.time_us[at],
            noise_ratio=self.noise_ratio[at],
            kernels=tuple(self.kernels[i] for i in at),
            names=tuple(self.names[i] for i in at),
            devices=tuple(self.devices[i] for i in at),
            targets=tuple(self.targets[i] for i in at),
            families=tuple(self.families[i] for i in at),
            sources=tuple(self.sources[i] for i in at),
            rounds_us=tuple(self.rounds_us[i] for i in at),
            workspace_bytes=self.workspace_bytes[at],
            energy_uj=self.energy_uj[at],
            machines=tuple(self.machines[i] for i in at) if self.machines else (),
            processors=tuple(self.processors[i] for i in at) if self.processors else (),
            hot_us=self.hot_us[at],
        )

    def all_families(self) -> tuple[str, ...]:
        """Every family, sorted."""
        return tuple(sorted({family for families in self.families for family in families}))


class DatasetFolder:
    """A dataset on disk that grows; made by the first kernel that is added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.measurements = MeasurementCache(folder / "measurements.jsonl")
        self._file = AppendOnlyFile(folder / "kernels.jsonl")
        self._records: dict[tuple[str, str], KernelRecord] = {}
        self._features = FeatureNames((), FEATURE_SET)
        try:
            for row in self._file.read(_parse):
                self._remember(row)
        except InvalidDatasetError as error:
            raise InvalidDatasetError(f"{folder}: {error}") from error

    def __len__(self) -> int:
        return len(self._records)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the newest features are called."""
        return self._features.feature_names

    @property
    def feature_set(self) -> str:
        """The newest features; rows with others are left out."""
        return self._features.feature_set

    def find(self, kernel: str, device: str) -> KernelRecord | None:
        """What is known of a kernel on a device."""
        return self._records.get((kernel, device))

    def records(self) -> tuple[KernelRecord, ...]:
        """Every kernel, measured or not."""
        return tuple(self._records.values())

    def add(self, record: KernelRecord, feature_names: tuple[str, ...]) -> None:
        """Remember a kernel here and on disk, its new features, or the families it was met in."""
        known = self.find(record.kernel, record.device)
        if known is not None:
            families = tuple(sorted({*known.families, *record.families}))
            if families == known.families and record.feature_set == known.feature_set:
                return
            record = replace(record, families=families, network=known.network or record.network)
        if (features := FeatureNames(feature_names, record.feature_set)) != self._features:
            self._append(features)
        self._append(record)

    def load(self) -> Dataset:
        """The kernels that are measured.

        Those whose features were not read again with the others are left out, and said so.

        Raises
        ------
        InvalidDatasetError
            When there are none, or all have features of another version.
        """
        found = self.measured()
        current = [row for row in found if row[0].feature_set == self.feature_set]
        if 0 < len(current) < len(found):
            _logger.warning(
                "%s: %d of %d kernels are left out, because their features are not of %s; tvm-xengine"
                " costs refresh reads them again where it can",
                *(self.folder, len(found) - len(current), len(found), self.feature_set),
            )
            found = current
        if not found:
            raise InvalidDatasetError(
                f"{self.folder}: expected measured kernels, found none; collect some with"
                " tvm-xengine costs collect"
            )
        return replace(
            make_dataset(found, self.feature_names),
            hot_us=self._hot_us(found),
            processors=self._processors(found),
        )

    def measured(self) -> list[tuple[KernelRecord, Measurement]]:
        """The kernels that have a measurement, with it."""
        return [
            (record, measured)
            for record in self._records.values()
            if (measured := self.measurements.find(record.kernel, record.device)) is not None
        ]

    def _processors(self, rows: Sequence[tuple[KernelRecord, Measurement]]) -> tuple[str, ...]:
        machines = [self.measurements.find_machine(record.machine) for record, _ in rows]
        names = tuple(machine.llvm_cpu for machine in machines if machine is not None)
        return names if len(names) == len(rows) and all(names) else ()

    def _hot_us(self, rows: Sequence[tuple[KernelRecord, Measurement]]) -> NDArray[np.float64]:
        hot = (self.measurements.find(record.kernel, record.device, HOT) for record, _ in rows)
        return np.array([math.nan if m is None else m.compute_us for m in hot])

    def _append(self, row: KernelRecord | FeatureNames) -> None:
        self._remember(row)
        self._file.append(asdict(row))

    def _remember(self, row: KernelRecord | FeatureNames) -> None:
        if isinstance(row, FeatureNames):
            self._features = row
        else:
            self._records[row.kernel, row.device] = row


def make_dataset(
    rows: Sequence[tuple[KernelRecord, Measurement]], names: tuple[str, ...]
) -> Dataset:
    """Arrays of records with their measurements.

    A kernel that two families share on different devices belongs to both on each, so that holding
    out a family leaves none of its kernels behind.

    Raises
    ------
    InvalidDatasetError
        When features are of another version, or a number is not finite.
    """
    records = [record for record, _ in rows]
    table = _table(records, names)
    return Dataset(
        table=table,
        time_us=np.array([m.compute_us for _, m in rows]),
        noise_ratio=np.array([(m.hi_us - m.lo_us) / (2 * m.compute_us) for _, m in rows]),
        kernels=tuple(record.computes for record in records),
        names=tuple(record.name for record in records),
        devices=tuple(
            record.device if record.source == TIR else f"{record.device} {record.source}"
            for record in records
        ),
        targets=tuple(record.target for record in records),
        families=_families(records),
        sources=tuple(record.source for record in records),
        rounds_us=tuple(
            tuple(typical_us(batches, m.clock) for batches in m.rounds_us) for _, m in rows
        ),
        workspace_bytes=np.array([record.workspace_bytes for record in records], dtype=np.float64),
        energy_uj=np.array([m.energy_uj for _, m in rows]),
        machines=tuple(record.machine for record in records),
    )


def _table(records: Sequence[KernelRecord], names: tuple[str, ...]) -> FeatureTable:
    features = records[0].feature_set if records else FEATURE_SET
    features = features if version_of(features) == FEATURE_SET else FEATURE_SET
    for record in records:
        if record.feature_set != features or len(record.features) != len(names):
            raise InvalidDatasetError(
                f"{record.name}: expected {len(names)} features of {features}, found"
                f" {len(record.features)} of {record.feature_set}; read them again with tvm-xengine"
                " costs refresh, or collect the dataset again"
            )
        if not all(map(math.isfinite, (*record.features, record.work))):
            raise InvalidDatasetError(f"{record.name}: a feature is not a number")
    return FeatureTable(
        feature_set=features,
        names=names,
        values=np.array([record.features for record in records], dtype=np.float64),
        work=np.array([record.work for record in records]),
        flops=np.array([record.flops for record in records]),
        moved_bytes=np.array([record.moved_bytes for record in records]),
    )


def _families(records: Sequence[KernelRecord]) -> tuple[tuple[str, ...], ...]:
    """For each record every family that its kernel was met in, on whatever device."""
    found: dict[str, set[str]] = {}
    for record in records:
        found.setdefault(record.computes, set()).update(record.families)
    return tuple(tuple(sorted(found[record.computes])) for record in records)


def _parse(row: Mapping[str, Any]) -> KernelRecord | FeatureNames:
    if "feature_names" in row:
        return typed(FeatureNames, row)
    if row.get("schema") in _WITHOUT_MACHINE:
        raise InvalidDatasetError(
            "expected a dataset whose kernels say on which machine they were measured, found one of an"
            " earlier version; collect it again with tvm-xengine costs collect"
        )
    if row.get("schema") != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, found {row.get('schema')}")
    record = typed(KernelRecord, row)
    if not isinstance(parse_json(record.target), dict):
        raise ValueError(f"expected a target as JSON, found {record.target!r}")
    return record
