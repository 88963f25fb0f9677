"""What a calibration knows of a machine, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import parse_json, read_text

SCHEMA = 1
"""Version of the file's form; raised when a reader of before would misread it."""


@dataclass(frozen=True)
class Evidence:
    """Calibrating kernels and their times, from which the errors of others are known in part.

    Attributes
    ----------
    feature_set, names
        As of a `FeatureTable`.
    rows
        For each kernel its work, its operations, the bytes it moves, and the values of its features.
    cold_us
        The time of each, as a step leaves the caches.
    networks
        Number of the network that each was first met in.
    """

    feature_set: str
    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    cold_us: tuple[float, ...]
    networks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.rows or {len(row) for row in self.rows} != {len(self.names) + 3}:
            raise ValueError("expected as many numbers of each kernel as features")
        if not len(self.cold_us) == len(self.networks) == len(self.rows) or not all(
            0 < us < math.inf for us in self.cold_us
        ):
            raise ValueError("expected a positive time of each kernel")

    @classmethod
    def of(
        cls, table: FeatureTable, cold_us: NDArray[np.float64], networks: Iterable[int]
    ) -> Evidence:
        """From a table of features, in the precision of the labels."""
        numbers = np.column_stack((table.work, table.flops, table.moved_bytes, table.values))
        rows = tuple(tuple(float(f"{x:.7g}") for x in row) for row in numbers.tolist())
        return cls(table.feature_set, table.names, rows, tuple(cold_us.tolist()), tuple(networks))

    @cached_property
    def table(self) -> FeatureTable:
        """The features."""
        numbers = np.array(self.rows)
        work, flops, moved_bytes = numbers[:, :3].T
        return FeatureTable(self.feature_set, self.names, numbers[:, 3:], work, flops, moved_bytes)


@dataclass(frozen=True)
class Calibration:
    """A machine as its sweep found it.

    Attributes
    ----------
    machine, processor
        `Machine.key`, and LLVM's name of the processor.
    rates
        What the machine does, for people and for models: ``stream_L1_gb_s`` and so on, ``product_gflop_s``,
        ``most_gflop_s`` of any kernel, ``call_us``.
    factor
        Of all times with hot caches.
    cold
        What a call in cold caches and its bytes cost beside them.
    spread
        Four of five calibrating kernels are predicted within ``exp(spread)``.
    kernels
        Keys of the kernels that calibrated; nobody may be judged on them.
    evidence
        Those of networks, which correct predictions of kernels like them; None in files of before.
    """

    machine: str
    processor: str
    date: str
    rates: Mapping[str, float]
    factor: float
    cold: ColdCalls
    spread: float
    kernels: tuple[str, ...]
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        numbers = (*self.rates.values(), self.factor)
        if not all(math.isfinite(number) and number > 0 for number in numbers):
            raise ValueError("expected finite rates and a factor > 0")


def write_calibration(found: Calibration, path: Path) -> None:
    """Write the file, whole or not at all."""
    document = {"schema": SCHEMA, **asdict(found)}
    write_bytes_atomically(path, (json.dumps(document) + "\n").encode())


def read_calibration(path: Path) -> Calibration:
    """Read the file.

    Raises
    ------
    InvalidDatasetError
        When it cannot be read.
    """
    try:
        document: Any = parse_json(read_text(path))
        if document["schema"] != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA}, found {document['schema']}")
        return Calibration(
            machine=str(document["machine"]),
            processor=str(document["processor"]),
            date=str(document["date"]),
            rates={str(name): float(value) for name, value in document["rates"].items()},
            factor=float(document["factor"]),
            cold=ColdCalls(**{name: float(us) for name, us in document["cold"].items()}),
            spread=float(document["spread"]),
            kernels=tuple(map(str, document["kernels"])),
            evidence=_evidence(document.get("evidence")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDatasetError(
            f"{path}: expected a machine that tvm-xengine costs calibrate wrote: {error!r}; delete the file"
            " or calibrate again"
        ) from error


def _evidence(document: Any) -> Evidence | None:
    if document is None:
        return None
    return Evidence(
        str(document["feature_set"]),
        tuple(map(str, document["names"])),
        tuple(tuple(map(float, row)) for row in document["rows"]),
        tuple(map(float, document["cold_us"])),
        tuple(map(int, document["networks"])),
    )
