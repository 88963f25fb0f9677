"""The dataset of the labels that ship, made once into the user's cache."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

import tvm_xengine.cost_models.labels
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.labels.label_file import read_labels
from tvm_xengine.cost_models.labels.rebuild import OnProgress
from tvm_xengine.cost_models.labels.unpack import unpack
from tvm_xengine.cost_models.measure.measurements import (
    default_cache_path,
    writable_cache_folder,
)
from tvm_xengine.files.atomic_write import write_bytes_atomically

SHIPPED_LABELS = Path(str(files(tvm_xengine.cost_models.labels))) / "data"
"""The labels that ship with the package."""

_DONE = "complete"


def shipped_folder() -> Path:
    """Where the dataset is, or will be; another one for other labels or features."""
    paths = sorted(
        path for path in SHIPPED_LABELS.iterdir() if path.suffix in (".csv", ".json", ".npz")
    )
    content = b"".join(path.read_bytes() for path in paths)
    name = hashlib.sha256(content + feature_set().encode()).hexdigest()[:16]
    made = default_cache_path().parent / "labels" / name
    return made if (made / _DONE).exists() else writable_cache_folder(f"labels/{name}")


def make_shipped(on_progress: OnProgress | None = None) -> tuple[int, int] | None:
    """Make it, in seconds; how many labels have their features, and how many have none.

    None where it was made before. With features of other packages its kernels are made anew, in minutes.
    """
    folder = shipped_folder()
    if (folder / _DONE).exists():
        return None
    counts = unpack(read_labels(SHIPPED_LABELS), DatasetFolder(folder), on_progress)
    write_bytes_atomically(folder / _DONE, b"")
    return counts
