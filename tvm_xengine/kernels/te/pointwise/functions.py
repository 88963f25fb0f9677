"""Elementary functions of one and two numbers."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi

import tvm
from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.pointwise.function import (
    Formula,
    Pointwise,
    both,
    const,
    either,
    greater,
    in_single,
    isnan,
    lesser,
    library,
    select,
    with_sign,
    zero,
)


def expm1(a: Expr) -> Expr:
    """exp(a) - 1 without cancellation, by 2 tanh(a / 2) / (1 - tanh(a / 2))."""
    t = te.tanh(a * 0.5)
    return select(te.abs(a) < 1.0, t * 2.0 / (1.0 - t), te.exp(a) - 1.0)


def log1p(a: Expr) -> Expr:
    """log(1 + a) without cancellation; TVM takes (1 + a) - 1, which others correct it by, for a."""
    return in_single(tvm.tirx.log1p, a)


def remainder_to_zero(a: Expr, b: Expr) -> Expr:
    """C's fmod, which is exact."""
    return library("fmod", a, b)


def _of_whole_numbers(operation: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """A quotient or remainder; 0 where b is."""
    safe = select(b == zero(b), const(1, b), b)
    return select(b == zero(b), zero(a), operation(a, safe))


def _differ_in_sign(a: Expr, b: Expr) -> Expr:
    return either(both(a > zero(a), b < zero(b)), both(a < zero(a), b > zero(b)))


def _floor_remainder(a: Expr, b: Expr) -> Expr:
    if "float" not in str(a.ty.dtype):
        return _of_whole_numbers(tvm.tirx.floormod, a, b)
    rest = remainder_to_zero(a, b)
    return select(_differ_in_sign(rest, b), rest + b, rest)


def _floor_divide(a: Expr, b: Expr) -> Expr:
    """The whole number below a / b, as Python has it: from the remainder, which is exact."""
    if "float" not in str(a.ty.dtype):
        return _of_whole_numbers(tvm.tirx.floordiv, a, b)
    rest = remainder_to_zero(a, b)
    quotient = (a - rest) / b
    quotient = select(_differ_in_sign(rest, b), quotient - 1.0, quotient)
    below = te.floor(quotient)
    below = select(quotient - below > 0.5, below + 1.0, below)
    below = select(tvm.tirx.EQ(quotient, zero(quotient)), (a / b) * 0.0, below)
    return select(b == zero(b), a / b, below)


def _trunc_divide(a: Expr, b: Expr) -> Expr:
    if "float" not in str(a.ty.dtype):
        return _of_whole_numbers(tvm.tirx.truncdiv, a, b)
    return te.trunc(a / b)


_NO_PLACE = -(2**31)
"""So far below 0 that sums with places in other axes are below 0, too."""


def _place(at: Expr, extent: Expr) -> Expr:
    """An index counted from the front; below 0 it counts from the end."""
    counted = select(at < zero(at), at + extent, at)
    inside = both(counted >= zero(at), counted < extent)
    return select(inside, counted, const(_NO_PLACE, at))


def _fmod(a: Expr, b: Expr) -> Expr:
    if "float" not in str(a.ty.dtype):
        safe = select(b == zero(b), const(1, b), b)
        return select(b == zero(b), zero(a), tvm.tirx.truncmod(a, safe))
    return remainder_to_zero(a, b)


def _power_base(g: Expr, a: Expr, b: Expr) -> Expr:
    return select(b == zero(b), zero(g), g * b * te.power(a, b - 1.0))


def _power_exponent(g: Expr, a: Expr, b: Expr, y: Expr) -> Expr:
    still = both(a == zero(a), b >= zero(b))
    return select(still, zero(g), g * y * te.log(a))


def _scalar_power_slope(g: Expr, a: Expr, exponent: float) -> Expr:
    if exponent == 0:
        return g * 0.0
    return g * (exponent * te.power(a, const(exponent - 1, a)))


def log_of_sum(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)); of two equal infinities it is that infinity."""
    same = both(a == b, te.abs(a) == float("inf"))
    return select(same, a, greater(a, b) + log1p(te.exp(-te.abs(a - b))))


def _log2_of_sum(a: Expr, b: Expr) -> Expr:
    same = both(a == b, te.abs(a) == float("inf"))
    small = te.exp(-te.abs(a - b) * log(2))
    return select(same, a, greater(a, b) + log1p(small) / log(2))


def _extreme_slopes(first: bool) -> tuple[Formula, Formula]:
    """fmax (fmin): all of the gradient to the first operand unless the second one is beyond it."""

    def wins(a: Expr, b: Expr) -> Expr:
        return either(a >= b if first else a <= b, isnan(b))

    return (
        lambda g, a, b: select(wins(a, b), g, zero(g)),
        lambda g, a, b: select(wins(a, b), zero(g), g),
    )


def _clamp(a: Expr, low: Expr, high: Expr) -> Expr:
    return lesser(greater(a, low), high)


def _logit(a: Expr, eps: float) -> Expr:
    if eps >= 0:
        a = select(a < eps, const(eps, a), select(a > 1 - eps, const(1 - eps, a), a))
    return te.log(a / (1.0 - a))


def _logit_slope(g: Expr, a: Expr, eps: float) -> Expr:
    low, high = (eps, 1 - eps) if eps >= 0 else (0.0, 1.0)
    beyond = zero(g) if eps >= 0 else const(float("nan"), g)
    return select(either(a < low, a > high), beyond, g / (a * (1.0 - a)))


def _sinc_slope(g: Expr, a: Expr) -> Expr:
    x = a * pi
    safe = select(x == zero(x), const(1, x), x)
    return select(x == zero(x), zero(g), g * ((x * te.cos(x) - te.sin(x)) / safe / safe) * pi)


def _nan_to_num(a: Expr, nan: float, high: float, low: float) -> Expr:
    infinity = float("inf")
    return select(isnan(a), nan, select(a == infinity, high, select(a == -infinity, low, a)))


def _xlogy_slope(g: Expr, a: Expr, b: Expr) -> Expr:
    return select(both(a == zero(a), b <= zero(b)), zero(g), g * te.log(b))


def _bce(a: Expr, b: Expr) -> Expr:
    """-(b log a + (1 - b) log(1 - a)), the logarithms at least -100."""
    least = const(-100.0, a)
    return (b - 1.0) * greater(log1p(-a), least) - b * greater(te.log(a), least)


def _bce_slope(g: Expr, a: Expr, b: Expr) -> Expr:
    return g * (a - b) / greater((1.0 - a) * a, const(1e-12, a))


def _smooth_l1(a: Expr, b: Expr, beta: float) -> Expr:
    """Half the square of a distance below beta, over beta, and linear beyond."""
    z = te.abs(a - b)
    return select(z < beta, z * z * (0.5 / beta) if beta else z, z - 0.5 * beta)


def _huber(a: Expr, b: Expr, delta: float) -> Expr:
    """Half the square of a distance below delta, and linear beyond."""
    z = te.abs(a - b)
    return select(z < delta, z * z * 0.5, (z - 0.5 * delta) * delta)


def _loss_slopes(parts_of: Callable[[float], tuple[float, float]]) -> tuple[Formula, Formula]:
    """The slopes of both operands, where `parts_of` the width are the steepest and the unit of distances."""

    def slope(g: Expr, z: Expr, width: float) -> Expr:
        bound, unit = parts_of(width)
        inside = g * z / unit if unit else g * zero(z)
        return select(z <= -width, g * -bound, select(z >= width, g * bound, inside))

    return (
        lambda g, a, b, width: slope(g, a - b, width),
        lambda g, a, b, width: -slope(g, a - b, width),
    )


FUNCTIONS: dict[str, Pointwise] = {
    "abs_power": Pointwise(
        lambda a, p: te.power(te.abs(a), const(p, a)),
        (
            lambda g, a, p: (
                g
                * select(
                    a == zero(a),
                    zero(a),
                    te.power(te.abs(a), const(p - 1, a))
                    * select(a < zero(a), const(-p, a), const(p, a)),
                )
            ),
        ),
    ),
    "binary_cross_entropy": Pointwise(
        _bce,
        (
            _bce_slope,
            lambda g, a: g * (log1p(-a) - te.log(a)),
        ),
    ),
    "clamp": Pointwise(
        lambda a, low, high: lesser(greater(a, const(low, a)), const(high, a)),
        (lambda g, a, low, high: select(both(a >= low, a <= high), g, zero(g)),),
    ),
    "clamp_to": Pointwise(
        _clamp,
        (
            lambda g, a, b, c: select(both(a >= b, a <= c), g, zero(g)),
            lambda g, a, b, c: select(both(b < c, a < b), g, zero(g)),
            lambda g, a, b, c: select(either(a > c, c < b), g, zero(g)),
        ),
    ),
    "clamp_min": Pointwise(
        greater,
        (
            lambda g, a, b: select(a >= b, g, zero(g)),
            lambda g, a, b: select(a < b, g, zero(g)),
        ),
    ),
    "clamp_max": Pointwise(
        lesser,
        (
            lambda g, a, b: select(a <= b, g, zero(g)),
            lambda g, a, b: select(a > b, g, zero(g)),
        ),
    ),
    "copysign": Pointwise(
        with_sign,
        (
            lambda g, a, y: select(
                a == zero(a), zero(g), g * y / select(a == zero(a), const(1, a), a)
            ),
            None,
        ),
    ),
    "exp2": Pointwise(lambda a: te.power(const(2, a), a), (lambda g, y: g * y * log(2),)),
    "expm1": Pointwise(expm1, (lambda g, y: g * (y + 1.0),)),
    "float_power": Pointwise(te.power, (_power_base, _power_exponent)),
    "floor_divide": Pointwise(_floor_divide, (None, None)),
    "trunc_divide": Pointwise(_trunc_divide, (None, None)),
    "place": Pointwise(_place, (None, None)),
    "fmod": Pointwise(
        _fmod,
        (
            lambda g: g,
            lambda g, a, b: -g * te.trunc(a / b),
        ),
    ),
    "remainder": Pointwise(
        _floor_remainder,
        (
            lambda g: g,
            lambda g, a, b: -g * _floor_divide(a, b),
        ),
    ),
    "fmax": Pointwise(
        lambda a, b: select(either(a >= b, isnan(b)), a, b), _extreme_slopes(first=True)
    ),
    "fmin": Pointwise(
        lambda a, b: select(either(a <= b, isnan(b)), a, b), _extreme_slopes(first=False)
    ),
    "hypot": Pointwise(
        tvm.tirx.hypot,
        (
            lambda g, a, y: g * (a / y),
            lambda g, b, y: g * (b / y),
        ),
    ),
    "huber": Pointwise(_huber, _loss_slopes(lambda delta: (delta, 1.0))),
    "log10": Pointwise(lambda a: te.log(a) / log(10), (lambda g, a: g / (a * log(10)),)),
    "log1p": Pointwise(log1p, (lambda g, a: g / (a + 1.0),)),
    "log2": Pointwise(lambda a: te.log(a) / log(2), (lambda g, a: g / (a * log(2)),)),
    "logaddexp": Pointwise(
        log_of_sum,
        (
            lambda g, a, b: g / (1.0 + te.exp(b - a)),
            lambda g, a, b: g / (1.0 + te.exp(a - b)),
        ),
    ),
    "logaddexp2": Pointwise(
        _log2_of_sum,
        (
            lambda g, a, b: g / (1.0 + te.power(const(2, a), b - a)),
            lambda g, a, b: g / (1.0 + te.power(const(2, a), a - b)),
        ),
    ),
    "logit": Pointwise(_logit, (_logit_slope,)),
    "nan_to_num": Pointwise(
        _nan_to_num,
        (lambda g, a, *_: select(either(isnan(a), te.abs(a) == float("inf")), zero(g), g),),
    ),
    "reciprocal": Pointwise(lambda a: 1.0 / a, (lambda g, y: -g * (y * y),)),
    "root": Pointwise(
        lambda a, p: te.power(a, const(1 / p, a)),
        (
            lambda g, y, p: select(
                y == zero(y), zero(g), g * te.power(y, const(1 - p, y)) * (1 / p)
            ),
        ),
    ),
    "safe_sqrt": Pointwise(te.sqrt, (lambda g, y: select(y == zero(y), zero(g), g / (y * 2.0)),)),
    "scalar_power": Pointwise(
        lambda a, exponent: te.power(a, const(exponent, a)),
        (_scalar_power_slope,),
    ),
    "sinc": Pointwise(
        lambda a: select(
            a == zero(a),
            const(1, a),
            te.sin(a * pi) / (select(a == zero(a), const(1, a), a) * pi),
        ),
        (_sinc_slope,),
    ),
    "smooth_l1": Pointwise(_smooth_l1, _loss_slopes(lambda beta: (1.0, beta))),
    "xlogy": Pointwise(
        lambda a, b: select(isnan(b), b, select(a == zero(a), zero(a), a * te.log(b))),
        (
            _xlogy_slope,
            lambda g, a, b: g * a / b,
        ),
    ),
    "xlog1py": Pointwise(
        lambda a, b: select(isnan(b), b, select(a == zero(a), zero(a), a * log1p(b))),
        (
            lambda g, a, b: select(both(a == zero(a), b <= -1.0), zero(g), g * log1p(b)),
            lambda g, a, b: g * a / (b + 1.0),
        ),
    ),
}
