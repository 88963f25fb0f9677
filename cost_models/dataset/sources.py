"""Lowered kernels on disk, so that other features can be read off them without lowering again."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, KernelRecord
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.this_machine import machine_of
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import read_bytes
from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec
from tvm_xengine.kernels.library.call import LibraryCall, OptionValue
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.relax_ir.kernel_attributes import InplacePair


class KernelSources:
    """The folder ``sources`` of a dataset: a compressed JSON file for each kernel on each device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sources"

    def add(self, kernel: DeviceKernel, device: str) -> None:
        """Write a kernel, if it is not there."""
        path = self._path(kernel.key, device)
        if path.exists():
            return
        document = {
            "symbol": kernel.symbol,
            "name": kernel.name,
            "key": kernel.key,
            "target": str(kernel.target),
            "inputs": [[spec.shape, spec.dtype] for spec in kernel.inputs],
            "outputs": [[spec.shape, spec.dtype] for spec in kernel.outputs],
            "workspace_bytes": kernel.workspace_bytes,
            "inplace": [asdict(pair) for pair in kernel.inplace],
            "is_parallel": kernel.is_parallel,
            "source": kernel.source,
            "function": kernel.function,
            "library": None if kernel.library is None else asdict(kernel.library),
            "library_flops": kernel.library_flops,
            "library_stages": [asdict(stage) for stage in kernel.library_stages],
            "func": tvm.ir.save_json(kernel.func),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        content = gzip.compress(json.dumps(document).encode(), compresslevel=3, mtime=0)
        write_bytes_atomically(path, content)

    def find(self, kernel: str, device: str) -> DeviceKernel | None:
        """The kernel with this key on a device; None when it was not kept.

        Raises
        ------
        InvalidDatasetError
            When its file cannot be read.
        """
        path = self._path(kernel, device)
        if not path.exists():
            return None
        try:
            return _kernel(json.loads(gzip.decompress(read_bytes(path))))
        except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise InvalidDatasetError(
                f"{path}: expected a kernel written by tvm-xengine costs collect: {error}; delete"
                " the file to leave the kernel out"
            ) from error

    def _path(self, kernel: str, device: str) -> Path:
        return self.folder / f"{kernel}-{device}.json.gz"


def refresh_features(
    folder: DatasetFolder, on_progress: Callable[[int, int, str], None] | None = None
) -> tuple[int, int]:
    """Read the features of this version off the kernels of a dataset whose features are older.

    Features describe the machine that each kernel was collected on, whichever machine reads them.
    Returns how many were renewed, and how many were not because their source or machine is missing.
    What is done is on disk at once: a second call continues where the first was interrupted.

    Parameters
    ----------
    on_progress
        Called after each kernel with the number done, the number of all and the kernel's name.

    Raises
    ------
    InvalidDatasetError
        When the dataset has no kernels at all.
    """
    if not len(folder):
        raise InvalidDatasetError(
            f"{folder.folder}: expected kernels, found none; collect some with tvm-xengine costs"
            " collect"
        )
    sources = KernelSources(folder.folder)
    old = [record for record in folder.records() if record.feature_set != feature_set()]
    missing = 0
    for done, record in enumerate(old, start=1):
        kernel = sources.find(record.kernel, record.device)
        machine = folder.measurements.find_machine(record.machine)
        if kernel is None or machine is None:
            missing += 1
        else:
            add_kernel(folder, kernel, record.device, record.families, machine, record.network)
        if on_progress is not None:
            on_progress(done, len(old), record.name)
    return len(old) - missing, missing


def add_kernel(
    folder: DatasetFolder,
    kernel: DeviceKernel,
    device: str,
    families: Sequence[str],
    machine: Machine | None = None,
    network: str = "",
) -> KernelRecord:
    """Remember in a dataset what a kernel is on a machine (this one), and the families it was met in."""
    machine = machine or machine_of(kernel.target)
    folder.measurements.add(machine)
    features = kernel_features(kernel, machine)
    record = KernelRecord(
        kernel=kernel.key,
        device=device,
        target=str(kernel.target),
        name=kernel.name,
        families=tuple(families),
        shapes=f"{_describe(kernel.inputs)} -> {_describe(kernel.outputs)}",
        feature_set=feature_set(),
        features=tuple(float(f"{value:.6g}") for value in features.values),
        work=features.work,
        flops=features.flops,
        moved_bytes=features.moved_bytes,
        workspace_bytes=kernel.workspace_bytes,
        source=kernel.source,
        function=kernel.function,
        machine=machine.key,
        network=network,
    )
    folder.add(record, features.names)
    return record


def _kernel(document: Mapping[str, Any]) -> DeviceKernel:
    return DeviceKernel(
        func=tvm.ir.load_json(document["func"]),
        symbol=document["symbol"],
        name=document["name"],
        key=document["key"],
        target=Target(json.loads(document["target"])),
        inputs=_specs(document["inputs"]),
        outputs=_specs(document["outputs"]),
        workspace_bytes=int(document["workspace_bytes"]),
        inplace=tuple(InplacePair(**pair) for pair in document["inplace"]),
        is_parallel=bool(document["is_parallel"]),
        source=str(document["source"]),
        function=str(document["function"]),
        library=_library(document["library"]),
        library_flops=float(document["library_flops"]),
        library_stages=tuple(Stage(**stage) for stage in document["library_stages"]),
    )


def _specs(rows: Sequence[tuple[Sequence[int], str]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(tuple(map(int, shape)), dtype) for shape, dtype in rows)


def _library(document: Mapping[str, Any] | None) -> LibraryCall | None:
    if document is None:
        return None
    fields = dict(document)
    fields["options"] = tuple((name, _option(value)) for name, value in document["options"])
    fields["shapes"] = tuple(tuple(map(int, shape)) for shape in document["shapes"])
    return LibraryCall(**fields)


def _option(value: Any) -> OptionValue:
    return tuple(map(_option, value)) if isinstance(value, list) else value


def _describe(specs: Sequence[TensorSpec]) -> str:
    return " ".join(f"{spec.dtype}{list(spec.shape)}".replace(" ", "") for spec in specs)
