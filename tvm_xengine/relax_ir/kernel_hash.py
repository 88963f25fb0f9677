"""Identify a kernel by what it computes."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from tvm_xengine.relax_ir.kernel_attributes import PARTS_ATTR

_NOT_PART_OF_A_KERNEL = ("global_symbol", "op_pattern", "target", PARTS_ATTR)


def kernel_hash(kernel: tirx.PrimFunc) -> str:
    """Return a key that equal kernels share, in every process.

    It covers the unscheduled function, its attributes and its shapes, not the names in it.
    """
    for attribute in _NOT_PART_OF_A_KERNEL:
        kernel = kernel.without_attr(attribute)
    return f"{tvm_ffi.structural_hash(kernel) & (2**64 - 1):016x}"
