"""Energy of kernels on devices."""

from __future__ import annotations

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.operation_count import count_operations
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.solvers.result import Objective


def check_energy(platform: Platform, objective: Objective) -> None:
    """Check that the energy of kernels is known if it is the objective.

    Raises
    ------
    InvalidPlatformError
        If no device of `platform` gives its power.
    """
    if objective is Objective.ENERGY and not any(
        device.power_w or device.energy_nj_per_flop for device in platform.computing
    ):
        raise InvalidPlatformError(
            "the objective energy needs the power of devices: give them power_w or"
            " energy_nj_per_flop in the platform file (and energy_nj_per_byte to the links)"
        )


def kernel_energy_uj(device: Device, kernel: DeviceKernel, compute_us: float) -> float:
    """Power times time, and the energy of the floating-point operations, in microjoules."""
    # A watt for a microsecond is a microjoule.
    energy_uj = device.power_w * compute_us
    if device.energy_nj_per_flop:
        energy_uj += device.energy_nj_per_flop * _flops(kernel) / 1000.0
    return energy_uj


def _flops(kernel: DeviceKernel) -> float:
    return kernel.library_flops or count_operations(kernel).float_ops
