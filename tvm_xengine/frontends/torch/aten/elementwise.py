"""Functions of single elements."""

from __future__ import annotations

from math import inf, log

from tvm import ir, relax

from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.literals import scalar


def elu(
    builder: relax.BlockBuilder, x: relax.Expr, alpha: float, scale: float, input_scale: float
) -> relax.Expr:
    """scale * (max(x, 0) + alpha * (exp(min(x, 0)) - 1)), which never overflows."""
    zero = scalar(0.0, x)
    scaled = x if input_scale == 1 else relax.op.multiply(x, scalar(input_scale, x))
    below = relax.op.subtract(relax.op.exp(relax.op.minimum(scaled, zero)), scalar(1.0, x))
    y = relax.op.add(relax.op.nn.relu(x), relax.op.multiply(below, scalar(alpha, x)))
    return builder.emit(y if scale == 1 else relax.op.multiply(y, scalar(scale, x)))


def celu(builder: relax.BlockBuilder, x: relax.Expr, alpha: float = 1.0) -> relax.Expr:
    """max(x, 0) + alpha * (exp(min(x / alpha, 0)) - 1)."""
    return elu(builder, x, alpha, 1.0, 1 / alpha)


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


def clamp(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    low: float | relax.Expr | None = None,
    high: float | relax.Expr | None = None,
) -> relax.Expr:
    """min(max(x, low), high), of integers as well, which have no infinity for a missing bound."""
    if "float" in str(x.ty.dtype) and not any(isinstance(one, ir.Expr) for one in (low, high)):
        lowest = -inf if low is None else float(low)
        return builder.emit(relax.op.clip(x, lowest, inf if high is None else float(high)))
    for bounded, limit in ((relax.op.maximum, low), (relax.op.minimum, high)):
        if limit is not None:
            x = builder.emit(bounded(x, limit if isinstance(limit, ir.Expr) else scalar(limit, x)))
    return x


def rsub(
    builder: relax.BlockBuilder, x: relax.Expr, other: float | relax.Expr, alpha: float = 1
) -> relax.Expr:
    """other - alpha * x."""
    scaled = x if alpha == 1 else relax.op.multiply(x, scalar(alpha, x))
    whole = other if isinstance(other, ir.Expr) else scalar(other, x)
    return builder.emit(relax.op.subtract(whole, scaled))


def divide(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    other: float | relax.Expr,
    rounding_mode: str | None,
) -> relax.Expr:
    """x / other, as it is, rounded down or towards zero."""
    divisor = other if isinstance(other, ir.Expr) else scalar(other, x)
    if rounding_mode == "floor":
        return builder.emit(relax.op.floor_divide(x, divisor))
    quotient = builder.emit(relax.op.divide(x, divisor))
    return builder.emit(relax.op.trunc(quotient)) if rounding_mode == "trunc" else quotient


def remainder_of_scalar(builder: relax.BlockBuilder, x: float, other: relax.Expr) -> relax.Expr:
    """x - other * floor(x / other) of one number and every element."""
    return builder.emit(relax.op.floor_mod(scalar(x, other), other))


def detach(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """x, through which no gradient flows."""
    return builder.emit(relax.op.grad.no_grad(x))


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


def logaddexp(builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """log(exp(x) + exp(y)), which never overflows."""
    largest = builder.emit(relax.op.grad.no_grad(builder.emit(relax.op.maximum(x, y))))
    parts = [
        builder.emit(relax.op.exp(builder.emit(relax.op.subtract(one, largest)))) for one in (x, y)
    ]
    logarithm = builder.emit(relax.op.log(builder.emit(relax.op.add(*parts))))
    return builder.emit(relax.op.add(largest, logarithm))


CONVERTERS: dict[str, Converter] = {
    "celu.default": celu,
    "clamp.default": clamp,
    "clamp.Tensor": clamp,
    "detach.default": detach,
    "detach_.default": detach,
    "div.Scalar_mode": divide,
    "div.Tensor_mode": divide,
    "elu.default": elu,
    "erfc.default": erfc,
    "exp2.default": exp2,
    "hardsigmoid.default": hardsigmoid,
    "hardswish.default": hardswish,
    "hardtanh.default": hardtanh,
    "hypot.default": hypot,
    "logaddexp.default": logaddexp,
    "relu6.default": relu6,
    "remainder.Scalar_Tensor": remainder_of_scalar,
    "rsub.Scalar": rsub,
    "rsub.Tensor": rsub,
}
