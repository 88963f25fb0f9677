"""Maxima of windows, and the way back.

Our kernels hand on the position of each maximum in its window as int32, where oneDNN keeps it in
its workspace, in a type of its own.
"""

from __future__ import annotations

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DIFF_DST,
    ARG_DIFF_SRC,
    ARG_DST,
    ARG_SRC,
    ARG_WORKSPACE,
    POOLING_MAX,
    QUERY_WORKSPACE,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder
from tvm_xengine.kernels.onednn.window import window_of


def max_pool_forward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """data -> (maxima, positions)."""
    window = window_of(call, call.shapes[0], call.shapes[1])
    pooling = window.forward(POOLING_MAX, library)
    if pooling is None:
        return None
    builder = ProgramBuilder(library)
    found = builder.scratch(pooling.memory_desc(QUERY_WORKSPACE))
    data, output = window.layouts(library)
    builder.run(
        pooling,
        {
            ARG_SRC: builder.part(0, 0, data),
            ARG_DST: builder.part(1, 0, output),
            ARG_WORKSPACE: found,
        },
    )
    builder.copy(found, builder.part(2, 0, library.plain_int32(window.output)))
    return builder.program()


def max_pool_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, positions) -> gradient of the data."""
    window = window_of(call, call.shapes[2], call.shapes[0])
    pooling = window.backward(POOLING_MAX, library)
    if pooling is None:
        return None
    builder = ProgramBuilder(library)
    found = builder.scratch(pooling.memory_desc(QUERY_WORKSPACE))
    builder.copy(builder.part(1, 0, library.plain_int32(window.output)), found)
    data, output = window.layouts(library)
    builder.run(
        pooling,
        {
            ARG_DIFF_DST: builder.part(0, 0, output),
            ARG_WORKSPACE: found,
            ARG_DIFF_SRC: builder.part(2, 0, data),
        },
    )
    return builder.program()


def windows_overlap(call: LibraryCall) -> bool:
    """Whether an element may lie in several windows."""
    pairs = zip(call.numbers("strides"), call.numbers("pool_size"), strict=True)
    return any(stride < size for stride, size in pairs)
