"""Kernels prepared for the devices of a platform, each once."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.target import Target

from tvm_xengine.cost_models.prediction.predict import predict_costs
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import available_sources, prepare_from
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.kernels.targets import core_count, resolve_target
from tvm_xengine.passes.fusion.split_groups import KernelNeeds
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash
from tvm_xengine.scheduling.platform import Device, Platform


def _check_threads(device: Device, target: Target) -> None:
    """Refuse kernels whose threads would wait for one another on too few cores."""
    threads, cores = core_count(target), len(device.cores)
    if cores and threads > cores:
        raise InvalidPlatformError(
            f"device {device.name}: its target has {threads} threads, and cores names {cores}; write"
            f" -num-cores={cores} in the target, or name as many cores as threads"
        )


class PreparedKernels:
    """Prepares a kernel for a device on demand, and caches it.

    Parameters
    ----------
    platform
        Kernels are prepared for its computing devices.
    tuned
        Schedules for generated kernels.

    Raises
    ------
    InvalidPlatformError
        If a device names unknown kernel sources, or none that is available here, or its kernels have
        more threads than it has cores.
    """

    def __init__(self, platform: Platform, tuned: TunedSchedules | None = None) -> None:
        self._tuned = tuned
        self._known: dict[tuple[str, str, tuple[str, ...]], DeviceKernel] = {}
        self._targets: dict[str, Target] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        for device in platform.computing:
            target = resolve_target(device.target or "")
            _check_threads(device, target)
            self._targets[device.name] = target
            self._sources[device.name] = available_sources(device.kernels, target, device.name)

    def prepare(self, func: tirx.PrimFunc, device: str, name: str = "kernel") -> DeviceKernel:
        """The kernel for a device, from the first of its sources that has it.

        Raises
        ------
        UnsupportedModuleError
            If no rule generates code for it on the device.
        InvalidPlatformError
            If none of the device's sources has it.
        """
        # Devices that are alike share kernels: a platform may have many of them.
        key = (kernel_hash(func), str(self._targets[device]), self._sources[device])
        if key not in self._known:
            self._known[key] = prepare_from(
                self._sources[device], func, self._targets[device], name, self._tuned
            )
        return replace(self._known[key], name=name)

    @property
    def needs(self) -> KernelNeeds:
        """Memory and time of kernels on the device where they are largest; times are rough predictions."""
        return KernelNeeds(
            workspace_bytes=lambda func: max(k.workspace_bytes for k in self._everywhere(func)),
            time_us=lambda func: max(_predicted_us(k) for k in self._everywhere(func)),
        )

    def _everywhere(self, func: tirx.PrimFunc) -> list[DeviceKernel]:
        return [self.prepare(func, device) for device in self._targets]


def _predicted_us(kernel: DeviceKernel) -> float:
    return predict_costs([kernel], None)[kernel.symbol].compute_us
