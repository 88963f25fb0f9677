"""Softmax over one axis."""

from __future__ import annotations

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DST,
    ARG_SRC,
    FORWARD_TRAINING,
    SOFTMAX_ACCURATE,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder


def softmax(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """exp(x) / sum exp(x) over the option `axis`."""
    tensor = library.plain(call.shapes[0])
    primitive = library.describe_good(
        "softmax_forward",
        FORWARD_TRAINING,
        SOFTMAX_ACCURATE,
        tensor,
        tensor,
        call.number("axis"),
        attributes=library.attributes(),
    )
    if primitive is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {ARG_SRC: builder.part(0, 0, tensor)}
    builder.compute(primitive, arguments, (ARG_DST, 1, tensor, tensor))
    return builder.program()
