"""Averages of windows, and the way back."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DIFF_DST,
    ARG_DIFF_SRC,
    ARG_DST,
    ARG_SRC,
    POOLING_AVG_EXCLUDE_PADDING,
    POOLING_AVG_INCLUDE_PADDING,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder
from tvm_xengine.kernels.onednn.window import Window, window_of


def avg_pool(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """data -> averages; with the option `count_include_pad` padding counts as zeros."""
    window = window_of(call, call.shapes[0], call.shapes[1])
    algorithm = _algorithm(call, window)
    return None if algorithm is None else _forward(window, algorithm, library)


def avg_pool_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """Output gradient -> gradient of the data."""
    window = window_of(call, call.shapes[1], call.shapes[0])
    algorithm = _algorithm(call, window)
    return None if algorithm is None else _backward(window, algorithm, library)


def adaptive_avg_pool(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """data -> averages over windows side by side, where they are all of one size."""
    window = _side_by_side(call.shapes[0], call.shapes[1])
    return None if window is None else _forward(window, POOLING_AVG_EXCLUDE_PADDING, library)


def adaptive_avg_pool_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """Output gradient -> gradient of the data."""
    window = _side_by_side(call.shapes[1], call.shapes[0])
    return None if window is None else _backward(window, POOLING_AVG_EXCLUDE_PADDING, library)


def _forward(window: Window, algorithm: int, library: OnednnLibrary) -> Program | None:
    data, output = window.layouts(library)
    tensors = {ARG_SRC: data, ARG_DST: output}
    return _one_call(window.forward(algorithm, library), tensors, library)


def _backward(window: Window, algorithm: int, library: OnednnLibrary) -> Program | None:
    data, output = window.layouts(library)
    tensors = {ARG_DIFF_DST: output, ARG_DIFF_SRC: data}
    return _one_call(window.backward(algorithm, library), tensors, library)


def _one_call(
    pooling: PrimitiveDesc | None, tensors: Mapping[int, MemoryDesc], library: OnednnLibrary
) -> Program | None:
    """A program of one primitive, whose arguments are the op's tensors in order."""
    if pooling is None:
        return None
    builder = ProgramBuilder(library)
    places = {
        argument: builder.part(at, 0, layout)
        for at, (argument, layout) in enumerate(tensors.items())
    }
    builder.run(pooling, places)
    return builder.program()


def _algorithm(call: LibraryCall, window: Window) -> int | None:
    """How padding counts; None for windows beyond the padding, whose rest oneDNN counts, too."""
    if not call.option["count_include_pad"]:
        return POOLING_AVG_EXCLUDE_PADDING
    given = call.numbers("padding")[len(window.size) :]
    if any(needed > most for needed, most in zip(window.after, given, strict=True)):
        return None
    return POOLING_AVG_INCLUDE_PADDING


def _side_by_side(data: tuple[int, ...], output: tuple[int, ...]) -> Window | None:
    pairs = list(zip(data[2:], output[2:], strict=True))
    if any(not out or extent % out for extent, out in pairs):
        return None
    size = tuple(extent // out for extent, out in pairs)
    none = (0,) * len(size)
    return Window(data, output, size, size, none, none, none)
