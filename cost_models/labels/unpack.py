"""Files of labels as a dataset folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, FeatureNames, KernelRecord
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.labels.label_file import LabelFile
from tvm_xengine.cost_models.labels.label_times import add_times
from tvm_xengine.cost_models.labels.rebuild import OnProgress, rebuild


def unpack(
    label_files: Sequence[LabelFile], folder: DatasetFolder, on_progress: OnProgress | None = None
) -> tuple[int, int]:
    """Add labels and their kernels to a dataset folder; returns how many, and how many are left out.

    Features come from the files. Only where these have others than this version reads, are kernels
    made anew for them.
    """
    current = [file for file in label_files if file.features.feature_set == feature_set()]
    for file in current:
        folder.measurements.add(file.machine)
        for label in file.labels:
            if (record := file.kernels.get(label.code)) is not None:
                folder.add(record, file.features.feature_names)
                add_times(folder, record, label)
    found = sum(len(file.kernels) for file in current)
    missing = sum(len(file.labels) for file in current) - found
    others = [file for file in label_files if file not in current]
    if others:
        made, unmade = rebuild(others, folder, on_progress)
        found, missing = found + made, missing + unmade
    return found, missing


def refreshed(file: LabelFile, made: DatasetFolder) -> LabelFile:
    """Labels with the features of this version, as far as they are known.

    Kernels that were made anew have them; the others keep what the file says of them, where that is of
    this version.

    Parameters
    ----------
    made
        What `rebuild` makes of the file.
    """
    now = feature_set()
    kernels = dict(file.kernels) if file.features.feature_set == now else {}
    for record in made.records():
        if record.machine == file.machine.key and record.feature_set == now:
            kernels[record.kernel] = _with_families(record, file.kernels)
    names = made.feature_names or file.features.feature_names
    return replace(file, features=FeatureNames(names, now), kernels=kernels)


def _with_families(record: KernelRecord, known: Mapping[str, KernelRecord]) -> KernelRecord:
    """Another version may not make the kernel in every network that it was met in."""
    before = known.get(record.kernel)
    families = {*record.families, *(before.families if before else ())}
    return replace(record, families=tuple(sorted(families)))
