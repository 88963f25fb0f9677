"""Random numbers, different in every step.

All come from dropout, whose generator is keyed by seed, step and op, so that recomputing repeats
them. After training, when dropout passes everything through, a draw is its mean or its median.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi
from typing import Any

import numpy as np
import torch
from tvm import ir, relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, dtype_name, scalar
from tvm_xengine.frontends.torch.aten.creation import as_type
from tvm_xengine.frontends.torch.aten.norms import dropout
from tvm_xengine.relax_ir.types import static_shape

_BITS = 24
"""As many as the fraction of a float32 has."""


def bernoulli(builder: Builder, x: Expr, probability: float, _generator: object) -> Expr:
    """1 with a probability, else 0, in the shape of x."""
    shape, dtype = static_shape(x.ty), str(x.ty.dtype)
    if not 0 < probability < 1:
        return builder.emit(relax.op.full(shape, relax.const(float(probability), dtype), dtype))
    ones = builder.emit(relax.op.ones(shape, "float32"))
    drawn = dropout(builder, ones, 1 - probability, True)
    is_kept = relax.op.greater(drawn, scalar(1.0, drawn))
    mean = relax.op.multiply(drawn, scalar(probability, drawn))
    return as_type(builder, builder.emit(relax.op.where(is_kept, ones, mean)), dtype)


def uniform(builder: Builder, shape: Sequence[int], dtype: str) -> Expr:
    """Uniform in [0, 1): every bit of the fraction is a dropout of a half."""
    ones = builder.emit(relax.op.ones((*shape, _BITS), "float32"))
    bits = dropout(builder, ones, 0.5, True)  # 0 or 2
    values = relax.const(2.0 ** -np.arange(2, _BITS + 2), "float32")
    weighted = builder.emit(relax.op.multiply(bits, values))
    return as_type(builder, builder.emit(relax.op.sum(weighted, [-1])), dtype)


def exponential(builder: Builder, shape: Sequence[int], dtype: str) -> Expr:
    """-log of what is uniform in (0, 1]."""
    drawn = uniform(builder, shape, dtype)
    above = relax.op.subtract(scalar(1.0, drawn), drawn)
    return builder.emit(relax.op.negative(relax.op.log(above)))


def normal(builder: Builder, shape: Sequence[int], dtype: str) -> Expr:
    """Mean 0 and variance 1, by Box and Muller (1958): a radius times the sine of an angle."""
    drawn = exponential(builder, shape, dtype)
    radius = relax.op.sqrt(relax.op.multiply(drawn, scalar(2.0, drawn)))
    turn = uniform(builder, shape, dtype)
    angle = relax.op.multiply(turn, scalar(2 * pi, turn))
    return builder.emit(relax.op.multiply(radius, relax.op.sin(angle)))


def normal_about(
    builder: Builder,
    mean: float,
    deviation: float,
    shape: Sequence[int],
    _generator: object,
    dtype: torch.dtype | None,
    *_: object,
) -> Expr:
    """Normal numbers of another mean and deviation."""
    drawn = normal(builder, shape, dtype_name(dtype or torch.get_default_dtype()))
    return _scaled(builder, drawn, deviation, mean)


def _drawn_like(draw: Converter, scale: Callable[..., tuple[float, float]]) -> Converter:
    """A draw in the shape of x, times a factor plus a shift that follow from its numbers."""

    def converted(builder: Builder, x: Expr, *given: Any) -> Expr:
        drawn = draw(builder, static_shape(x.ty), str(x.ty.dtype))
        return _scaled(builder, drawn, *scale(*given[:-1]))  # the last one is the generator

    return converted


uniform_like = _drawn_like(uniform, lambda low, high: (high - low, low))


def normal_of(
    builder: Builder,
    mean: Expr | float,
    deviation: Expr | float,
    _generator: object,
) -> Expr:
    """Normal numbers, each of the mean and the deviation that stand at its place."""
    tensors = [one for one in (mean, deviation) if isinstance(one, ir.Expr)]
    shape = np.broadcast_shapes(*(static_shape(one.ty) for one in tensors))
    drawn = normal(builder, shape, str(tensors[0].ty.dtype))
    factor, shift = (
        one if isinstance(one, ir.Expr) else scalar(one, drawn) for one in (deviation, mean)
    )
    return builder.emit(relax.op.add(builder.emit(relax.op.multiply(drawn, factor)), shift))


def integers(builder: Builder, low: int, high: int, shape: Sequence[int], dtype: str) -> Expr:
    """Integers in [low, high), all as likely as the bits of a float32 allow."""
    drawn = uniform(builder, shape, "float32")
    scaled = relax.op.floor(relax.op.multiply(drawn, scalar(high - low, drawn)))
    whole = builder.emit(relax.op.astype(scaled, dtype))
    return builder.emit(relax.op.add(whole, scalar(low, whole)))


def randint(
    builder: Builder,
    low: int,
    high: int,
    shape: Sequence[int],
    dtype: torch.dtype | None,
    *_: object,
) -> Expr:
    """Integers of a shape."""
    return integers(
        builder,
        low,
        high,
        shape,
        dtype_name(dtype if isinstance(dtype, torch.dtype) else torch.int64),
    )


def randint_like(
    builder: Builder,
    x: Expr,
    low: int,
    high: int,
    dtype: torch.dtype | None,
    *_: object,
) -> Expr:
    """Integers in the shape of x."""
    name = str(x.ty.dtype) if dtype is None else dtype_name(dtype)
    return integers(builder, low, high, static_shape(x.ty), name)


def _from_zero(draw: Converter, position: int) -> Converter:
    """The form of `draw` without a lower limit, which stands at a position."""

    def converted(builder: Builder, *given: Any) -> Expr | list[Expr]:
        return draw(builder, *given[:position], 0, *given[position:])

    return converted


def rrelu(
    builder: Builder,
    x: Expr,
    low: float,
    high: float,
    training: bool,
    _generator: object,
) -> Expr:
    """x, times a factor drawn between limits where it is not positive; else their mean."""
    factor: Expr = scalar((low + high) / 2, x)
    if training:
        factor = uniform_like(builder, x, low, high, None)
    leaked = builder.emit(relax.op.multiply(x, factor))
    return builder.emit(relax.op.where(relax.op.greater(x, scalar(0, x)), x, leaked))


def multinomial(
    builder: Builder,
    weights: Expr,
    count: int,
    replacement: bool,
    _generator: object,
) -> Expr:
    """Positions as likely as their weights: where log(weight) plus Gumbel's noise is largest.

    The `count` largest are a draw without replacement (Kool, van Hoof and Welling, 2019).
    """
    *rows, classes = static_shape(weights.ty)
    shape = (*rows, count, classes) if replacement else (*rows, classes)
    dtype = str(weights.ty.dtype)
    logs = builder.emit(relax.op.log(weights))
    if replacement:
        logs = builder.emit(relax.op.expand_dims(logs, -2))
    noise = builder.emit(relax.op.log(exponential(builder, shape, dtype)))
    score = builder.emit(relax.op.subtract(logs, noise))
    if replacement:
        return builder.emit(relax.op.argmax(score, -1))
    return builder.emit(relax.op.topk(score, count, -1, "indices", True, "int64"))


def _of_shape(draw: Converter) -> Converter:
    def converted(
        builder: Builder, shape: Sequence[int], dtype: torch.dtype | None, *_: object
    ) -> Expr | list[Expr]:
        return draw(builder, shape, dtype_name(dtype or torch.get_default_dtype()))

    return converted


def _like(draw: Converter) -> Converter:
    def converted(
        builder: Builder, x: Expr, dtype: torch.dtype | None, *_: object
    ) -> Expr | list[Expr]:
        name = str(x.ty.dtype) if dtype is None else dtype_name(dtype)
        return draw(builder, static_shape(x.ty), name)

    return converted


def _scaled(builder: Builder, drawn: Expr, factor: float, shift: float) -> Expr:
    scaled = relax.op.multiply(drawn, scalar(factor, drawn))
    return builder.emit(relax.op.add(scaled, scalar(shift, drawn)))


CONVERTERS: dict[str, Converter] = {
    "bernoulli.p": bernoulli,
    "exponential.default": _drawn_like(exponential, lambda rate: (1 / rate, 0.0)),
    "multinomial.default": multinomial,
    "normal.Tensor_Tensor": normal_of,
    "normal.Tensor_float": normal_of,
    "normal.float_Tensor": normal_of,
    "normal.float_float": normal_about,
    "normal_functional.default": _drawn_like(normal, lambda mean, by: (by, mean)),
    "rand.default": _of_shape(uniform),
    "rand_like.default": _like(uniform),
    "randn.default": _of_shape(normal),
    "randn_like.default": _like(normal),
    "randint.default": _from_zero(randint, 0),
    "randint.low": randint,
    "randint_like.default": _from_zero(randint_like, 1),
    "randint_like.low_dtype": randint_like,
    "rrelu.default": rrelu,
    "uniform.default": uniform_like,
}
