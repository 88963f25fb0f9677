"""Creation of tensors from numbers in the program, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from tvm import ir, relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.arithmetic import truth
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, dtype_name
from tvm_xengine.relax_ir.types import static_shape

Number: TypeAlias = "float | bool | Expr"


def full(
    builder: Builder,
    size: Sequence[int],
    value: Number,
    dtype: torch.dtype | None,
    *_placement: object,
) -> Expr:
    """One number everywhere."""
    if dtype is None:
        dtype = _usual_type(value)
    return _filled(builder, size, value, dtype_name(dtype))


def _usual_type(value: Number) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def full_like(
    builder: Builder, x: Expr, value: Number, dtype: torch.dtype | None = None, *_placement: object
) -> Expr:
    """One number everywhere, in the shape of x."""
    return _filled(builder, static_shape(x.ty), value, _type_of(x, dtype))


def new_full(
    builder: Builder,
    x: Expr,
    size: Sequence[int],
    value: Number,
    dtype: torch.dtype | None,
    *_placement: object,
) -> Expr:
    """One number everywhere, in the type of x."""
    return _filled(builder, size, value, _type_of(x, dtype))


def empty(
    builder: Builder, size: Sequence[int], dtype: torch.dtype | None, *_placement: object
) -> Expr:
    """Zeros, as whoever reads the values must write them first."""
    return _filled(builder, size, 0, dtype_name(dtype or torch.get_default_dtype()))


def constant_like(value: float) -> Converter:
    """A known number in the shape of a tensor."""
    return lambda builder, x, dtype, *_placement: full_like(builder, x, value, dtype)


def constant_beside(value: float) -> Converter:
    """The same in the type of a tensor."""
    return lambda builder, x, size, dtype, *_placement: new_full(builder, x, size, value, dtype)


def _filled(builder: Builder, size: Sequence[int], value: Number, dtype: str) -> Expr:
    shape = tuple(int(extent) for extent in size)
    if isinstance(value, ir.Expr):
        one = relax.op.reshape(relax.op.astype(value, dtype), (1,) * len(shape))
        return builder.emit(relax.op.broadcast_to(one, shape))
    if not shape:
        return relax.const(value, dtype)
    return builder.emit(relax.op.broadcast_to(relax.const(value, dtype), shape))


def _type_of(x: Expr, dtype: torch.dtype | None) -> str:
    return str(x.ty.dtype) if dtype is None else dtype_name(dtype)


def scalar_tensor(
    builder: Builder, value: Number, dtype: torch.dtype | None, *_placement: object
) -> Expr:
    """A number as a tensor."""
    return _filled(builder, (), value, dtype_name(dtype or torch.get_default_dtype()))


def empty_strided(
    builder: Builder,
    size: Sequence[int],
    _stride: Sequence[int],
    dtype: torch.dtype | None,
    *_placement: object,
) -> Expr:
    """The same."""
    return empty(builder, size, dtype)


def new_empty_strided(
    builder: Builder,
    x: Expr,
    size: Sequence[int],
    _stride: Sequence[int],
    dtype: torch.dtype | None,
    *_placement: object,
) -> Expr:
    """The same in the type of x."""
    return _filled(builder, size, 0, _type_of(x, dtype))


def to_dtype(builder: Builder, x: Expr, dtype: torch.dtype | None, *_placement: object) -> Expr:
    """x in another element type."""
    return as_type(builder, x, _type_of(x, dtype))


def to_device(
    builder: Builder, x: Expr, _device: object, dtype: torch.dtype, *_rest: object
) -> Expr:
    """The same."""
    return as_type(builder, x, dtype_name(dtype))


def to_other(builder: Builder, x: Expr, other: Expr, *_rest: object) -> Expr:
    """x in the type of another tensor."""
    return as_type(builder, x, str(other.ty.dtype))


def as_type(builder: Builder, x: Expr, dtype: str) -> Expr:
    """x in another element type; what is not zero is true."""
    if str(x.ty.dtype) == dtype:
        return x
    return builder.emit(truth(x) if dtype == "bool" else relax.op.astype(x, dtype))


def same(_builder: Builder, x: Expr, _memory_format: object = None) -> Expr:
    """x: what differs is where it lies."""
    return x


def copy(builder: Builder, x: Expr, source: Expr, _non_blocking: bool) -> Expr:
    """The source in the shape and type of x."""
    made = as_type(builder, source, str(x.ty.dtype))
    shape = static_shape(x.ty)
    return (
        made if static_shape(made.ty) == shape else builder.emit(relax.op.broadcast_to(made, shape))
    )


def of_known_numbers(*_arguments: object) -> Expr:
    """Such tensors PyTorch makes itself during the import, unless a size is computed."""
    raise UnsupportedModelError("its arguments depend on the values of tensors")


def one_hot(builder: Builder, x: Expr, classes: int) -> Expr:
    """1 at the place that x names, else 0.

    The place is looked up among all of them, so that another one is refused like every wrong index.
    """
    if classes < 0:
        raise UnsupportedModelError("one_hot needs num_classes, which else depends on the values")
    numbers = relax.const(np.arange(classes), str(x.ty.dtype))
    shape = static_shape(x.ty)
    flat = relax.op.take(numbers, relax.op.reshape(x, (prod(shape),)), axis=0)
    wide = relax.op.reshape(builder.emit(flat), (*shape, 1))
    return builder.emit(relax.op.astype(relax.op.equal(wide, numbers), "int64"))


_MADE_WHILE_IMPORTING = (
    *("arange.start_step", "eye.m", "linspace.default", "logspace.default", "ones.default"),
    *("tril_indices.default", "triu_indices.default", "zeros.default"),
)

CONVERTERS: dict[str, Converter] = {
    **{f"{name}.default": same for name in ("alias", "clone", "contiguous", "lift_fresh_copy")},
    **{f"{name}.default": same for name in ("lift_fresh", "lift", "positive", "alias_copy")},
    **dict.fromkeys(_MADE_WHILE_IMPORTING, of_known_numbers),
    **dict.fromkeys(("_to_copy.default", "to.dtype", "to.dtype_layout"), to_dtype),
    "copy.default": copy,
    "empty.memory_format": empty,
    "empty_like.default": constant_like(0),
    "empty_permuted.default": empty_strided,
    "empty_strided.default": empty_strided,
    "fill.Scalar": full_like,
    "fill.Tensor": full_like,
    "full.default": full,
    "full_like.default": full_like,
    "new_empty.default": constant_beside(0),
    "new_empty_strided.default": new_empty_strided,
    "new_full.default": new_full,
    "new_ones.default": constant_beside(1),
    "new_zeros.default": constant_beside(0),
    "one_hot.default": one_hot,
    "ones_like.default": constant_like(1),
    "scalar_tensor.default": scalar_tensor,
    "to.device": to_device,
    "to.other": to_other,
    "zeros_like.default": constant_like(0),
}
