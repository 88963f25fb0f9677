"""The platform that is used when none is named."""

from __future__ import annotations

from tvm_xengine.scheduling.platform import Device, Link, Platform


def default_platform() -> Platform:
    """Two CPU devices: all cores with the best available kernels, and one thread of baseline x86-64."""
    return Platform(
        devices=(
            Device("cpu", "llvm -mcpu=native -num-cores=native", kernels=("auto",)),
            Device("cpu_generic", "llvm -mcpu=x86-64"),
        ),
        links=(Link("cpu", "cpu_generic"), Link("cpu_generic", "cpu")),
    )
