"""Files of the kernels that labels are of: the hash, the features, and what else a dataset says of each.

A NumPy archive (``numpy.load``) beside each table of labels, a third smaller by LZMA than by what NumPy
compresses with. So a label outlives its kernel, of which later
versions generate another one, and training makes no kernels at all.
"""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.cost_models.dataset.dataset import FeatureNames, KernelRecord
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically

SCHEMA = 1
"""Version of the file."""

_DIGITS = 6
"""Significant decimal digits of a feature: what float32 holds exactly."""

_COLUMNS: Mapping[str, type] = {
    "kernel": str,
    "device": str,
    "name": str,
    "shapes": str,
    "function": str,
    "workspace_bytes": int,
    "work": float,
    "flops": float,
    "moved_bytes": float,
}
"""Fields of `KernelRecord` that the files of labels do not have."""

_UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError),
)
"""What NumPy raises for damaged archives."""


def write_kernels(records: Sequence[KernelRecord], names: FeatureNames, path: Path) -> None:
    """Write kernels whose key is `Label.code`; equal ones give equal files."""
    columns = {name: [getattr(record, name) for record in records] for name in _COLUMNS}
    shape = (len(records), len(names.feature_names))
    features = np.array([record.features for record in records], dtype=np.float32).reshape(shape)
    arrays = {
        "schema": np.array(SCHEMA),
        "feature_set": np.array(names.feature_set),
        "feature_names": np.array(names.feature_names, dtype=str),
        "features": np.ascontiguousarray(features.T),  # like numbers together compress best
        "families": np.array([" ".join(record.families) for record in records], dtype=str),
        **{name: np.array(columns[name], dtype=kind) for name, kind in _COLUMNS.items()},
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # without the time of day
            members.writestr(member, content.getvalue(), zipfile.ZIP_LZMA)
    write_bytes_atomically(path, archive.getvalue())


def read_kernels(
    path: Path, record_of: Callable[[Mapping[str, Any]], KernelRecord]
) -> tuple[FeatureNames, dict[str, KernelRecord]]:
    """The names of features, and the kernels by `Label.code`.

    Parameters
    ----------
    record_of
        Adds to the fields in the file those that the label has.

    Raises
    ------
    InvalidDatasetError
        When the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            if archive["schema"] != SCHEMA:
                raise ValueError(f"expected schema {SCHEMA}, found {archive['schema']}")
            names = tuple(archive["feature_names"].tolist())
            known = FeatureNames(names, str(archive["feature_set"]))
            columns = {name: archive[name].tolist() for name in (*_COLUMNS, "families")}
            features = archive["features"].T
        if features.shape != (len(columns["kernel"]), len(names)):
            raise ValueError(f"expected {len(names)} features, found an array {features.shape}")
        if not np.isfinite(features).all():
            raise ValueError("a feature is not a number")
        records = {}
        for row in zip(features.tolist(), *columns.values(), strict=True):
            fields = dict(zip(columns, row[1:], strict=True))
            fields["features"] = tuple(float(f"{value:.{_DIGITS}g}") for value in row[0])
            fields["families"] = tuple(fields["families"].split())
            fields["feature_set"] = known.feature_set
            records[str(fields["kernel"])] = record_of(fields)
    except _UNREADABLE as error:
        raise InvalidDatasetError(
            f"{path}: expected kernels written by tvm-xengine costs pack: {error!r}"
        ) from error
    return known, records
