"""Compiled: sets of tensors as words of bits, at some offset in a row."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.astar.view import Words
from tvm_xengine.solvers.compiled import inlined

ONE = np.uint64(1)
"""Numba turns a mixture of uint64 and a plain 1, which is int64, into float64."""


@inlined
def has(row: Words, offset: int, j: int) -> bool:
    """Whether the set at `offset` contains `j`."""
    is_in: bool = (row[offset + (j >> 6)] >> np.uint64(j & 63)) & ONE != 0
    return is_in


@inlined
def put(row: Words, offset: int, j: int) -> None:
    """Add `j` to the set at `offset`."""
    row[offset + (j >> 6)] |= ONE << np.uint64(j & 63)


@inlined
def take(row: Words, offset: int, j: int) -> None:
    """Remove `j` from the set at `offset`."""
    row[offset + (j >> 6)] &= ~(ONE << np.uint64(j & 63))


@inlined
def assign(row: Words, source: Words) -> None:
    """Copy a row."""
    for k in range(row.size):
        row[k] = source[k]
