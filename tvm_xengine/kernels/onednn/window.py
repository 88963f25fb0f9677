"""The windows of a pooling as oneDNN describes them."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import FORWARD_TRAINING
from tvm_xengine.kernels.onednn.library import OnednnLibrary

_Shape = tuple[int, ...]


@dataclass(frozen=True)
class Window:
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

    def forward(self, algorithm: int, library: OnednnLibrary) -> PrimitiveDesc | None:
        """The forward primitive, which the backward one takes as a hint; None without a good one."""
        if 0 in (*self.data, *self.output):
            return None
        return library.describe_good(
            "pooling_forward",
            FORWARD_TRAINING,
            algorithm,
            *self.layouts(library),
            *self._numbers,
            attributes=library.attributes(),
        )

    def backward(self, algorithm: int, library: OnednnLibrary) -> PrimitiveDesc | None:
        """The backward primitive, None where oneDNN has no good one."""
        if (forward := self.forward(algorithm, library)) is None:
            return None
        return library.describe_good(
            "pooling_backward",
            algorithm,
            *self.layouts(library),
            *self._numbers,
            forward,
            attributes=library.attributes(),
        )

    def layouts(self, library: OnednnLibrary) -> tuple[MemoryDesc, MemoryDesc]:
        """Of data and output."""
        return library.plain(self.data), library.plain(self.output)

    @property
    def _numbers(self) -> tuple[_Shape, ...]:
        return self.strides, self.size, self.dilation, self.before, self.after


def window_of(call: LibraryCall, data: _Shape, output: _Shape) -> Window:
    """The windows that a call names."""
    strides, size, dilation = (call.numbers(n) for n in ("strides", "pool_size", "dilation"))
    rank = len(size)
    before = call.numbers("padding")[:rank]
    after = tuple(
        (output[a + 2] - 1) * strides[a] + dilation[a] * (size[a] - 1) + 1 - data[a + 2] - before[a]
        for a in range(rank)
    )
    return Window(data, output, strides, size, tuple(d - 1 for d in dilation), before, after)
