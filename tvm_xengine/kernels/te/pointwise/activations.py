"""Activations, with PyTorch's derivatives at their kinks."""

from __future__ import annotations

from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.pointwise.function import (
    Pointwise,
    both,
    const,
    either,
    greater,
    isnan,
    lesser,
    named,
    select,
    zero,
)
from tvm_xengine.kernels.te.pointwise.functions import expm1, log1p


def _elu(a: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    return select(a <= zero(a), expm1(a * input_scale) * (alpha * scale), a * scale)


def _elu_slope(g: Expr, a: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    below = g * te.exp(a * input_scale) * (input_scale * alpha * scale)
    return select(a > zero(a), g * scale, below)


def _hardtanh(a: Expr, low: float, high: float) -> Expr:
    return select(a < low, low, select(a > high, high, a))


def _hardswish_slope(g: Expr, a: Expr) -> Expr:
    inside = select(a >= 3.0, g, g * (a / 3.0 + 0.5))
    return select(a <= -3.0, zero(g), inside)


def _logsigmoid(a: Expr) -> Expr:
    return lesser(a, zero(a)) - log1p(te.exp(-te.abs(a)))


def _logsigmoid_slope(g: Expr, a: Expr) -> Expr:
    small = te.exp(-te.abs(a))
    share = small / (small + 1.0)
    return g * select(a < zero(a), 1.0 - share, share)


def _softplus(a: Expr, beta: float, threshold: float) -> Expr:
    return select(a * beta > threshold, a, log1p(te.exp(a * beta)) / beta)


def _softplus_slope(g: Expr, a: Expr, beta: float, threshold: float) -> Expr:
    grown = te.exp(a * beta)
    return select(a * beta > threshold, g, g * grown / (grown + 1.0))


def _softshrink(a: Expr, width: float) -> Expr:
    inside = select(isnan(a), a, zero(a))  # TVM takes a product with zero for zero
    return select(a > width, a - width, select(a < -width, a + width, inside))


def _outside(g: Expr, a: Expr, width: float) -> Expr:
    inside = both(a >= -width, a <= width)
    return select(either(isnan(a), inside), zero(g), g)


def _tanh_of_softplus(a: Expr) -> Expr:
    """tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) for e = exp(a), which cancels nowhere."""

    def ratio(e: Expr) -> Expr:
        return named(e * (e + 2.0), lambda w: w / (w + 2.0))

    return named(te.exp(lesser(a, zero(a) + 20.0)), ratio)


def _mish(a: Expr) -> Expr:
    return a * select(a > 20.0, const(1, a), _tanh_of_softplus(a))


def _mish_slope(g: Expr, a: Expr) -> Expr:
    s = 1.0 / (1.0 + te.exp(-a))
    return g * named(_tanh_of_softplus(a), lambda t: t + a * s * (1.0 - t * t))


def finite(g: Expr, a: Expr) -> Expr:
    """The gradient above the kink, NaN at infinity, where PyTorch multiplies infinity by zero."""
    return select(a == float("inf"), const(float("nan"), g), g)


def _softsign_slope(g: Expr, a: Expr) -> Expr:
    wide = 1.0 + te.abs(a)
    return g / (wide * wide)


ACTIVATIONS: dict[str, Pointwise] = {
    "elu": Pointwise(_elu, (_elu_slope,)),
    "hardshrink": Pointwise(
        lambda a, width: select(both(a >= -width, a <= width), zero(a), a),
        (_outside,),
    ),
    "hardsigmoid": Pointwise(
        lambda a: lesser(greater(a + 3.0, zero(a)), zero(a) + 6.0) / 6.0,
        (lambda g, a: select(both(a > -3.0, a < 3.0), g * (1 / 6), zero(g)),),
    ),
    "hardswish": Pointwise(
        lambda a: a * lesser(greater(a + 3.0, zero(a)), zero(a) + 6.0) / 6.0,
        (_hardswish_slope,),
    ),
    "hardtanh": Pointwise(
        _hardtanh,
        (lambda g, a, low, high: select(both(a > low, a < high), g, zero(g)),),
    ),
    "leaky_relu": Pointwise(
        lambda a, slope: select(a > zero(a), a, a * slope),
        (lambda g, a, slope: select(a > zero(a), g, g * slope),),
    ),
    "logsigmoid": Pointwise(_logsigmoid, (_logsigmoid_slope,)),
    "mish": Pointwise(
        _mish,
        (lambda g, a: select(a > 20.0, finite(g, a), _mish_slope(g, lesser(a, zero(a) + 20.0))),),
    ),
    "prelu": Pointwise(
        lambda a, b: select(a > zero(a), a, b * a),
        (
            lambda g, a, b: select(a > zero(a), g, b * g),
            lambda g, a: select(a > zero(a), zero(g), a * g),
        ),
    ),
    "softplus": Pointwise(_softplus, (_softplus_slope,)),
    "softshrink": Pointwise(_softshrink, (_outside,)),
    "softsign": Pointwise(lambda a: a / (1.0 + te.abs(a)), (_softsign_slope,)),
    "threshold": Pointwise(
        lambda a, bound, value: select(a <= bound, value, a),
        (lambda g, a, bound, value: select(a <= bound, zero(g), g),),
    ),
}
