"""Kernels that only take time, to put between the calls of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import tirx

from tests.runtime.test_executable import kernels
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.store.compile import compile_kernels, module_groups
from tvm_xengine.program.step_program import KernelRun

Compiled = tuple[Mapping[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]]


def compiled_with(helpers: tvm.IRModule) -> Compiled:
    """The kernels of the small step, and libraries of each device's and of others."""
    made = kernels()
    libraries = [
        compile_kernels(group, group[0].target)
        for device in dict.fromkeys(on for _, on in made)
        for group in module_groups(
            list({k.symbol: k for (_, on), k in made.items() if on == device}.values())
        )
    ]
    return made, [*libraries, tvm.compile(helpers, target="llvm").mod]


def delay_kernels(delays_us: Sequence[int]) -> tvm.IRModule:
    """A kernel without arguments for each delay."""
    functions = {}
    for delay_us in delays_us:
        sleep = tirx.Evaluate(tirx.call_extern("int32", "usleep", tirx.const(delay_us, "int32")))
        functions[f"sleep_{delay_us}"] = tirx.PrimFunc([], sleep)
    return tvm.IRModule(
        {name: function.with_attr("global_symbol", name) for name, function in functions.items()}
    )


def helper_call(symbol: str) -> KernelRun:
    """The call of a kernel without arguments."""
    return KernelRun(-1, symbol, symbol, "", (), (), None, False, False, False)


def delay(delay_us: int) -> KernelRun:
    """The call that takes so long."""
    return helper_call(f"sleep_{delay_us}")
