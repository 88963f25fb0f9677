"""Tensors of numbers that the program holds, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from tvm import ir, relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.arithmetic import truth
from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.literals import dtype_name
from tvm_xengine.relax_ir.types import static_shape

Number: TypeAlias = "float | bool | relax.Expr"


def full(
    builder: relax.BlockBuilder,
    size: Sequence[int],
    value: Number,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """One number everywhere."""
    if dtype is None:
        dtype = _usual_type(value)
    return _filled(builder, size, value, dtype_name(dtype))


def _usual_type(value: Number) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def full_like(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    value: Number,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
    _memory_format: object,
) -> relax.Expr:
    """One number everywhere, in the shape of x."""
    return _filled(builder, static_shape(x.ty), value, _type_of(x, dtype))


def new_full(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int],
    value: Number,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """One number everywhere, in the type of x."""
    return _filled(builder, size, value, _type_of(x, dtype))


def fill(builder: relax.BlockBuilder, x: relax.Expr, value: Number) -> relax.Expr:
    """One number everywhere, in the shape and type of x."""
    return _filled(builder, static_shape(x.ty), value, str(x.ty.dtype))


def _constant(value: float) -> tuple[Converter, Converter, Converter]:
    def of_size(
        builder: relax.BlockBuilder,
        size: Sequence[int],
        dtype: torch.dtype | None,
        _layout: object,
        _device: object,
        _pin_memory: object,
        _memory_format: object = None,
    ) -> relax.Expr:
        name = dtype_name(dtype or torch.get_default_dtype())
        return _filled(builder, size, value, name)

    def like(
        builder: relax.BlockBuilder,
        x: relax.Expr,
        dtype: torch.dtype | None,
        _layout: object,
        _device: object,
        _pin_memory: object,
        _memory_format: object,
    ) -> relax.Expr:
        return _filled(builder, static_shape(x.ty), value, _type_of(x, dtype))

    def new(
        builder: relax.BlockBuilder,
        x: relax.Expr,
        size: Sequence[int],
        dtype: torch.dtype | None,
        _layout: object,
        _device: object,
        _pin_memory: object,
    ) -> relax.Expr:
        return _filled(builder, size, value, _type_of(x, dtype))

    return of_size, like, new


def _filled(
    builder: relax.BlockBuilder, size: Sequence[int], value: Number, dtype: str
) -> relax.Expr:
    shape = tuple(int(extent) for extent in size)
    if isinstance(value, ir.Expr):
        one = relax.op.reshape(relax.op.astype(value, dtype), (1,) * len(shape))
        return builder.emit(relax.op.broadcast_to(one, shape))
    if not shape:
        return relax.const(value, dtype)
    return builder.emit(relax.op.broadcast_to(relax.const(value, dtype), shape))


def _type_of(x: relax.Expr, dtype: torch.dtype | None) -> str:
    return str(x.ty.dtype) if dtype is None else dtype_name(dtype)


def scalar_tensor(
    builder: relax.BlockBuilder,
    value: Number,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """A number as a tensor."""
    return _filled(builder, (), value, dtype_name(dtype or torch.get_default_dtype()))


def empty_permuted(
    builder: relax.BlockBuilder,
    size: Sequence[int],
    _physical_layout: Sequence[int],
    dtype: torch.dtype | None,
    *_placement: object,
) -> relax.Expr:
    """Zeros, as whoever reads the values must write them first."""
    return _filled(builder, size, 0, dtype_name(dtype or torch.get_default_dtype()))


def empty_strided(
    builder: relax.BlockBuilder,
    size: Sequence[int],
    _stride: Sequence[int],
    dtype: torch.dtype | None,
    *_placement: object,
) -> relax.Expr:
    """The same."""
    return _filled(builder, size, 0, dtype_name(dtype or torch.get_default_dtype()))


def new_empty_strided(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int],
    _stride: Sequence[int],
    dtype: torch.dtype | None,
    *_placement: object,
) -> relax.Expr:
    """The same in the type of x."""
    return _filled(builder, size, 0, _type_of(x, dtype))


def to_copy(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
    _non_blocking: bool,
    _memory_format: object,
) -> relax.Expr:
    """x in another element type."""
    return as_type(builder, x, str(x.ty.dtype) if dtype is None else dtype_name(dtype))


def to_dtype(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dtype: torch.dtype,
    _non_blocking: bool,
    _copy: bool,
    _memory_format: object,
) -> relax.Expr:
    """The same."""
    return as_type(builder, x, dtype_name(dtype))


def to_dtype_layout(
    builder: relax.BlockBuilder, x: relax.Expr, dtype: torch.dtype | None, *_placement: object
) -> relax.Expr:
    """The same."""
    return as_type(builder, x, str(x.ty.dtype) if dtype is None else dtype_name(dtype))


def to_device(
    builder: relax.BlockBuilder, x: relax.Expr, _device: object, dtype: torch.dtype, *_rest: object
) -> relax.Expr:
    """The same."""
    return as_type(builder, x, dtype_name(dtype))


def to_other(
    builder: relax.BlockBuilder, x: relax.Expr, other: relax.Expr, *_rest: object
) -> relax.Expr:
    """x in the type of another tensor."""
    return as_type(builder, x, str(other.ty.dtype))


def as_type(builder: relax.BlockBuilder, x: relax.Expr, dtype: str) -> relax.Expr:
    """x in another element type; what is not zero is true."""
    if str(x.ty.dtype) == dtype:
        return x
    return builder.emit(truth(x) if dtype == "bool" else relax.op.astype(x, dtype))


def same(_builder: relax.BlockBuilder, x: relax.Expr, _memory_format: object = None) -> relax.Expr:
    """x: what differs is where it lies."""
    return x


def copy(
    builder: relax.BlockBuilder, x: relax.Expr, source: relax.Expr, _non_blocking: bool
) -> relax.Expr:
    """The source in the shape and type of x."""
    made = as_type(builder, source, str(x.ty.dtype))
    shape = static_shape(x.ty)
    return (
        made if static_shape(made.ty) == shape else builder.emit(relax.op.broadcast_to(made, shape))
    )


def arange(
    builder: relax.BlockBuilder,
    start: float,
    end: float,
    step: float,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """start, start + step, ... below end."""
    values = torch.arange(start, end, step, dtype=dtype)
    return relax.const(values.numpy(), str(values.dtype).removeprefix("torch."))


def eye(
    builder: relax.BlockBuilder,
    rows: int,
    columns: int,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """Ones on the diagonal."""
    name = dtype_name(dtype or torch.get_default_dtype())
    return relax.const(np.eye(rows, columns, dtype=name), name)


def triangle_places(keep: str) -> Converter:
    """Rows and columns of the places on one side of the diagonal, shape (2, count)."""

    def converted(
        _builder: relax.BlockBuilder,
        rows: int,
        columns: int,
        offset: int,
        dtype: torch.dtype | None,
        _layout: object,
        _device: object,
        _pin_memory: object,
    ) -> relax.Expr:
        function = torch.tril_indices if keep == "tril" else torch.triu_indices
        values = function(rows, columns, offset, dtype=dtype or torch.int64)
        return relax.const(values.numpy(), str(values.dtype).removeprefix("torch."))

    return converted


def linspace(
    _builder: relax.BlockBuilder,
    start: float,
    end: float,
    steps: int,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """Numbers at equal distances."""
    values = torch.linspace(start, end, steps, dtype=dtype)
    return relax.const(values.numpy(), str(values.dtype).removeprefix("torch."))


def logspace(
    _builder: relax.BlockBuilder,
    start: float,
    end: float,
    steps: int,
    base: float,
    dtype: torch.dtype | None,
    _layout: object,
    _device: object,
    _pin_memory: object,
) -> relax.Expr:
    """Powers of a base at equal distances of the exponent."""
    values = torch.logspace(start, end, steps, base, dtype=dtype)
    return relax.const(values.numpy(), str(values.dtype).removeprefix("torch."))


def one_hot(builder: relax.BlockBuilder, x: relax.Expr, classes: int) -> relax.Expr:
    """1 at the place that x names, else 0."""
    if classes < 0:
        raise UnsupportedModelError("one_hot needs num_classes, which else depends on the values")
    wide = relax.op.expand_dims(x, -1)
    numbers = relax.const(np.arange(classes), str(x.ty.dtype))
    return builder.emit(relax.op.astype(relax.op.equal(wide, numbers), "int64"))


_ZEROS, _ONES = _constant(0), _constant(1)

CONVERTERS: dict[str, Converter] = {
    **{f"{name}.default": same for name in ("alias", "clone", "contiguous", "lift_fresh_copy")},
    **{f"{name}.default": same for name in ("lift_fresh", "lift", "positive", "alias_copy")},
    "_to_copy.default": to_copy,
    "arange.start_step": arange,
    "copy.default": copy,
    "empty.memory_format": _ZEROS[0],
    "empty_like.default": _ZEROS[1],
    "empty_permuted.default": empty_permuted,
    "empty_strided.default": empty_strided,
    "eye.m": eye,
    "fill.Scalar": fill,
    "fill.Tensor": fill,
    "full.default": full,
    "full_like.default": full_like,
    "linspace.default": linspace,
    "logspace.default": logspace,
    "new_empty.default": _ZEROS[2],
    "new_empty_strided.default": new_empty_strided,
    "new_full.default": new_full,
    "new_ones.default": _ONES[2],
    "new_zeros.default": _ZEROS[2],
    "one_hot.default": one_hot,
    "ones.default": _ONES[0],
    "ones_like.default": _ONES[1],
    "scalar_tensor.default": scalar_tensor,
    "to.device": to_device,
    "to.dtype": to_dtype,
    "to.dtype_layout": to_dtype_layout,
    "to.other": to_other,
    "tril_indices.default": triangle_places("tril"),
    "triu_indices.default": triangle_places("triu"),
    "zeros.default": _ZEROS[0],
    "zeros_like.default": _ZEROS[1],
}
