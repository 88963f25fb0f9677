"""The interface of converters from ATen operators to Relax, and the constants that they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError

if TYPE_CHECKING:
    import torch  # converters that need none serve ONNX, too, which is read without PyTorch

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr

Converter = Callable[..., Expr | list[Expr]]
"""Takes a block builder and the arguments in the order of the operator's schema, defaults filled in,
and returns what the operator returns."""


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
