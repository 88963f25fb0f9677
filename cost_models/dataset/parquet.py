"""A dataset as one Parquet file, for tools that read tables (pandas, Polars, DuckDB, Spark)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.cost_models.dataset.dataset import (
    DatasetFolder,
    KernelRecord,
    make_dataset,
)
from tvm_xengine.cost_models.measure.machine import machine_from_json
from tvm_xengine.cost_models.measure.measurements import Measurement
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically

if TYPE_CHECKING:
    import pyarrow

_FEATURE = "feature."
_LAYOUT = b"tvm_xengine.dataset"
_LAYOUT_VERSION = "2"
_MACHINES = b"tvm_xengine.machines"

_RECORD_FIELDS = tuple(
    field.name for field in dataclasses.fields(KernelRecord) if field.name != "features"
)
_MEASUREMENT_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(Measurement)
    if field.name not in ("kernel", "device", "name", "machine", "schema")
)


def export_parquet(folder: DatasetFolder, path: Path) -> int:
    """Write the measured kernels, one row each with every raw batch; returns how many.

    The columns are those of `KernelRecord` and `Measurement`, and one ``feature.<name>`` for each
    feature; the machines are in its metadata. What could not be measured, lowered sources and links
    stay behind.

    Raises
    ------
    InvalidDatasetError
        When there is nothing to write, a kernel has other features, or pyarrow is missing.
    """
    arrow = _pyarrow()
    names = folder.feature_names
    rows = [pair for pair in folder.measured() if pair[0].feature_set == folder.feature_set]
    if not rows:
        raise InvalidDatasetError(
            f"{folder.folder}: expected measured kernels with features {folder.feature_set}, found none"
        )
    make_dataset(rows, names)  # refuses what could not be read back
    columns: dict[str, list[Any]] = {
        name: [getattr(record, name) for record, _ in rows] for name in _RECORD_FIELDS
    }
    columns |= {name: [getattr(m, name) for _, m in rows] for name in _MEASUREMENT_FIELDS}
    for number, name in enumerate(names):
        columns[_FEATURE + name] = [record.features[number] for record, _ in rows]
    used = {record.machine for record, _ in rows}
    machines = [dataclasses.asdict(m) for m in folder.measurements.machines() if m.key in used]
    metadata = {_LAYOUT: _LAYOUT_VERSION.encode(), _MACHINES: json.dumps(machines).encode()}
    table = arrow.table(columns).replace_schema_metadata(metadata)
    sink = arrow.BufferOutputStream()
    _parquet().write_table(table, sink, compression="zstd")
    write_bytes_atomically(path, sink.getvalue().to_pybytes())
    return len(rows)


def import_parquet(path: Path, folder: DatasetFolder) -> int:
    """Add the kernels of a Parquet file to a dataset; returns how many rows the file has.

    What the dataset knows already keeps its measurement.

    Raises
    ------
    InvalidDatasetError
        When the file was not written by `export_parquet`, or pyarrow is missing.
    """
    table = _read(path)
    names = tuple(
        name.removeprefix(_FEATURE) for name in table.column_names if name.startswith(_FEATURE)
    )
    try:
        for document in json.loads((table.schema.metadata or {})[_MACHINES]):
            folder.measurements.add(machine_from_json(document))
        for row in table.to_pylist():
            record, measured = _parse(row, names)
            folder.add(record, names)
            if folder.measurements.find(record.kernel, record.device) is None:
                folder.measurements.add(measured)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidDatasetError(f"{path}: a row cannot be read: {error}") from error
    return int(table.num_rows)


def _read(path: Path) -> pyarrow.Table:
    arrow = _pyarrow()
    try:
        require_regular_file(path)
        table = _parquet().read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise InvalidDatasetError(f"{path}: expected a Parquet file: {error}") from error
    found = (table.schema.metadata or {}).get(_LAYOUT, b"").decode()
    if found != _LAYOUT_VERSION:
        raise InvalidDatasetError(
            f"{path}: expected a dataset of layout {_LAYOUT_VERSION}, written by tvm-xengine costs"
            f" export, found {found or 'another table'}"
        )
    return table


def _parse(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[KernelRecord, Measurement]:
    record = {name: row[name] for name in _RECORD_FIELDS}
    record["families"] = tuple(record["families"])
    record["features"] = tuple(float(row[_FEATURE + name]) for name in names)
    measured = {
        name: row[name] for name in (*_MEASUREMENT_FIELDS, "kernel", "device", "name", "machine")
    }
    measured["rounds_us"] = tuple(tuple(map(float, batches)) for batches in measured["rounds_us"])
    for name in ("load_averages", "sentinels_us"):
        measured[name] = tuple(map(float, measured[name]))
    return KernelRecord(**record), Measurement(**measured)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InvalidDatasetError(
            "Parquet files need pyarrow; install it with pip install 'tvm-xengine[parquet]'"
        ) from error
    return pyarrow


def _parquet() -> Any:
    import pyarrow.parquet

    return pyarrow.parquet
