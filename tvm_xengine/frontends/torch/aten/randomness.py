"""Random numbers, different in every step.

All come from dropout, whose generator is keyed by seed, step and op, so that recomputing repeats
them. After training, when dropout passes everything through, a draw is its mean or its median.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

import numpy as np
import torch
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.literals import scalar
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
    return _as_type(builder, builder.emit(relax.op.where(is_kept, ones, mean)), dtype)


def uniform(builder: Builder, shape: Sequence[int], dtype: str) -> Expr:
    """Uniform in [0, 1): every bit of the fraction is a dropout of a half."""
    ones = builder.emit(relax.op.ones((*shape, _BITS), "float32"))
    bits = dropout(builder, ones, 0.5, True)  # 0 or 2
    values = relax.const(2.0 ** -np.arange(2, _BITS + 2), "float32")
    weighted = builder.emit(relax.op.multiply(bits, values))
    return _as_type(builder, builder.emit(relax.op.sum(weighted, [-1])), dtype)


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
    drawn = normal(builder, shape, _name(dtype or torch.get_default_dtype()))
    return _scaled(builder, drawn, deviation, mean)


def normal_like(
    builder: Builder, x: Expr, mean: float, deviation: float, _generator: object
) -> Expr:
    """The same in the shape of x."""
    drawn = normal(builder, static_shape(x.ty), str(x.ty.dtype))
    return _scaled(builder, drawn, deviation, mean)


def uniform_like(builder: Builder, x: Expr, low: float, high: float, _generator: object) -> Expr:
    """Uniform in [low, high), in the shape of x."""
    drawn = uniform(builder, static_shape(x.ty), str(x.ty.dtype))
    return _scaled(builder, drawn, high - low, low)


def exponential_like(builder: Builder, x: Expr, rate: float, _generator: object) -> Expr:
    """Exponential numbers of a rate, in the shape of x."""
    drawn = exponential(builder, static_shape(x.ty), str(x.ty.dtype))
    return _scaled(builder, drawn, 1 / rate, 0.0)


def _of_shape(draw: Converter) -> Converter:
    def converted(
        builder: Builder, shape: Sequence[int], dtype: torch.dtype | None, *_: object
    ) -> Expr | list[Expr]:
        return draw(builder, shape, _name(dtype or torch.get_default_dtype()))

    return converted


def _like(draw: Converter) -> Converter:
    def converted(
        builder: Builder, x: Expr, dtype: torch.dtype | None, *_: object
    ) -> Expr | list[Expr]:
        name = str(x.ty.dtype) if dtype is None else _name(dtype)
        return draw(builder, static_shape(x.ty), name)

    return converted


def _scaled(builder: Builder, drawn: Expr, factor: float, shift: float) -> Expr:
    scaled = relax.op.multiply(drawn, scalar(factor, drawn))
    return builder.emit(relax.op.add(scaled, scalar(shift, drawn)))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _as_type(builder: Builder, x: Expr, dtype: str) -> Expr:
    return x if str(x.ty.dtype) == dtype else builder.emit(relax.op.astype(x, dtype))


CONVERTERS: dict[str, Converter] = {
    "bernoulli.p": bernoulli,
    "exponential.default": exponential_like,
    "normal.float_float": normal_about,
    "normal_functional.default": normal_like,
    "rand.default": _of_shape(uniform),
    "rand_like.default": _like(uniform),
    "randn.default": _of_shape(normal),
    "randn_like.default": _like(normal),
    "uniform.default": uniform_like,
}
