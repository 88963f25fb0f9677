"""Keys that identify a kernel by the code that is compiled and by the compiler."""

from __future__ import annotations

from functools import cache

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import Target
from tvm.target.codegen import llvm_version_major

from tvm_xengine.kernels.digest import digest
from tvm_xengine.kernels.lower.gpu_lowering import launch_passes
from tvm_xengine.kernels.lower.pipeline import PACKED_CALLS_REVISION, packed_call_passes
from tvm_xengine.relax_ir.kernel_attributes import KERNEL_ATTR, OPTIONS_ATTR, kernel_hash

FORMAT = 1
"""Version of the keys; a greater one makes every compiled and measured kernel an old one."""


def kernel_key(lowered: tirx.PrimFunc, target: Target, **facts: str) -> str:
    """A key that kernels share whose machine code is the same, in every process.

    It covers the lowered function with its shapes, not the names in it; the target; and the
    versions of what turns it into machine code. How the function came about, from the source code
    of this package to the schedule, shows in the function alone.

    Parameters
    ----------
    facts
        What else the code depends on, such as the version of a library that it calls.
    """
    for attribute in (KERNEL_ATTR, OPTIONS_ATTR):
        lowered = lowered.without_attr(attribute)
    return digest(
        {
            "lowered": kernel_hash(lowered),
            "target": str(target),
            "toolchain": toolchain_key(),
            **facts,
        }
    )


@cache
def toolchain_key() -> str:
    """A key for the versions of TVM, its FFI and LLVM, and for the passes behind the lowered function."""
    return digest(
        {
            "format": str(FORMAT),
            "tvm": str(tvm.__version__),
            "ffi": str(tvm_ffi.__version__),
            "llvm": str(llvm_version_major()),
            "passes": " ".join(
                f"{each.info.name}@{each.info.opt_level}"
                for each in (*packed_call_passes(), *launch_passes())
            ),
            "revision": str(PACKED_CALLS_REVISION),
        }
    )
