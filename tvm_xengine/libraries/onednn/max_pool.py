"""Maxima of overlapping windows, and the way back.

Our kernels hand on the position of each maximum in its window as int32, where oneDNN keeps it in
its workspace, in a type of its own. Windows that do not overlap are faster as generated code.
"""

from __future__ import annotations

from tvm_xengine.libraries.library_call import LibraryCall
from tvm_xengine.libraries.onednn.library import (
    ARG_DIFF_DST,
    ARG_DIFF_SRC,
    ARG_DST,
    ARG_SRC,
    ARG_WORKSPACE,
    FORWARD_TRAINING,
    POOLING_MAX,
    QUERY_WORKSPACE,
    OnednnLibrary,
    PrimitiveDesc,
)
from tvm_xengine.libraries.onednn.program import Program, ProgramBuilder

_Shape = tuple[int, ...]


def max_pool_forward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """data -> (maxima, positions)."""
    data, output = call.shapes[0], call.shapes[1]
    pooling = _forward(call, data, output, library)
    if pooling is None:
        return None
    builder = ProgramBuilder(library)
    found = builder.scratch(pooling.memory_desc(QUERY_WORKSPACE))
    builder.run(
        pooling,
        {
            ARG_SRC: builder.part(0, 0, library.plain(data)),
            ARG_DST: builder.part(1, 0, library.plain(output)),
            ARG_WORKSPACE: found,
        },
    )
    builder.copy(found, builder.part(2, 0, library.plain_int32(output)))
    return builder.program()


def max_pool_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, positions) -> gradient of the data."""
    output, data = call.shapes[0], call.shapes[2]
    forward = _forward(call, data, output, library)
    if forward is None:
        return None
    pooling = library.describe_good(
        "pooling_backward",
        POOLING_MAX,
        library.plain(data),
        library.plain(output),
        *_window(call, data, output),
        forward,
        attributes=library.attributes(),
    )
    if pooling is None:
        return None
    builder = ProgramBuilder(library)
    found = builder.scratch(forward.memory_desc(QUERY_WORKSPACE))
    builder.copy(builder.part(1, 0, library.plain_int32(output)), found)
    builder.run(
        pooling,
        {
            ARG_DIFF_DST: builder.part(0, 0, library.plain(output)),
            ARG_WORKSPACE: found,
            ARG_DIFF_SRC: builder.part(2, 0, library.plain(data)),
        },
    )
    return builder.program()


def _forward(
    call: LibraryCall, data: _Shape, output: _Shape, library: OnednnLibrary
) -> PrimitiveDesc | None:
    if not _overlap(call) or 0 in (*data, *output):
        return None
    return library.describe_good(
        "pooling_forward",
        FORWARD_TRAINING,
        POOLING_MAX,
        library.plain(data),
        library.plain(output),
        *_window(call, data, output),
        attributes=library.attributes(),
    )


def _overlap(call: LibraryCall) -> bool:
    pairs = zip(call.numbers("strides"), call.numbers("pool_size"), strict=True)
    return any(stride < size for stride, size in pairs)


def _window(call: LibraryCall, data: _Shape, output: _Shape) -> tuple[_Shape, ...]:
    """Strides, size, dilation (counted from 0), and padding before and behind."""
    strides, size, dilation = (call.numbers(n) for n in ("strides", "pool_size", "dilation"))
    rank = len(size)
    before = call.numbers("padding")[:rank]
    after = tuple(
        (output[a + 2] - 1) * strides[a] + dilation[a] * (size[a] - 1) + 1 - data[a + 2] - before[a]
        for a in range(rank)
    )
    return strides, size, tuple(d - 1 for d in dilation), before, after
