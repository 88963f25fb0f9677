"""Features that other packages add to those of `tvm_xengine.cost_models.features.extract`.

To add one, name a function in the entry points of a package::

    [project.entry-points."tvm_xengine.cost_features"]
    myfeature = "my_package.features:my_feature"

Give it another name whenever it computes another number: datasets and models know it by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tvm_xengine.cost_models.features.table import BODY_SLOTS, FEATURE_SET, PLAIN_SLOT
from tvm_xengine.errors import ExtensionError
from tvm_xengine.extensions.extended import Extended, extended

if TYPE_CHECKING:
    from tvm_xengine.cost_models.measure.machine import Machine
    from tvm_xengine.kernels.device_kernel import DeviceKernel

CostFeature = Callable[["DeviceKernel", "Machine"], float]
"""A number that describes a lowered kernel on a machine; the kernel is not compiled or run."""

_SEPARATOR = "+"
_SLOTS = frozenset((*BODY_SLOTS, PLAIN_SLOT))


def added_features() -> Extended[CostFeature]:
    """The features of other packages by name."""
    return extended("tvm_xengine.cost_features", {})


def feature_set() -> str:
    """The version of the features with the names of those that are added: ``kernel-v4+myfeature``."""
    return _SEPARATOR.join((FEATURE_SET, *added_features()))


def version_of(features: str) -> str:
    """The version of this package's features in the name of a feature set."""
    return features.partition(_SEPARATOR)[0]


def missing_features(features: str) -> list[str]:
    """The added features of a feature set that no installed package computes."""
    return [name for name in features.split(_SEPARATOR)[1:] if name not in added_features()]


def added_values(kernel: DeviceKernel, machine: Machine, own: Collection[str]) -> dict[str, float]:
    """What the features of other packages say of a kernel.

    Parameters
    ----------
    own
        Names of the features of this package.

    Raises
    ------
    ExtensionError
        When a name is taken, or a function gives no finite number.
    """
    values = {}
    for name, function in added_features().items():
        if name in own or name.rpartition("_")[2] in _SLOTS or _SEPARATOR in name:
            raise ExtensionError(
                f"cost feature {name!r}: expected a name that no feature of this package has, without"
                f" {_SEPARATOR!r} and without the ends {', '.join(f'_{s}' for s in sorted(_SLOTS))};"
                " rename its entry point"
            )
        try:
            values[name] = float(function(kernel, machine))
        except Exception as error:  # whatever the other package raises
            raise ExtensionError(f"cost feature {name!r} of {kernel.name}: {error}") from error
        if not math.isfinite(values[name]):
            raise ExtensionError(
                f"cost feature {name!r} of {kernel.name}: expected a finite number, got {values[name]}"
            )
    return values
