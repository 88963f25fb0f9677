"""Compile prepared kernels to machine code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tvm
from tvm.target import Target

from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.device_kinds import build_launches, device_kind
from tvm_xengine.kernels.lower.gpu_lowering import split_host_and_device
from tvm_xengine.kernels.targets import is_gpu


def compile_kernels(kernels: Sequence[DeviceKernel], target: Target) -> tvm.runtime.Module:
    """Compile kernels into one module with a function per kernel, named by its symbol.

    One module holds kernels that :func:`module_groups` puts together. Several modules can be
    imported into one executable. For a GPU the
    functions launch what an imported module holds: machine code where the GPU's runtime is on
    this machine, else source code (:func:`device_source`), which cannot run.
    """
    return device_kind(target).compile(_module_of(kernels, target), target)


def module_groups(kernels: Iterable[DeviceKernel]) -> list[list[DeviceKernel]]:
    """Kernels that one module can hold: of one target, and all with tensors apart or none.

    TVM compiles what lies in a module for the target of one function, and takes for all of them
    what the last one says about tensors that may overlap. Without that promise LLVM makes no
    vectors of loops whose tensors it cannot tell apart.
    """
    groups: dict[tuple[str, bool], list[DeviceKernel]] = {}
    for kernel in kernels:
        groups.setdefault((str(kernel.target), kernel.has_tensors_apart), []).append(kernel)
    return list(groups.values())


def device_source(kernels: Sequence[DeviceKernel], target: Target) -> str:
    """Source code of the launches of kernels for a GPU, such as CUDA C++; nothing compiles it.

    Raises
    ------
    ValueError
        When `target` is no GPU.
    """
    if not is_gpu(target):
        raise ValueError(f"expected the target of a GPU, got {target}")
    _, device = split_host_and_device(_module_of(kernels, target))
    return str(build_launches(device, target).inspect_source()) if device.functions else ""


def _module_of(kernels: Sequence[DeviceKernel], target: Target) -> tvm.IRModule:
    for kernel in kernels:
        if str(kernel.target) != str(target):
            raise ValueError(f"{kernel.symbol} was prepared for {kernel.target}, not for {target}")
    if len({kernel.has_tensors_apart for kernel in kernels}) > 1:
        raise ValueError(
            "expected kernels whose tensors all lie apart, or such whose tensors may overlap, found"
            " both; compile each of module_groups(kernels)"
        )
    return tvm.IRModule({kernel.symbol: kernel.func for kernel in kernels})
