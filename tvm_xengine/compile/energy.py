"""Energy of a kernel on a device."""

from __future__ import annotations

from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.operation_count import count_operations
from tvm_xengine.scheduling.platform import Device


def kernel_energy_uj(device: Device, kernel: DeviceKernel, compute_us: float) -> float:
    """Power times time, and the energy of the floating-point operations, in microjoules."""
    # A watt for a microsecond is a microjoule.
    energy_uj = device.power_w * compute_us
    if device.energy_nj_per_flop:
        energy_uj += device.energy_nj_per_flop * _flops(kernel) / 1000.0
    return energy_uj


def _flops(kernel: DeviceKernel) -> float:
    return kernel.library_flops or count_operations(kernel).float_ops
