"""The attributes of a kernel (a TIR PrimFunc), and the key of what it computes."""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import tirx

INPLACE_ATTR = "tvm_xengine.inplace"
"""Flat pairs (output, input): that output may be written over that input."""

KERNEL_ATTR = "tvm_xengine.kernel"
"""Name of what a kernel computes."""

OPTIONS_ATTR = "tvm_xengine.options"
"""Options of that, by name."""

PARTS_ATTR = "tvm_xengine.parts"
"""Of a fused kernel: the kernels it was made of, and how they are connected."""

KEPT_ATTR = "tvm_xengine.kept"
"""On a stage of a kernel: its elements are read so often that they are stored, not computed anew."""

CALLS_FUNCTIONS_ATTR = "tvm_xengine.calls_functions"
"""On a scheduled kernel: it calls functions such as ``exp``, which are small once, not written into it."""

_NOT_PART_OF_A_KERNEL = ("global_symbol", "op_pattern", "target", PARTS_ATTR, CALLS_FUNCTIONS_ATTR)


@dataclass(frozen=True)
class InplacePair:
    """Output number `output` of a kernel lies in the memory of its input number `input`."""

    output: int
    input: int


def inplace_pairs(kernel: tirx.PrimFunc) -> tuple[InplacePair, ...]:
    """Return the pairs that the attribute ``tvm_xengine.inplace`` of a kernel declares."""
    flat = [int(i) for i in kernel.attrs.get(INPLACE_ATTR, ())] if kernel.attrs else []
    return tuple(InplacePair(*pair) for pair in zip(flat[::2], flat[1::2], strict=True))


def kernel_hash(kernel: tirx.PrimFunc) -> str:
    """Return a key that equal kernels share, in every process.

    It covers the unscheduled function, its attributes and its shapes, not the names in it.
    """
    for attribute in _NOT_PART_OF_A_KERNEL:
        kernel = kernel.without_attr(attribute)
    return f"{tvm_ffi.structural_hash(kernel) & (2**64 - 1):016x}"
