"""The backward pass of max pooling.

Our kernels hand on the position of each maximum in its window as int32, where oneDNN keeps it in
its workspace, in a type of its own. oneDNN's maxima themselves are not used: they leave NaN out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DIFF_DST,
    ARG_DIFF_SRC,
    ARG_WORKSPACE,
    FORWARD_TRAINING,
    POOLING_MAX,
    QUERY_WORKSPACE,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder

_Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Window:
    """A pooling from `data` to `output`.

    Attributes
    ----------
    dilation
        Counted from 0.
    after
        Padding behind the last element that a window reads, less than 0 where elements are left.
    """

    data: _Shape
    output: _Shape
    strides: _Shape
    size: _Shape
    dilation: _Shape
    before: _Shape
    after: _Shape

    def forward(self, library: OnednnLibrary) -> PrimitiveDesc | None:
        """The forward primitive, which the backward one takes as a hint; None without a good one."""
        if 0 in (*self.data, *self.output) or not self._overlap:
            return None
        return library.describe_good(
            "pooling_forward",
            FORWARD_TRAINING,
            POOLING_MAX,
            *self.layouts(library),
            *self._numbers,
            attributes=library.attributes(),
        )

    def backward(self, library: OnednnLibrary) -> PrimitiveDesc | None:
        """The backward primitive, None where oneDNN has no good one."""
        if (forward := self.forward(library)) is None:
            return None
        return library.describe_good(
            "pooling_backward",
            POOLING_MAX,
            *self.layouts(library),
            *self._numbers,
            forward,
            attributes=library.attributes(),
        )

    def layouts(self, library: OnednnLibrary) -> tuple[MemoryDesc, MemoryDesc]:
        """Of data and output."""
        return library.plain(self.data), library.plain(self.output)

    @property
    def _overlap(self) -> bool:
        """Whether an element may lie in several windows; else generated code is faster."""
        return any(s < size for s, size in zip(self.strides, self.size, strict=True))

    @property
    def _numbers(self) -> tuple[_Shape, ...]:
        return self.strides, self.size, self.dilation, self.before, self.after


def _window_of(call: LibraryCall, data: _Shape, output: _Shape) -> _Window:
    """The windows that a call names."""
    strides, size, dilation = (call.numbers(n) for n in ("strides", "pool_size", "dilation"))
    rank = len(size)
    before = call.numbers("padding")[:rank]
    after = tuple(
        (output[a + 2] - 1) * strides[a] + dilation[a] * (size[a] - 1) + 1 - data[a + 2] - before[a]
        for a in range(rank)
    )
    return _Window(data, output, strides, size, tuple(d - 1 for d in dilation), before, after)


def max_pool_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, positions) -> gradient of the data."""
    window = _window_of(call, call.shapes[2], call.shapes[0])
    pooling = window.backward(library)
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
