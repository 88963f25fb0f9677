"""The kernels of labels, made anew by the generator of this version."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm.target import Target

from tvm_xengine.cost_models.corpus.variants import Variant
from tvm_xengine.cost_models.dataset.collect import training_kernels
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import add_kernel
from tvm_xengine.cost_models.labels.label_file import Label, LabelFile
from tvm_xengine.cost_models.labels.label_times import add_times
from tvm_xengine.cost_models.labels.pack import code_of, this_generator
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.errors import XEngineError
from tvm_xengine.files.append_only import AppendOnlyFile
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.digest import digest
from tvm_xengine.kernels.library.stages import Stage

_MADE = "networks.jsonl"
"""The networks whose kernels are in a folder, with what was found of each."""

OnProgress = Callable[[int, int, str], None]


def rebuild(
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
    known = folder.find(label.code, device)
    if known is not None:
        folder.add(replace(known, families=(variant.family,)), folder.feature_names)
        return
    kernel = replace(kernel, key=label.code, library_stages=_stages(label.stages))
    network = file.networks[label.network]
    record = add_kernel(folder, kernel, device, (variant.family,), file.machine, network)
    add_times(folder, record, label)


def _stages(text: str) -> tuple[Stage, ...]:
    parts = [part.split(";") for part in text.split("|") if part]
    return tuple(Stage(name, copy == "1", int(size)) for name, copy, size in parts)
