"""Matrix products, with operands read transposed where the kernel says so."""

from __future__ import annotations

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.matrices import Matrices, operands
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_BIAS,
    ARG_DST,
    ARG_SRC,
    ARG_WEIGHTS,
    arg_added,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder


def product(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The product of a call, None where oneDNN has no good implementation."""
    if (found := operands(call)) is None:
        return None

    def layout(matrices: Matrices) -> MemoryDesc:
        return library.plain(matrices.shape, matrices.strides)

    first, second, result = map(layout, (found.left, found.right, found.output))
    shape = found.output.shape
    bias = library.plain((*[1] * (len(shape) - 1), shape[-1])) if call.bias else None
    added = (result,) if call.residual else ()
    attributes = library.attributes(added=added)
    primitive = library.describe_good("matmul", first, second, bias, result, attributes=attributes)
    if primitive is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {
        ARG_SRC: builder.read(found.left_at, first, first),
        ARG_WEIGHTS: builder.read(found.right_at, second, second),
    }
    if bias is not None:
        arguments[ARG_BIAS] = builder.read(2, bias, bias)
    if call.residual:
        arguments[arg_added(0)] = builder.part(call.residual_input, 0, result)
    builder.compute(primitive, arguments, (ARG_DST, len(call.shapes) - 1, result, result))
    return builder.program()
