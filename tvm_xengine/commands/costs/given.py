"""The dataset of a command: a folder, or that of the shipped labels, which is made when it is missing."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.labels.held_out import HELD_OUT_FAMILIES, open_part
from tvm_xengine.cost_models.labels.shipped import (
    SHIPPED_LABELS,
    make_shipped,
    shipped_folder,
)
from tvm_xengine.errors import InvalidDatasetError


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
    with terminal.reporting() as reporter:
        counts = make_shipped(reporter.stage("reading labels"))
    if counts is not None:
        note_missing(*counts, terminal)
    return shipped_folder()


def note_missing(found: int, missing: int, terminal: Terminal) -> None:
    """Say how many labels have the features of this version."""
    terminal.note(f"{found} labels with their features")
    if missing:
        terminal.note(
            f"{missing} labels are left out, because their features are not {feature_set()}: this version,"
            " or a library that is missing here, makes other kernels of the same networks"
        )
