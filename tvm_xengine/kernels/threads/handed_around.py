"""Tensors as the other kernels of a step leave them: in the caches of all cores that its threads run on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import tvm

from tvm_xengine.kernels.threads.team import launch, openmp, rewriter_address

_PAGE_BYTES = 4096
"""What one thread writes in a row: the unit of memory that hardware prefetches within."""


class HandedAround:
    """Memory whose pages the threads of a team write in turns, with the values that they hold.

    A kernel that is called again and again finds in its core's caches what it wrote there itself. In a
    step another thread may have written it, and where cores are far from each other (on two dies, or two
    sockets) reading it takes as long as reading it from memory. Threads of two kernels do not divide their
    tensors alike, so a page is as likely with one thread as with another.

    Parameters
    ----------
    tensors
        On this machine's processor; they outlive this object.
    """

    def __init__(self, tensors: Sequence[tvm.runtime.Tensor]) -> None:
        spans = [
            (begin, min(begin + _PAGE_BYTES, end))
            for address, end in map(_span, tensors)
            for begin in range(address, end, _PAGE_BYTES)
        ]
        self._count = len(spans)
        self._spans = (ctypes.c_void_p * (2 * self._count))(*(at for span in spans for at in span))

    def hand_around(self) -> None:
        """Have the team write all of it; without OpenMP there is none."""
        if openmp() is not None and self._count:
            launch(rewriter_address(), ctypes.addressof(self._spans), self._count)


def _span(tensor: tvm.runtime.Tensor) -> tuple[int, int]:
    address = int(tensor.data_ptr())
    return address, address + tensor.numel() * tvm.DataType(tensor.dtype).itemsize
