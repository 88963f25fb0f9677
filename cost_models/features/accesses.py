"""The memory accesses of a lowered kernel."""

from __future__ import annotations

from typing import NamedTuple


class Tensor(NamedTuple):
    """The memory of an access; equal for equal memory, unless the kernel casts pointers."""

    number: int
    size_bytes: int


class Access(NamedTuple):
    """A load or store inside loops.

    Attributes
    ----------
    start_bytes
        Where it begins in the tensor in the first iteration of all loops.
    strides_bytes
        For each loop, outermost first, how far the address moves in one iteration.
    spans_bytes
        For each loop, how far it has moved in the last iteration.
    lanes
        Elements that are touched at once, and `lane_stride` elements lie between two of them.
    """

    tensor: Tensor
    element_bytes: int
    lanes: int
    lane_stride: int
    start_bytes: int
    strides_bytes: tuple[int, ...]
    spans_bytes: tuple[int, ...]

    @property
    def bytes_at_once(self) -> int:
        """Bytes that one execution touches."""
        return self.element_bytes * (self.lanes if self.lane_stride else 1)

    @property
    def inner_stride_bytes(self) -> int:
        """How far the address moves in one iteration of the innermost loop."""
        return self.strides_bytes[-1] if self.strides_bytes else 0
