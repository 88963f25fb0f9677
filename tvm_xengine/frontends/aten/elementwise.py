"""Functions of single elements."""

from __future__ import annotations

from math import log, pi, sqrt

from tvm import relax

from tvm_xengine.frontends.aten.converter import Converter
from tvm_xengine.frontends.aten.literals import scalar

_NEWTON_STEPS = 4
"""Each doubles the number of right digits; the slope is that of the last but one."""


def elu(
    builder: relax.BlockBuilder, x: relax.Expr, alpha: float, scale: float, input_scale: float
) -> relax.Expr:
    """scale * (max(x, 0) + alpha * (exp(min(x, 0)) - 1)), which never overflows."""
    zero = scalar(0.0, x)
    scaled = x if input_scale == 1 else relax.op.multiply(x, scalar(input_scale, x))
    below = relax.op.subtract(relax.op.exp(relax.op.minimum(scaled, zero)), scalar(1.0, x))
    y = relax.op.add(relax.op.nn.relu(x), relax.op.multiply(below, scalar(alpha, x)))
    return builder.emit(y if scale == 1 else relax.op.multiply(y, scalar(scale, x)))


def hardtanh(
    builder: relax.BlockBuilder, x: relax.Expr, low: float = -1.0, high: float = 1.0
) -> relax.Expr:
    """Clip to [low, high]."""
    return builder.emit(relax.op.clip(x, float(low), float(high)))


def relu6(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Clip to [0, 6]."""
    return hardtanh(builder, x, 0.0, 6.0)


def hardsigmoid(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """clip(x + 3, 0, 6) / 6."""
    shifted = relax.op.clip(relax.op.add(x, scalar(3.0, x)), 0.0, 6.0)
    return builder.emit(relax.op.multiply(shifted, scalar(1 / 6, x)))


def hardswish(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """x * clip(x + 3, 0, 6) / 6."""
    return builder.emit(relax.op.multiply(x, hardsigmoid(builder, x)))


def hypot(builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """sqrt(x^2 + y^2)."""
    squares = relax.op.add(relax.op.multiply(x, x), relax.op.multiply(y, y))
    return builder.emit(relax.op.sqrt(squares))


def exp2(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """2^x."""
    return builder.emit(relax.op.exp(relax.op.multiply(x, scalar(log(2), x))))


def erfc(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """1 - erf(x)."""
    return builder.emit(relax.op.subtract(scalar(1.0, x), builder.emit(relax.op.erf(x))))


def erfinv(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """The y with erf(y) = x: an approximation within 0.2 % (Winitzki 2008), and steps of Newton's method.

    The last step alone is differentiated, so the slope is exactly sqrt(pi) / 2 * exp(y^2).
    """
    emit = builder.emit
    alpha = 0.147
    logarithm = emit(relax.op.log(emit(relax.op.subtract(scalar(1.0, x), relax.op.multiply(x, x)))))
    half = relax.op.multiply(logarithm, scalar(0.5, x))
    first = emit(relax.op.add(half, scalar(2 / (pi * alpha), x)))
    second = relax.op.multiply(logarithm, scalar(1 / alpha, x))
    root = emit(relax.op.sqrt(emit(relax.op.subtract(relax.op.multiply(first, first), second))))
    size = emit(relax.op.sqrt(emit(relax.op.subtract(root, first))))
    y = emit(relax.op.multiply(relax.op.sign(x), size))
    for _ in range(_NEWTON_STEPS):
        y = emit(relax.op.grad.no_grad(y))
        slope = emit(relax.op.exp(emit(relax.op.multiply(y, y))))
        error = emit(relax.op.subtract(emit(relax.op.erf(y)), x))
        step = relax.op.multiply(emit(relax.op.multiply(error, slope)), scalar(sqrt(pi) / 2, x))
        y = emit(relax.op.subtract(y, step))
    return y


def logaddexp(builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """log(exp(x) + exp(y)), which never overflows."""
    largest = builder.emit(relax.op.grad.no_grad(builder.emit(relax.op.maximum(x, y))))
    parts = [
        builder.emit(relax.op.exp(builder.emit(relax.op.subtract(one, largest)))) for one in (x, y)
    ]
    logarithm = builder.emit(relax.op.log(builder.emit(relax.op.add(*parts))))
    return builder.emit(relax.op.add(largest, logarithm))


CONVERTERS: dict[str, Converter] = {
    "elu.default": elu,
    "erfc.default": erfc,
    "erfinv.default": erfinv,
    "exp2.default": exp2,
    "hardsigmoid.default": hardsigmoid,
    "hardswish.default": hardswish,
    "hardtanh.default": hardtanh,
    "hypot.default": hypot,
    "logaddexp.default": logaddexp,
    "relu6.default": relu6,
}
