"""From a dataset folder to files of labels, and back by making the kernels anew."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

import tvm_xengine.cost_models.labels
from tvm_xengine.cost_models.corpus.variants import Variant
from tvm_xengine.cost_models.dataset.collect import training_kernels
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, KernelRecord
from tvm_xengine.cost_models.dataset.sources import KernelSources, add_kernel
from tvm_xengine.cost_models.labels.label_file import Generator, Label, LabelFile
from tvm_xengine.cost_models.measure.caches import COLD, HOT
from tvm_xengine.cost_models.measure.measurements import Measurement, typical_us
from tvm_xengine.cost_models.measure.sentinel import calm_rounds
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.errors import InvalidDatasetError, XEngineError
from tvm_xengine.files.append_only import AppendOnlyFile
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.digest import digest
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.relax_ir.kernel_attributes import KERNEL_ATTR, OPTIONS_ATTR
from tvm_xengine.relax_ir.kernel_hash import kernel_hash

SHIPPED_LABELS = Path(str(files(tvm_xengine.cost_models.labels))) / "data"
"""The labels that ship with the package."""

_LIBRARIES = ("apache-tvm-ffi", "onednn-cpu-gomp", "numpy")
"""Packages that have a say in what a kernel is."""

_MADE = "networks.jsonl"
"""The networks whose kernels are in a folder, with what was found of each."""

OnProgress = Callable[[int, int, str], None]


def code_of(kernel: DeviceKernel) -> str:
    """A hash of what determines a kernel's features: its lowered code, its target, and its call.

    Unlike `DeviceKernel.key` it does not cover the versions of what makes machine code of it.
    """
    func = kernel.func
    for attribute in (KERNEL_ATTR, OPTIONS_ATTR, "global_symbol"):
        func = func.without_attr(attribute)
    library = None if kernel.library is None else asdict(kernel.library)
    facts = {"lowered": kernel_hash(func), "target": str(kernel.target), "library": str(library)}
    return digest({**facts, "source": kernel.source})


def pack(folder: DatasetFolder) -> list[LabelFile]:
    """The labels of a dataset, a file for each machine.

    Raises
    ------
    InvalidDatasetError
        When nothing was measured that can be made anew.
    """
    sources = KernelSources(folder.folder)
    found: dict[str, list[tuple[KernelRecord, DeviceKernel]]] = defaultdict(list)
    for record, _ in folder.measured():
        kernel = sources.find(record.kernel, record.device)
        if record.network and kernel is not None:
            found[record.machine].append((record, kernel))
    if not found:
        raise InvalidDatasetError(
            f"{folder.folder}: expected kernels with the network that they come from, found none;"
            " collect some with tvm-xengine costs collect"
        )
    return [_packed(folder, machine, rows) for machine, rows in sorted(found.items())]


def _packed(
    folder: DatasetFolder, machine: str, rows: Sequence[tuple[KernelRecord, DeviceKernel]]
) -> LabelFile:
    known = folder.measurements.find_machine(machine)
    if known is None:
        raise InvalidDatasetError(f"{folder.folder}: the machine {machine} is not described")
    networks = list(dict.fromkeys(record.network for record, _ in rows))
    targets = list(dict.fromkeys(record.target for record, _ in rows))
    labels = []
    for record, kernel in rows:
        times = {caches: _rounds_us(folder, record, caches) for caches in (COLD, HOT)}
        labels.append(
            Label(
                code_of(kernel),
                networks.index(record.network),
                targets.index(record.target),
                record.source,
                times[COLD][0] or times[HOT][0],
                times[COLD][1],
                times[HOT][1],
                _stages_text(kernel.library_stages),
            )
        )
    today = datetime.now(timezone.utc).date().isoformat()
    labels.sort(key=lambda label: (label.network, label.target, label.code))
    return LabelFile(
        known, this_generator(), tuple(targets), tuple(networks), (today,), tuple(labels)
    )


def _rounds_us(
    folder: DatasetFolder, record: KernelRecord, caches: str
) -> tuple[str, tuple[float, ...]]:
    """The clock, and the typical time of each calm round."""
    measured = folder.measurements.find(record.kernel, record.device, caches)
    if measured is None:
        return "", ()
    calm = calm_rounds(measured.sentinels_us) if measured.sentinels_us else []
    rounds = calm or range(len(measured.rounds_us))
    times = (typical_us(measured.rounds_us[k], measured.clock) for k in rounds)
    return measured.clock, tuple(float(f"{us:.4g}") for us in times)


def this_generator() -> Generator:
    """The versions here; the commit is empty where the package is no checkout."""
    asked = ("git", "rev-parse", "HEAD")
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=here)
        commit = done.stdout.strip()
    except OSError:
        commit = ""
    libraries = tuple(f"{name} {found}" for name in _LIBRARIES if (found := _version(name)))
    return Generator(commit, _version("tvm-xengine") or "", str(tvm.__version__), libraries)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def unpack(
    label_files: Sequence[LabelFile], folder: DatasetFolder, on_progress: OnProgress | None = None
) -> tuple[int, int]:
    """Make the kernels of labels anew, into a dataset folder; returns how many were found, and missing.

    A kernel is missing where this version of the generator, or a library, makes another one of the
    same network. Nothing is measured or compiled. What is there already is kept, and a second call
    goes on behind the network at which the first one was interrupted.
    """
    found: set[tuple[int, str]] = set()
    made = AppendOnlyFile(folder.folder / _MADE)
    known = dict(made.read(_parse_made))
    total = sum(len(file.networks) for file in label_files)
    done = 0
    for number, file in enumerate(label_files):
        folder.measurements.add(file.machine)
        labels = {label.code: label for label in file.labels}
        names = digest({"codes": " ".join(labels), "generator": str(this_generator())})
        for text in file.networks:
            variant = Variant.of_text(text)
            if (codes := known.get(key := f"{names} {text}")) is None:
                codes = []
                for kernel in _made(variant, file):
                    label = labels.get(code := code_of(kernel))
                    if label is not None:
                        _add(folder, kernel, label, file, variant)
                        codes.append(code)
                made.append({"key": key, "codes": codes})
            found.update((number, code) for code in codes)
            done += 1
            if on_progress is not None:
                on_progress(done, total, str(variant))
    return len(found), sum(len(file.labels) for file in label_files) - len(found)


def _parse_made(row: dict[str, Any]) -> tuple[str, list[str]]:
    return str(row["key"]), [str(code) for code in row["codes"]]


def _made(variant: Variant, file: LabelFile) -> list[DeviceKernel]:
    """The kernels of a network, from every source and for every target of a file."""
    pairs = sorted({(label.target, label.source) for label in file.labels})
    devices = [(Target(json.loads(file.targets[target])), (source,)) for target, source in pairs]
    try:
        return training_kernels(variant, devices)
    except (XEngineError, ValueError, TypeError, RuntimeError):  # the compiler raises the last
        return []


def _add(
    folder: DatasetFolder, kernel: DeviceKernel, label: Label, file: LabelFile, variant: Variant
) -> None:
    device = device_fingerprint(kernel.target, file.machine)
    known = folder.find(kernel.key, device)
    if known is not None and folder.measurements.find(kernel.key, device) is not None:
        if variant.family not in known.families:
            folder.add(replace(known, families=(variant.family,)), folder.feature_names)
        return
    kernel = replace(kernel, library_stages=_stages(label.stages))
    add_kernel(
        folder, kernel, device, (variant.family,), file.machine, file.networks[label.network]
    )
    for caches, times in ((COLD, label.cold_us), (HOT, label.hot_us)):
        if times:
            folder.measurements.add(_measurement(kernel, device, label, caches, times, file))


def _measurement(
    kernel: DeviceKernel,
    device: str,
    label: Label,
    caches: str,
    times_us: tuple[float, ...],
    file: LabelFile,
) -> Measurement:
    return Measurement(
        kernel=kernel.key,
        device=device,
        name=kernel.name,
        compute_us=statistics.median(times_us),
        lo_us=min(times_us),
        hi_us=max(times_us),
        clock=label.clock,
        rounds_us=tuple((us,) for us in times_us),
        machine=file.machine.key,
        caches=caches,
    )


def _stages_text(stages: Sequence[Stage]) -> str:
    return "|".join(f"{s.implementation};{int(s.is_copy)};{s.tensors_bytes}" for s in stages)


def _stages(text: str) -> tuple[Stage, ...]:
    parts = [part.split(";") for part in text.split("|") if part]
    return tuple(Stage(name, copy == "1", int(size)) for name, copy, size in parts)
