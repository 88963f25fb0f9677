"""The table of kernel sources, and the choice of sources for a device.

To add a source, write a class with the methods of :class:`KernelSource` and name it in `SOURCES`, or,
from another package, in its entry points::

    [project.entry-points."tvm_xengine.kernel_sources"]
    mylibrary = "my_package.source:MySource"
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm_xengine.errors import ExtensionError, InvalidPlatformError, LibraryError
from tvm_xengine.extensions.extended import Extended, extended
from tvm_xengine.kernels.kernel_source import KernelSource, LibrarySource

if TYPE_CHECKING:
    from tvm import tirx
    from tvm.target import Target

    from tvm_xengine.kernels.device_kernel import DeviceKernel
    from tvm_xengine.kernels.store.tuned import TunedSchedules

_logger = logging.getLogger(__name__)

SOURCES: Mapping[str, str] = {
    "onednn": "tvm_xengine.kernels.onednn.source:OnednnSource",
    "nvidia": "tvm_xengine.kernels.nvidia.source:NvidiaSource",
    "tir": "tvm_xengine.kernels.generated:GeneratedSource",
}
"""The sources of this package by name: a class that is called without arguments.

The order is that of `AUTO`; generated code, which has every kernel, is last."""

AUTO = "auto"
"""Every source of `SOURCES` that computes for the device, in that order. Where costs are measured
or predicted, :mod:`tvm_xengine.compiler.kernel_choice` then takes the faster kernel of each."""

ENTRY_POINTS = "tvm_xengine.kernel_sources"
"""Group of entry points in which other packages name their sources."""


def source_names() -> tuple[str, ...]:
    """Every name that a device may give, `AUTO` excepted."""
    return tuple(_sources())


def kernel_source(name: str) -> KernelSource:
    """The source with a name.

    Raises
    ------
    InvalidPlatformError
        When there is none, or its code cannot be loaded.
    """
    if name not in source_names():
        raise InvalidPlatformError(f"expected a kernel source of {[*source_names()]}, got {name!r}")
    try:
        source = _sources()[name]
        found = (pkgutil.resolve_name(source) if isinstance(source, str) else source)()
    except (ExtensionError, TypeError) as error:
        raise InvalidPlatformError(
            f"kernel source {name!r}: expected a class without arguments, found: {error}"
        ) from error
    if not isinstance(found, KernelSource) or found.name != name:
        raise InvalidPlatformError(
            f"kernel source {name!r}: expected an object with the methods of KernelSource and this"
            f" name, got {found!r}"
        )
    return found


def library_source(name: str) -> LibrarySource:
    """The source with a name, whose kernels call a library.

    Raises
    ------
    LibraryError
        When no such source is installed here.
    """
    try:
        found = kernel_source(name)
    except InvalidPlatformError as error:
        raise LibraryError(str(error)) from error
    if not isinstance(found, LibrarySource):
        raise LibraryError(
            f"kernel source {name!r} has kernels that call a library, but no library"
        )
    return found


def available_sources(wanted: Sequence[str], target: Target, device: str) -> tuple[str, ...]:
    """The kernel sources that a device names and this machine has, in their order.

    What is missing is said in the log, unless it is only part of `AUTO`.

    Raises
    ------
    InvalidPlatformError
        When a source is unknown, or none is left.
    """
    found: list[str] = []
    for name in wanted:
        if name == AUTO:
            found += [each for each in SOURCES if why_not(each, target) is None]
            continue
        if name not in source_names():
            raise InvalidPlatformError(
                f"device {device}: kernels names {name!r}, known are {[AUTO, *source_names()]}"
            )
        if (reason := why_not(name, target)) is None:
            found.append(name)
        else:
            _logger.warning("device %s goes without %s kernels: %s", device, name, reason)
    if not found:
        raise InvalidPlatformError(
            f"device {device}: none of its kernel sources {list(wanted)} can be used here;"
            ' add "tir", which always can'
        )
    return tuple(dict.fromkeys(found))


def why_not(name: str, target: Target) -> str | None:
    """Why a source has no kernels for a target on this machine, None when it has."""
    return kernel_source(name).why_not(target)


def prepare_from(
    sources: Sequence[str],
    func: tirx.PrimFunc,
    target: Target,
    name: str,
    tuned: TunedSchedules | None = None,
) -> DeviceKernel:
    """The kernel from the first source that has it.

    Parameters
    ----------
    tuned
        Schedules for generated kernels.

    Raises
    ------
    InvalidPlatformError
        When none has it.
    """
    for source in sources:
        kernel = kernel_source(source).prepare(func, target, name, tuned)
        if kernel is not None:
            return replace(kernel, source=source)
    raise InvalidPlatformError(
        f'no source of {list(sources)} has the kernel {name}; add "tir" to the device\'s kernels'
    )


def _sources() -> Extended[str | type[KernelSource]]:
    """The classes of this package by their places, and those of other packages."""
    return extended(ENTRY_POINTS, SOURCES)
