"""Constants in the type of the tensors that they are combined with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Expr


def dtype_name(dtype: torch.dtype) -> str:
    """TVM's name of an element type."""
    name = str(dtype).removeprefix("torch.")
    if name.startswith(("complex", "float8", "q", "bits")):
        raise UnsupportedModelError(f"elements of the type {name} are not supported")
    return name


def scalar(value: float, like: Expr) -> Expr:
    """A number of the type of another tensor."""
    return relax.const(value, str(like.ty.dtype))


def filled(shape: Sequence[int], value: float, like: Expr) -> Expr:
    """A tensor of one number, of the type of another tensor."""
    dtype = str(like.ty.dtype)
    return relax.const(np.full(tuple(shape), value, dtype), dtype)


def per_axis(values: Sequence[int], rank: int) -> list[int]:
    """One number for each axis; a single one holds for all."""
    return [int(value) for value in values] * (rank if len(values) == 1 else 1)
