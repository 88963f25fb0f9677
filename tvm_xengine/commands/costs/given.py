"""The dataset of a command: a folder, or that of the shipped labels, which is made when it is missing."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.labels.held_out import HELD_OUT_FAMILIES, open_part
from tvm_xengine.cost_models.labels.label_file import read_labels
from tvm_xengine.cost_models.labels.rebuild import SHIPPED_LABELS, unpack
from tvm_xengine.cost_models.measure.measurements import default_cache_path
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically

_DONE = "complete"


def learnable(dataset: Path | None, terminal: Terminal) -> Dataset:
    """The kernels that a model may learn from and be chosen by."""
    data = loaded(dataset, terminal)
    found = open_part(data)
    if not len(found):
        raise InvalidDatasetError(
            f"{dataset or SHIPPED_LABELS}: expected kernels of families that are not held out"
            f" ({', '.join(sorted(HELD_OUT_FAMILIES))} are), found none"
        )
    if len(found) < len(data):
        terminal.note(
            f"{len(data) - len(found)} of {len(data)} kernels are of locked families and stay out"
            " (tvm-xengine costs judge)"
        )
    return found


def loaded(dataset: Path | None, terminal: Terminal) -> Dataset:
    """All kernels, those of held-out families included."""
    return DatasetFolder(_shipped(terminal) if dataset is None else dataset).load()


def _shipped(terminal: Terminal) -> Path:
    """The dataset folder of the shipped labels in the user's cache."""
    files = read_labels(SHIPPED_LABELS)
    paths = sorted(path for path in SHIPPED_LABELS.iterdir() if path.suffix in (".csv", ".json"))
    content = b"".join(path.read_bytes() for path in paths)
    name = hashlib.sha256(content + feature_set().encode()).hexdigest()[:16]
    folder = default_cache_path().parent / "labels" / name
    if not (folder / _DONE).exists():
        with terminal.reporting() as reporter:
            found, missing = unpack(
                files, DatasetFolder(folder), reporter.stage("making kernels anew")
            )
        note_missing(found, missing, terminal)
        write_bytes_atomically(folder / _DONE, b"")
    return folder


def note_missing(found: int, missing: int, terminal: Terminal) -> None:
    """Say how many labels have their kernel."""
    terminal.note(f"{found} kernels made anew")
    if missing:
        terminal.note(
            f"{missing} labels have no kernel: this version, or a library that is missing here, makes"
            " others of the same networks; the header of the labels names the commit that makes them"
        )
