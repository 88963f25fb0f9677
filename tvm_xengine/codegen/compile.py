"""Compile prepared kernels to machine code."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.target import Target

from tvm_xengine.codegen.device_kernel import DeviceKernel
from tvm_xengine.codegen.lowering import lower_to_packed_calls


def compile_kernels(kernels: Sequence[DeviceKernel], target: Target) -> tvm.runtime.Module:
    """Compile kernels into one module with a function per kernel, named by its symbol.

    One module holds the code of one target: TVM would compile the kernels of two targets for the
    first of them. Modules of several targets can be imported into one executable.
    """
    for kernel in kernels:
        if str(kernel.target) != str(target):
            raise ValueError(f"{kernel.symbol} was prepared for {kernel.target}, not for {target}")
    module = tvm.IRModule({kernel.symbol: kernel.func for kernel in kernels})
    module = lower_to_packed_calls()(module)
    build = tvm.get_global_func(f"target.build.{target.kind.name}")
    return build(module, target)
