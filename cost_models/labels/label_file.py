"""Files of labels: a table of times (CSV), beside it what they are times of (JSON), and the kernels.

A label names its kernel by a hash. The features of the kernel that was measured lie beside it
(`kernel_file`); the network of the generator that it first occurs in says how it is made anew.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tvm_xengine.checks.documents import typed
from tvm_xengine.cost_models.dataset.dataset import FeatureNames, KernelRecord
from tvm_xengine.cost_models.labels.kernel_file import read_kernels, write_kernels
from tvm_xengine.cost_models.measure.machine import Machine, machine_from_json
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically

SCHEMA = 2
"""Version of the files."""

_COLUMNS = ("code", "network", "target", "source", "clock", "cold_us", "hot_us", "stages")
_HEADER = ".json"
_TABLE = ".csv"
_KERNELS = ".npz"
_NO_FEATURES = FeatureNames((), "")


@dataclass(frozen=True)
class Label:
    """The times of a kernel.

    Attributes
    ----------
    code
        Hash of the lowered kernel (`rebuild.code_of`).
    network, target
        Positions in the header's lists.
    source
        Where the kernel comes from, such as ``tir``.
    clock
        As of `Measurement`.
    cold_us, hot_us
        Typical time of each calm round, as a step leaves the caches and as the kernel does.
    stages
        What a library ran for the call on this machine, as `rebuild` writes it.
    """

    code: str
    network: int
    target: int
    source: str
    clock: str
    cold_us: tuple[float, ...]
    hot_us: tuple[float, ...]
    stages: str = ""


@dataclass(frozen=True)
class Generator:
    """What makes the kernels: the same versions make the same ones.

    Attributes
    ----------
    commit, version, tvm, libraries
        The versions.
    networks
        How many networks of a file it made, behind those of the generators before it.
    """

    commit: str
    version: str
    tvm: str
    libraries: tuple[str, ...] = ()
    networks: int = 0

    @property
    def versions(self) -> tuple[str, ...]:
        """Of packages, as ``TVM 0.27``."""
        return (f"tvm-xengine {self.version}", f"TVM {self.tvm}", *self.libraries)


@dataclass(frozen=True)
class LabelFile:
    """The labels of one machine.

    Attributes
    ----------
    generators
        In the order of the networks that they made.
    targets
        TVM targets, as JSON.
    networks
        `Variant.text` of each, in the order in which they were met.
    collected
        Days of the measurements, ``2026-11-24``.
    features
        Version and names of the features.
    kernels
        By `Label.code`, which is their key; those whose features are of another version are not in it.
    """

    machine: Machine
    generators: tuple[Generator, ...]
    targets: tuple[str, ...]
    networks: tuple[str, ...]
    collected: tuple[str, ...]
    labels: tuple[Label, ...]
    features: FeatureNames = _NO_FEATURES
    kernels: Mapping[str, KernelRecord] = field(default_factory=dict)


def write_labels(file: LabelFile, folder: Path) -> Path:
    """Write the three files of a machine; returns the path of the table."""
    name = f"{file.machine.llvm_cpu or file.machine.architecture}-{file.machine.key[:8]}"
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for label in file.labels:
        times = (" ".join(f"{us:.4g}" for us in each) for each in (label.cold_us, label.hot_us))
        writer.writerow(
            (
                label.code,
                label.network,
                label.target,
                label.source,
                label.clock,
                *times,
                label.stages,
            )
        )
    header = {
        "schema": SCHEMA,
        "machine": asdict(file.machine),
        "generators": [asdict(generator) for generator in file.generators],
        "targets": file.targets,
        "networks": file.networks,
        "collected": file.collected,
        "kernels": len(file.labels),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(folder / (name + _TABLE), rows.getvalue().encode())
    text = json.dumps(header, indent=1) + "\n"
    write_bytes_atomically(folder / (name + _HEADER), text.encode())
    kernels = [file.kernels[label.code] for label in file.labels if label.code in file.kernels]
    write_kernels(kernels, file.features, folder / (name + _KERNELS))
    return folder / (name + _TABLE)


def has_labels(folder: Path) -> bool:
    """Whether a folder has labels of any machine."""
    return any(folder.glob(f"*{_TABLE}"))


def read_labels(folder: Path) -> tuple[LabelFile, ...]:
    """The labels of every machine in a folder, in the order of the files' names.

    Raises
    ------
    InvalidDatasetError
        When there are none, or a file cannot be read.
    """
    tables = sorted(folder.glob(f"*{_TABLE}"))
    if not tables:
        raise InvalidDatasetError(
            f"{folder}: expected files of labels, found none; write them with tvm-xengine costs pack"
        )
    return tuple(map(_read, tables))


def _read(table: Path) -> LabelFile:
    try:
        header = json.loads(table.with_suffix(_HEADER).read_text())
        if header["schema"] != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA}, found {header['schema']}")
        with table.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        if len(rows) != header["kernels"]:
            raise ValueError(f"expected {header['kernels']} kernels, found {len(rows)}")
        file = LabelFile(
            machine=machine_from_json(header["machine"]),
            generators=tuple(typed(Generator, row) for row in header["generators"]),
            targets=tuple(header["targets"]),
            networks=tuple(header["networks"]),
            collected=tuple(header["collected"]),
            labels=tuple(_label(row, header) for row in rows),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidDatasetError(
            f"{table}: expected labels written by tvm-xengine costs pack: {error!r}"
        ) from error
    return _with_kernels(file, table.with_suffix(_KERNELS))


def _with_kernels(file: LabelFile, path: Path) -> LabelFile:
    """The same with its kernels, where there are any."""
    if not path.exists():
        return file
    labels = {label.code: label for label in file.labels}

    def record(fields: Mapping[str, Any]) -> KernelRecord:
        label = labels[fields["kernel"]]
        return KernelRecord(
            **fields,
            target=file.targets[label.target],
            source=label.source,
            machine=file.machine.key,
            network=file.networks[label.network],
        )

    features, kernels = read_kernels(path, record)
    return replace(file, features=features, kernels=kernels)


def _label(row: dict[str, str], header: dict[str, Any]) -> Label:
    network, target = int(row["network"]), int(row["target"])
    if not (0 <= network < len(header["networks"]) and 0 <= target < len(header["targets"])):
        raise ValueError(f"{row['code']} is of a network or a target that the header lacks")
    cold_us, hot_us = _times(row["cold_us"]), _times(row["hot_us"])
    if not (cold_us or hot_us):
        raise ValueError(f"{row['code']} has no times")
    return Label(
        *(row["code"], network, target, row["source"], row["clock"]),
        *(cold_us, hot_us, row["stages"]),
    )


def _times(text: str) -> tuple[float, ...]:
    times: Sequence[float] = [float(word) for word in text.split()]
    if not all(0 < us < 1e12 for us in times):  # false for what is no number, too
        raise ValueError(f"expected times > 0, found {text}")
    return tuple(times)
