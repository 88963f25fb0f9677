"""Labels of a machine that join those it has."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.cost_models.labels.label_file import Label, LabelFile
from tvm_xengine.errors import InvalidDatasetError


def join(before: LabelFile, new: LabelFile) -> LabelFile:
    """Labels of one machine in one file: the new ones, and those before of the other kernels.

    Raises
    ------
    InvalidDatasetError
        When the features are of different versions.
    """
    if before.features.feature_set != new.features.feature_set:
        raise InvalidDatasetError(
            f"expected labels of {new.machine.processor} with features of version"
            f" {new.features.feature_set}, found {before.features.feature_set};"
            " make them anew with tvm-xengine costs refresh --labels FOLDER"
        )
    measured = {label.code for label in new.labels}
    kept = [label for label in before.labels if label.code not in measured]
    networks = len(before.networks)
    targets = tuple(dict.fromkeys((*before.targets, *new.targets)))

    def behind(label: Label) -> Label:
        target = targets.index(new.targets[label.target])
        return replace(label, network=networks + label.network, target=target)

    return replace(
        new,
        generators=(*before.generators, *new.generators),
        targets=targets,
        networks=(*before.networks, *new.networks),
        collected=tuple(sorted({*before.collected, *new.collected})),
        labels=(*kept, *map(behind, new.labels)),
        kernels={**before.kernels, **new.kernels},
    )


def joined(label_files: tuple[LabelFile, ...], new: LabelFile) -> LabelFile:
    """`join` with the file of the same machine, where there is one."""
    for before in label_files:
        if before.machine.key == new.machine.key:
            return join(before, new)
    return new
