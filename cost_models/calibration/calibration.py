"""What a calibration knows of a machine, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import parse_json, read_text

SCHEMA = 1
"""Version of the file's form; raised when a reader of before would misread it."""


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
    """

    machine: str
    processor: str
    date: str
    rates: Mapping[str, float]
    factor: float
    cold: ColdCalls
    spread: float
    kernels: tuple[str, ...]

    def __post_init__(self) -> None:
        numbers = (*self.rates.values(), self.factor)
        if not all(math.isfinite(number) and number > 0 for number in numbers):
            raise ValueError("expected finite rates and a factor > 0")


def write_calibration(found: Calibration, path: Path) -> None:
    """Write the file, whole or not at all."""
    document = {"schema": SCHEMA, **asdict(found)}
    write_bytes_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


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
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDatasetError(
            f"{path}: expected a machine that tvm-xengine costs calibrate wrote: {error!r}; delete the file"
            " or calibrate again"
        ) from error
