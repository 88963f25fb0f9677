"""Constants in the type of the tensors that they meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax


def scalar(value: float, like: relax.Expr) -> relax.Expr:
    """A number of the type of another tensor."""
    return relax.const(value, str(like.ty.dtype))


def filled(shape: Sequence[int], value: float, like: relax.Expr) -> relax.Expr:
    """A tensor of one number, of the type of another tensor."""
    dtype = str(like.ty.dtype)
    return relax.const(np.full(tuple(shape), value, dtype), dtype)


def per_axis(values: Sequence[int], rank: int) -> list[int]:
    """One number for each axis; a single one holds for all."""
    return [int(value) for value in values] * (rank if len(values) == 1 else 1)
