"""Where the kernels of a device come from."""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence

from tvm import tirx
from tvm.target import Target

from tvm_xengine.errors import InvalidPlatformError, LibraryError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.store.tuned import TunedSchedules, prepare_tuned
from tvm_xengine.kernels.targets import resolve_target

_logger = logging.getLogger(__name__)

TIR = "tir"
ONEDNN = "onednn"
AUTO = "auto"
"""What is best and there: oneDNN on the processor of this machine, and generated code."""

SOURCES = (ONEDNN, TIR)

_ONEDNN_WHERE_FASTER = "onednn where it is faster"
"""What `AUTO` means by `ONEDNN`, before anything is measured."""


def available_sources(wanted: Sequence[str], target: Target, device: str) -> tuple[str, ...]:
    """The kernel sources that a device names and this machine has, in their order.

    What is missing is said in the log, unless it is only part of `AUTO`.

    Raises
    ------
    InvalidPlatformError
        When a source is unknown, or none is left.
    """
    found: list[str] = []
    for source in wanted:
        if source not in (*SOURCES, AUTO):
            raise InvalidPlatformError(
                f"device {device}: kernels names {source!r}, known are {[AUTO, *SOURCES]}"
            )
        if source == AUTO:
            found += [] if why_not(ONEDNN, target) else [_ONEDNN_WHERE_FASTER]
            found.append(TIR)
        elif (reason := why_not(source, target)) is not None:
            _logger.warning("device %s goes without %s kernels: %s", device, source, reason)
        else:
            found.append(source)
    if not found:
        raise InvalidPlatformError(
            f"device {device}: none of its kernel sources {list(wanted)} can be used here;"
            ' add "tir", which always can'
        )
    return tuple(dict.fromkeys(found))


def why_not(source: str, target: Target) -> str | None:
    """Why a source has no kernels for a target on this machine, None when it has."""
    if source == TIR:
        return None
    if target.kind.name != "llvm" or platform.machine() not in ("x86_64", "AMD64"):
        return f"it computes on x86-64 processors, not for {target}"
    if str(target) != str(_this_processor(target)):
        return f"it computes for the processor of this machine (-mcpu=native), not for {target}"
    try:
        load_onednn()
    except LibraryError as error:
        return str(error)
    return None


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
        if source == TIR:
            return prepare_tuned(func, target, name, tuned)
        kernel = prepare_onednn_kernel(
            func, target, name, only_where_faster=source == _ONEDNN_WHERE_FASTER
        )
        if kernel is not None:
            return kernel
    raise InvalidPlatformError(
        f'no source of {list(sources)} has the kernel {name}; add "tir" to the device\'s kernels'
    )


def _this_processor(target: Target) -> Target:
    """The target of the same description on the processor of this machine."""
    description: dict[str, str | int] = {"kind": "llvm", "mcpu": "native"}
    if "num-cores" in target.attrs:
        description["num-cores"] = int(target.attrs["num-cores"])
    return resolve_target(description)
