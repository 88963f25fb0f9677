"""Compile prepared kernels to machine code."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import ir
from tvm.target import Target

from tvm_xengine.codegen.device_kernel import DeviceKernel
from tvm_xengine.codegen.lowering import lower_to_packed_calls
from tvm_xengine.errors import UnsupportedModuleError


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
    _require_no_allocation(module)
    build = tvm.get_global_func(f"target.build.{target.kind.name}")
    return build(module, target)


def _require_no_allocation(module: tvm.IRModule) -> None:
    for symbol, func in module.functions_items():
        called: set[str] = set()

        def visit(call: ir.Call, called: set[str] = called) -> None:
            called.add(str(call.op.name) if isinstance(call.op, ir.Op) else "")

        tvm_ffi.structural_walk(func.body, (ir.Call, visit))
        if "tirx.TVMBackendAllocWorkspace" in called:
            raise UnsupportedModuleError(f"kernel {symbol.name_hint} would allocate memory")
