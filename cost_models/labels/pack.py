"""From a dataset folder to files of labels."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

import tvm

from tvm_xengine.checks.packages import installed_version
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, FeatureNames, KernelRecord
from tvm_xengine.cost_models.dataset.sources import KernelSources
from tvm_xengine.cost_models.labels.label_file import Generator, Label, LabelFile
from tvm_xengine.cost_models.measure.caches import COLD, HOT
from tvm_xengine.cost_models.measure.measurements import typical_us
from tvm_xengine.cost_models.measure.sentinel import calm_rounds
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.digest import digest
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.relax_ir.kernel_attributes import KERNEL_ATTR, OPTIONS_ATTR, kernel_hash

_LIBRARIES = ("apache-tvm-ffi", "onednn-cpu-gomp", "numpy")
"""Packages that have a say in what a kernel is."""


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
    labels, kernels = [], {}
    for record, kernel in rows:
        code = code_of(kernel)
        if record.feature_set == folder.feature_set:
            kernels[code] = replace(record, kernel=code)
        times = {caches: _rounds_us(folder, record, caches) for caches in (COLD, HOT)}
        labels.append(
            Label(
                code,
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
    features = FeatureNames(folder.feature_names, folder.feature_set)
    generator = replace(this_generator(), networks=len(networks))
    return LabelFile(
        *(known, (generator,), tuple(targets), tuple(networks), (today,), tuple(labels)),
        features=features,
        kernels=kernels,
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
    libraries = tuple(
        f"{name} {found}" for name in _LIBRARIES if (found := installed_version(name))
    )
    return Generator(
        commit, installed_version("tvm-xengine") or "", str(tvm.__version__), libraries
    )


def _stages_text(stages: Sequence[Stage]) -> str:
    return "|".join(f"{s.implementation};{int(s.is_copy)};{s.tensors_bytes}" for s in stages)
