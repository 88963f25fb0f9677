"""Marking kernels whose outputs may be written over their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])
_MARK = "writes_over"


def writes_over(*pairs: tuple[int, int]) -> Callable[[_Kernel], _Kernel]:
    """Mark a kernel: for each pair (output, input), the output may share the input's bytes.

    Allowed only where every element is read before it is written, and no later stage of the
    kernel reads the old value of an element that an earlier stage replaced. Pairs of outputs that
    the kernel does not make for its options are without effect.
    """

    def mark(kernel: _Kernel) -> _Kernel:
        setattr(kernel, _MARK, pairs)
        return kernel

    return mark


def overwritten_pairs(kernel: Callable[..., object]) -> tuple[tuple[int, int], ...]:
    """The pairs (output, input) of a kernel that may share bytes."""
    pairs: tuple[tuple[int, int], ...] = getattr(kernel, _MARK, ())
    return pairs
