"""Normalisations and dropout, in the forms that training needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, filled, scalar
from tvm_xengine.relax_ir.types import SHORT_FLOATS, static_shape


def _in_float32(norm: Converter) -> Converter:
    """A norm that computes on float16 and bfloat16 in float32, as PyTorch does; only y is rounded."""

    @wraps(norm)
    def converted(builder: Builder, x: Expr, *arguments: object) -> Expr | list[Expr]:
        dtype = str(x.ty.dtype)
        if dtype not in SHORT_FLOATS:
            return norm(builder, x, *arguments)

        def wide(value: object) -> object:
            is_short = str(getattr(getattr(value, "ty", None), "dtype", "")) == dtype
            return builder.emit(relax.op.astype(value, "float32")) if is_short else value

        made = norm(builder, wide(x), *map(wide, arguments))
        y, *others = made if isinstance(made, list) else [made]
        narrow = builder.emit(relax.op.astype(y, dtype))
        return [narrow, *others] if isinstance(made, list) else narrow

    return converted


def batch_norm(
    builder: Builder,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    var: Expr,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[Expr]:
    """(y, mean, inverse deviation, running mean, running variance)."""
    channels = (static_shape(x.ty)[1],)
    made = builder.emit(
        relax.op.nn.batch_norm(
            x,
            filled(channels, 1, x) if weight is None else weight,
            filled(channels, 0, x) if bias is None else bias,
            mean,
            var,
            axis=1,
            epsilon=epsilon,
            momentum=momentum,
            training=training,
        )
    )
    y, new_mean, new_var = (builder.emit(relax.TupleGetItem(made, k)) for k in range(3))
    return [y, new_mean, new_var, new_mean, new_var]


def native_dropout(builder: Builder, x: Expr, rate: float, training: bool | None) -> list[Expr]:
    """(y, mask); the mask is for PyTorch's backward pass."""
    y = dropout(builder, x, rate, training is None or training)
    return [y, y]


def dropout(builder: Builder, x: Expr, rate: float, training: bool) -> Expr:
    """Zero with probability `rate`."""
    if not training or not rate:
        return x
    if rate == 1:
        return builder.emit(relax.op.multiply(x, scalar(0, x)))
    return builder.emit(relax.TupleGetItem(builder.emit(relax.op.nn.dropout(x, rate)), 0))


def rms_norm(
    builder: Builder,
    x: Expr,
    normalized_shape: Sequence[int],
    weight: Expr | None,
    epsilon: float | None,
) -> Expr:
    """x / sqrt(mean(x^2) + epsilon) * weight over the trailing axes."""
    tail = tuple(int(extent) for extent in normalized_shape)
    axes = list(range(-len(tail), 0))
    scale = filled(tail, 1, x) if weight is None else weight
    smallest = float(np.finfo(str(x.ty.dtype)).eps) if epsilon is None else epsilon
    return builder.emit(relax.op.nn.rms_norm(x, scale, axes, smallest))


def layer_norm(
    builder: Builder,
    x: Expr,
    normalized_shape: Sequence[int],
    weight: Expr | None,
    bias: Expr | None,
    epsilon: float,
    _: bool,
) -> Expr:
    """Normalised over the trailing axes, with or without weight and bias."""
    tail = tuple(int(extent) for extent in normalized_shape)
    scale = filled(tail, 1, x) if weight is None else weight
    shift = filled(tail, 0, x) if bias is None else bias
    axes = list(range(-len(tail), 0))
    return builder.emit(relax.op.nn.layer_norm(x, scale, shift, axes, epsilon))


def group_norm(
    builder: Builder,
    x: Expr,
    groups: int,
    weight: Expr | None,
    bias: Expr | None,
    epsilon: float,
    _cudnn: bool,
) -> Expr:
    """Every image's groups of channels, less their mean, over their deviation."""
    shape = static_shape(x.ty)
    return builder.emit(
        relax.op.nn.group_norm(
            x,
            filled(shape[1:2], 1, x) if weight is None else weight,
            filled(shape[1:2], 0, x) if bias is None else bias,
            num_groups=groups,
            channel_axis=1,
            axes=list(range(2, len(shape))),
            epsilon=epsilon,
        )
    )


def batch_norm_of_statistics(
    builder: Builder,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    var: Expr,
    momentum: float,
    epsilon: float,
) -> list[Expr]:
    """(y, mean, inverse deviation) of the running statistics; the last two have no readers."""
    return batch_norm(builder, x, weight, bias, mean, var, False, momentum, epsilon)[:3]


def batch_norm_of_batch(
    builder: Builder,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    _training: bool,
    _momentum: float,
    epsilon: float,
) -> list[Expr]:
    """(y, mean, inverse deviation) of the batch; there are no running statistics."""
    shape = static_shape(x.ty)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    mean = builder.emit(relax.op.mean(x, axes, keepdims=True))
    var = builder.emit(relax.op.variance(x, axes, keepdims=True))
    inverse = builder.emit(relax.op.rsqrt(relax.op.add(var, scalar(epsilon, x))))
    y = builder.emit(relax.op.multiply(relax.op.subtract(x, mean), inverse))
    column = (shape[1], *(1,) * (len(shape) - 2))
    if weight is not None:
        y = builder.emit(relax.op.multiply(y, relax.op.reshape(weight, column)))
    if bias is not None:
        y = builder.emit(relax.op.add(y, relax.op.reshape(bias, column)))
    return [y, *(builder.emit(relax.op.reshape(one, (shape[1],))) for one in (mean, inverse))]


def native_layer_norm(
    builder: Builder,
    x: Expr,
    normalized_shape: Sequence[int],
    weight: Expr | None,
    bias: Expr | None,
    epsilon: float,
) -> list[Expr]:
    """(y, mean, inverse deviation)."""
    axes = list(range(-len(normalized_shape), 0))
    y = layer_norm(builder, x, normalized_shape, weight, bias, epsilon, False)
    mean = builder.emit(relax.op.mean(x, axes, keepdims=True))
    var = relax.op.variance(x, axes, keepdims=True)
    return [y, mean, builder.emit(relax.op.rsqrt(relax.op.add(var, scalar(epsilon, x))))]


def native_group_norm(
    builder: Builder,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    batch: int,
    _channels: int,
    _places: int,
    groups: int,
    epsilon: float,
) -> list[Expr]:
    """(y, mean, inverse deviation)."""
    y = group_norm(builder, x, groups, weight, bias, epsilon, False)
    rows = builder.emit(relax.op.reshape(x, (batch, groups, -1)))
    mean = builder.emit(relax.op.mean(rows, [2]))
    var = relax.op.variance(rows, [2])
    return [y, mean, builder.emit(relax.op.rsqrt(relax.op.add(var, scalar(epsilon, x))))]


CONVERTERS: dict[str, Converter] = {
    "dropout.default": dropout,
    "native_dropout.default": native_dropout,
    **{
        name: _in_float32(norm)
        for name, norm in (
            ("_native_batch_norm_legit_functional.default", batch_norm),
            ("_native_batch_norm_legit.no_stats", batch_norm_of_batch),
            ("_native_batch_norm_legit_no_training.default", batch_norm_of_statistics),
            ("group_norm.default", group_norm),
            ("layer_norm.default", layer_norm),
            ("native_group_norm.default", native_group_norm),
            ("native_layer_norm.default", native_layer_norm),
            ("rms_norm.default", rms_norm),
        )
    },
}
