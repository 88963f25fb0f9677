"""Hints on devices as constraints of a problem."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.relax_ir.hints import HintedDevice
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.platform import Platform


def pinned_by_hints(
    places: Mapping[str, HintedDevice], graph: OpGraph, platform: Platform
) -> dict[str, str]:
    """Ops by name, and the only device on which each may run.

    A device is counted among those of its type that compute, in the order of the platform:
    ``R.device(2, 0)`` is the first GPU of CUDA.

    Raises
    ------
    UnsupportedModuleError
        If the platform has no such device, or the value is an input, which lies elsewhere.
    """
    pinned: dict[str, str] = {}
    for name, place in places.items():
        device = _device(name, place, platform)
        if (op := _maker(name, graph)) is not None:
            pinned[op] = device
        elif device != platform.home:
            raise UnsupportedModuleError(
                f"a hint places {name} on {device}, but it is an input, which lies on"
                f" {platform.home}; hint a value that an operator makes"
            )
    return pinned


def _device(name: str, place: HintedDevice, platform: Platform) -> str:
    types = {
        device.name: int(resolve_target(device.target or "llvm").get_target_device_type())
        for device in platform.computing
    }
    same = [device for device, kind in types.items() if kind == place.device_type]
    if place.index >= len(same):
        have = ", ".join(
            f"{device} ({kind}, {_rank(types, device)})" for device, kind in types.items()
        )
        raise UnsupportedModuleError(
            f"a hint places {name} on R.device({place.device_type}, {place.index}), which the"
            f" platform has not; its devices are {have}"
        )
    return same[place.index]


def _rank(types: Mapping[str, int], device: str) -> int:
    """Position of a device among those of its type."""
    return [one for one, kind in types.items() if kind == types[device]].index(device)


def _maker(name: str, graph: OpGraph) -> str | None:
    """The op that makes a value, or what the value is a view of; None for an input."""
    if name in graph.op:
        return name
    if name not in graph.tensor:
        raise UnsupportedModuleError(
            f"a hint places {name}, which lowering has merged with other values; hint one of them"
        )
    return graph.producer.get(graph.base[name])
