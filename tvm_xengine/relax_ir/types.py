"""Tensor types whose shape is static, and their sizes."""

from __future__ import annotations

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tvm_xengine.errors import UnsupportedModelError, UnsupportedModuleError

Array = NDArray[np.generic]

SHORT_FLOATS = ("float16", "bfloat16")
"""Types in which sums, and small updates of a parameter, are lost."""


def is_static(ty: tvm.ir.Type) -> bool:
    """Whether every dimension of a tensor type is a number."""
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return False
    return all(isinstance(extent, tirx.IntImm) for extent in ty.shape)


def static_shape(ty: tvm.ir.Type) -> tuple[int, ...]:
    """The dimensions of a tensor type, which must be static."""
    if not is_static(ty):
        raise UnsupportedModelError(f"expected a tensor of fixed shape, found {ty}")
    return tuple(int(extent) for extent in ty.shape)


def tensor_type(array: Array) -> relax.TensorType:
    """The Relax type of a numpy array."""
    return relax.TensorType(array.shape, str(array.dtype))


def constant_value(value: relax.Expr) -> Array | None:
    """The numbers of a constant; None of what is computed."""
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def static_tensor(name: str, ty: relax.Type) -> tuple[tuple[int, ...], str]:
    """(shape, dtype) of a tensor type whose shape is known."""
    shape = getattr(ty, "shape", None)
    if not isinstance(ty, relax.TensorType) or not isinstance(shape, relax.ShapeExpr):
        raise UnsupportedModuleError(
            f"{name}: expected a tensor of known static shape, found {ty}; bind its symbolic"
            " dimensions first (relax.transform.BindSymbolicVars)"
        )
    dims = []
    for dim in shape.values:
        if not isinstance(dim, tirx.IntImm):
            raise UnsupportedModuleError(
                f"{name}: dimension {dim} of {ty} is symbolic; bind it to a number first"
                " (relax.transform.BindSymbolicVars)"
            )
        dims.append(int(dim))
    return tuple(dims), str(ty.dtype)
