"""Checkpoints: one safetensors file with the state, and with the position of the run as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tvm_xengine.checks.documents import is_of_schema, typed
from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import parse_json
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.state.model_state import unlike
from tvm_xengine.state.state_file import most_state_bytes

SCHEMA = "tvm_xengine.checkpoint/1"
"""Version of the header, raised when a field is added or changes its meaning."""
_METADATA = "tvm_xengine"


@dataclass(frozen=True)
class Position:
    """The position of a run in its data.

    Attributes
    ----------
    steps_taken
        Training steps so far.
    lr
        Learning rate before a schedule changes it.
    epoch, batch
        The next batch of the next step.
    random
        State of the generators that order the data, as the loop wrote it.
    """

    steps_taken: int
    lr: float
    epoch: int = 0
    batch: int = 0
    random: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("steps_taken", "epoch", "batch"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(f"expected {name} to be an integer, at least 0, found {value!r}")
        if not isinstance(self.lr, int | float) or not math.isfinite(self.lr):
            raise ValueError(f"expected lr to be a finite number, found {self.lr!r}")


class Resumable(Protocol):
    """A step whose run can go on from a file.

    Attributes
    ----------
    steps_taken
        Training steps so far.
    lr
        Learning rate before a schedule changes it.
    """

    steps_taken: int
    lr: float

    @property
    def writes_files(self) -> bool:
        """Whether this is the process that does, of several on a host."""

    def saved_state(self) -> dict[str, Array]:
        """Copies of parameters, buffers and optimizer state by name."""

    def restore(self, arrays: Mapping[str, Array], steps_taken: int) -> None:
        """Go on from saved state after so many steps."""


def save_step(step: Resumable, path: Path, position: Position | None = None) -> None:
    """Write a checkpoint, complete or not at all; of several processes on a host the first one does."""
    from safetensors.numpy import save

    position = position or Position(step.steps_taken, step.lr)
    header = {"schema": SCHEMA, **asdict(position)}
    tensors = {name: _compact(array) for name, array in step.saved_state().items()}
    if not step.writes_files:
        return
    write_bytes_atomically(path, save(tensors, {_METADATA: json.dumps(header)}))


def load_step(step: Resumable, path: Path) -> Position:
    """Load the state in a checkpoint; returns the position of its run.

    Raises
    ------
    InvalidStateError
        If it cannot be read, or is of another model or optimizer; the step is unchanged then.
    """
    expected = step.saved_state()
    tensors, position = read_checkpoint(path, most_state_bytes(expected.values()))
    missing = sorted(set(expected) - set(tensors))
    unknown = sorted(set(tensors) - set(expected))
    if missing or unknown:
        raise InvalidStateError(
            f"{path} is of another model or optimizer, or of one that trains other tensors:"
            f" {unlike(missing, unknown)}"
        )
    for name, array in expected.items():
        if tensors[name].shape != array.shape:
            raise InvalidStateError(
                f"{path}: {name} has shape {tensors[name].shape}, the step's has {array.shape}"
            )
    step.restore(tensors, position.steps_taken)
    step.lr = position.lr
    return position


def read_checkpoint(path: Path, most_bytes: int | None = None) -> tuple[dict[str, Array], Position]:
    """The tensors of a checkpoint by name, and the position of its run.

    Parameters
    ----------
    most_bytes
        A larger file is not read; None stands for this machine's memory.

    Raises
    ------
    InvalidStateError
        If it is no checkpoint.
    """
    from safetensors import SafetensorError

    from tvm_xengine.state.safetensors_file import check_header, decoded, metadata_of

    try:
        require_regular_file(path, most_bytes)
        check_header(path)
        content = path.read_bytes()
        tensors = decoded(content)
        header = parse_json(metadata_of(content).get(_METADATA, "null"))
    except FileNotFoundError as error:
        raise InvalidStateError(f"there is no checkpoint {path}") from error
    except OSError as error:
        raise InvalidStateError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise InvalidStateError(f"{path} is no checkpoint: {error}") from error
    if not is_of_schema(header, SCHEMA):
        raise InvalidStateError(f"{path} is no checkpoint of schema {SCHEMA}")
    del header["schema"]
    try:
        return tensors, typed(Position, header)
    except KeyError as error:
        raise InvalidStateError(f"{path} is damaged: it lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidStateError(f"{path} is damaged: {error}") from error


def _compact(array: Array) -> Array:
    return array if array.flags["C_CONTIGUOUS"] else array.copy()
