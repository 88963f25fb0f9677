"""Features of this version for kernels that were measured before."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import refresh_features
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.labels.label_file import read_labels, write_labels
from tvm_xengine.cost_models.labels.rebuild import rebuild
from tvm_xengine.cost_models.labels.unpack import refreshed
from tvm_xengine.errors import InvalidDatasetError


def refresh(dataset: Path | None, labels: Path | None, terminal: Terminal) -> dict[str, Any]:
    """Recompute features of a dataset, or of files of labels."""
    if dataset is not None and labels is None:
        return _refresh_dataset(dataset, terminal)
    if labels is not None and dataset is None:
        return _refresh_labels(labels, terminal)
    raise UsageError(
        f"expected --dataset or --labels, got {'neither' if dataset is None else 'both'}"
    )


def _refresh_dataset(dataset: Path, terminal: Terminal) -> dict[str, Any]:
    """Recompute the features of the kernels that the dataset kept."""
    folder = DatasetFolder(dataset)
    with terminal.reporting() as reporter:
        renewed, missing = refresh_features(folder, reporter.stage("reading features"))
    if missing:
        raise InvalidDatasetError(
            f"{folder.folder}: {renewed} kernels have the features {feature_set()}; {missing} were"
            " collected without their source, or by a library that is missing here"
        )
    terminal.note(f"{renewed} kernels have the features {feature_set()}")
    return {"renewed": renewed, "feature_set": feature_set()}


def _refresh_labels(labels: Path, terminal: Terminal) -> dict[str, Any]:
    """Make the kernels of labels anew, and write their features of this version beside them."""
    files = read_labels(labels)
    with TemporaryDirectory() as scratch, terminal.reporting() as reporter:
        made = DatasetFolder(Path(scratch))
        count, _ = rebuild(files, made, reporter.stage("making kernels anew"))
        new = [refreshed(file, made) for file in files]
    for file in new:
        write_labels(file, labels)
    everything = sum(len(file.labels) for file in files)
    kept = sum(len(file.kernels) for file in new) - count
    terminal.note(f"{count} of {everything} kernels made anew; their features are {feature_set()}")
    if kept:
        terminal.note(f"{kept} labels keep their features, which are of this version")
    if left := everything - count - kept:
        terminal.note(
            f"{left} labels have no features now: this version, or a library that is missing here, makes"
            " other kernels of the same networks"
        )
    return {"renewed": count, "kept": kept, "without": left, "feature_set": feature_set()}
