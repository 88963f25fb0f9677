"""Bessel functions, and functions made of the scaled complementary error function."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, factorial, pi, sin, sqrt

from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.pointwise.function import Pointwise, const, either, isnan, select, zero
from tvm_xengine.kernels.te.pointwise.functions import log1p
from tvm_xengine.kernels.te.pointwise.special import erfc

_FAR = 20.0
"""From here on the asymptotic series holds to 1e-16: its least term is exp(-2 x) of the first."""

_NEAR_TERMS = 40
"""Of the power series, all positive: at 20 the last one is below 1e-20 of the sum."""

_FAR_TERMS = 30
"""Of the asymptotic series at 20."""


def _scaled(order: int, a: Expr) -> Expr:
    """exp(-|x|) I(|x|) (Abramowitz and Stegun 9.6.10 and 9.7.1, both by Horner's rule)."""
    x = te.abs(a)
    square = x * x * 0.25
    near = const(1, a)
    for k in range(_NEAR_TERMS, 0, -1):
        near = near * square / float(k * (k + order)) + 1.0
    if order:
        near = near * x * 0.5
    far = const(1, a)
    inverse = 0.125 / x
    for k in range(_FAR_TERMS, 0, -1):
        far = far * inverse * (((2 * k - 1) ** 2 - 4 * order**2) / k) + 1.0
    return select(x < _FAR, near * te.exp(-x), far / te.sqrt(x * (2 * pi)))


def _odd(a: Expr, value: Expr) -> Expr:
    return select(a < zero(a), -value, value)


def i0(a: Expr) -> Expr:
    """The function of order 0."""
    return _scaled(0, a) * te.exp(te.abs(a))


def i1(a: Expr) -> Expr:
    """The function of order 1, which is odd."""
    return _odd(a, _scaled(1, a) * te.exp(te.abs(a)))


def i0e(a: Expr) -> Expr:
    """exp(-|x|) I0(x)."""
    return _scaled(0, a)


def i1e(a: Expr) -> Expr:
    """exp(-|x|) I1(x)."""
    return _odd(a, _scaled(1, a))


def _i1_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    safe = select(a == zero(a), const(1, a), a)
    return g * select(te.abs(a) > zero(a), i0(a) - y / safe, const(0.5, a))


def _i1e_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    safe = select(a == zero(a), const(1, a), a)
    sign = select(a < zero(a), const(-1, a), const(1, a))
    return g * select(te.abs(a) > zero(a), i0e(a) - y * (sign + 1.0 / safe), const(0.5, a))


def _i0e_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    sign = select(a > zero(a), const(1, a), select(a < zero(a), const(-1, a), zero(a)))
    return g * (i1e(a) - y * sign)


_FRACTION_FROM = 1.5
_FRACTION_TERMS = 70
"""At 1.5 the continued fraction with so many terms is exact to 1e-15; below it erf loses 2 digits."""


def erfcx(a: Expr) -> Expr:
    """exp(x^2) erfc(x): near zero from erf, far from it by Laplace's continued fraction."""
    x = te.abs(a)
    rest = x
    for k in range(_FRACTION_TERMS, 0, -1):
        rest = x + (k / 2) / rest
    square = te.exp(x * x)
    value = select(x < _FRACTION_FROM, square * erfc(x), (1 / sqrt(pi)) / rest)
    return select(a < zero(a), 2.0 * square - value, value)


def _erfcx_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    return g * (2.0 * a * y - 2 / sqrt(pi))


def log_ndtr(a: Expr) -> Expr:
    """log of the normal distribution's function: far below zero its logarithm is known, not it."""
    t = a * (1 / sqrt(2))
    scaled = erfcx(te.abs(t))
    tail = scaled * te.exp(-t * t)
    above = log1p(-0.5 * select(a < zero(a), 2.0 - tail, tail))
    return select(a < -1.0, te.log(scaled * 0.5) - t * t, above)


def _log_ndtr_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    return g * te.exp(-(y + a * a * 0.5)) * (1 / sqrt(2 * pi))


_NEAR = 25.0
"""Up to here 16 places of the integrand suffice, from here on the asymptotic series does, to 1e-16."""

_PLACES = tuple(sin(pi * (k + 0.5) / 64) for k in range(32))
"""Sines of the angles in Bessel's integral, which is periodic: 32 of 64 even places, by symmetry."""

_LOG_WEIGHTS = tuple(
    4 / pi / 32 * sum((-1) ** (k + 1) * cos(2 * k * pi * (j + 0.5) / 64) / k for k in range(1, 32))
    for j in range(32)
)
"""Of the same places, for the sum of (-1)^(k + 1) 4 J_2k / (pi k) (Abramowitz and Stegun 9.1.88)."""

_EULER = 0.5772156649015329
"""Euler's constant."""


def _regular(order: int, x: Expr) -> Expr:
    """J of an order for x up to `_NEAR` (Abramowitz and Stegun 9.1.21, by the trapezoidal rule)."""
    total = zero(x)
    for place in _PLACES:
        total = total + (te.sin(x * place) * place if order else te.cos(x * place))
    return total * (1 / len(_PLACES))


def _irregular(order: int, x: Expr) -> Expr:
    """Y of an order for x up to `_NEAR`; that of order 1 is the derivative, negated."""
    total = zero(x)
    for place, weight in zip(_PLACES, _LOG_WEIGHTS, strict=True):
        total = total + (
            te.sin(x * place) * (place * weight) if order else te.cos(x * place) * weight
        )
    value = (te.log(x * 0.5) + _EULER) * _regular(order, x) * (2 / pi) + total
    return value - _regular(0, x) * (2 / pi) / x if order else value


def _wave(order: int, x: Expr, *, regular: bool) -> Expr:
    """J or Y of an order for x from `_NEAR` on (Abramowitz and Stegun 9.2.5 to 9.2.10)."""
    parts, term = [zero(x), zero(x)], const(1, x)
    for k in range(_WAVE_TERMS):
        sign = -1.0 if k % 4 > 1 else 1.0
        parts[k % 2] = parts[k % 2] + term * sign
        term = term * ((4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1))) / x
    angle = x - (order / 2 + 0.25) * pi
    first, second = (te.cos, te.sin) if regular else (te.sin, te.cos)
    sign = -1.0 if regular else 1.0
    return te.sqrt((2 / pi) / x) * (first(angle) * parts[0] + second(angle) * parts[1] * sign)


_WAVE_TERMS = 18
"""Of the asymptotic series at 25, where the next one is below 1e-16."""


def _bessel_j(order: int, a: Expr) -> Expr:
    x = te.abs(a)
    value = select(x < _NEAR, _regular(order, x), _wave(order, x, regular=True))
    return _odd(a, value) if order else value


def _bessel_y(order: int, a: Expr) -> Expr:
    x = te.abs(a)
    value = select(x < _NEAR, _irregular(order, x), _wave(order, x, regular=False))
    value = select(a == zero(a), const(-float("inf"), a), value)
    return select(a < zero(a), const(float("nan"), a), value)


_SERIES_TO = 2.0
_SERIES_TERMS = 16
"""Of the power series of K at 2; the last one is below 1e-20."""

_STEP = 0.2
_STEPS = 46
"""Of the trapezoidal rule over exp(-x (cosh t - 1)), whose width is 1 / sqrt(x): exact to 1e-15."""


def _k_factors(order: int) -> list[float]:
    """(psi(k + 1) + psi(k + 1 + order)) / (k! (k + order)!), the factors of the power series."""
    factors, digamma = [], order - 2 * _EULER
    for k in range(_SERIES_TERMS):
        factors.append(digamma / (factorial(k) * factorial(k + order)))
        digamma += 1 / (k + 1) + 1 / (k + 1 + order)
    return factors


def _scaled_k(order: int, a: Expr) -> Expr:
    """exp(x) K of an order (Abramowitz and Stegun 9.6.11 and 9.6.24)."""
    square, total = a * a * 0.25, zero(a)
    for factor in reversed(_k_factors(order)):
        total = total * square + factor
    growing = _scaled(order, a) * te.exp(a)
    if order:
        near = 1.0 / a + te.log(a * 0.5) * growing - total * a * 0.25
    else:
        near = total * 0.5 - te.log(a * 0.5) * growing
    step = _STEP / te.sqrt(a)
    area = const(0.5, a)
    for k in range(1, _STEPS):
        half = te.exp(step * (k / 2))
        sinh = (half - 1.0 / half) * 0.5
        value = te.exp(-2.0 * a * sinh * sinh)
        area = area + (value * (1.0 + 2.0 * sinh * sinh) if order else value)
    value = select(a <= _SERIES_TO, near * te.exp(a), area * step)
    value = select(a == zero(a), const(float("inf"), a), value)
    value = select(a == float("inf"), zero(a), value)
    return select(either(a < zero(a), isnan(a)), const(float("nan"), a), value)


def _spherical_j0(a: Expr) -> Expr:
    """sin(x) / x, 1 at zero and 0 far away."""
    value = te.sin(a) / select(a == zero(a), const(1, a), a)
    value = select(a == zero(a), const(1, a), value)
    return select(te.abs(a) == float("inf"), zero(a), value)


def _spherical_j0_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    square = a * a
    near = a * (-1 / 3) * (1.0 - square * 0.1 * (1.0 - square * (1 / 28)))
    safe = select(a == zero(a), const(1, a), a)
    return g * select(te.abs(a) < _FEW_DIGITS, near, (te.cos(a) - y) / safe)


_FEW_DIGITS = 0.01
"""Below it the difference of cos(x) and sin(x) / x loses digits, and its series needs three terms."""


def _pair(
    function: Callable[[int, Expr], Expr], first: float, second: float, same: float = 0.0
) -> tuple[Pointwise, Pointwise]:
    """Orders 0 and 1, with the derivatives f0' = a f1 + c f0 and f1' = b f0 + c f1 - f1 / x.

    PyTorch has no gradients of them.
    """

    def slope_1(g: Expr, a: Expr, y: Expr) -> Expr:
        share = y / select(a == zero(a), const(1, a), a)
        # J1 is x / 2 near zero; the others are infinite there.
        share = select(a == zero(a), select(y == zero(y), const(0.5, a), y), share)
        return g * (function(0, a) * second + y * same - share)

    return (
        Pointwise(
            lambda a: function(0, a), (lambda g, a, y: g * (function(1, a) * first + y * same),)
        ),
        Pointwise(lambda a: function(1, a), (slope_1,)),
    )


def _plain_k(order: int, a: Expr) -> Expr:
    return _scaled_k(order, a) * te.exp(-a)


_PAIRS = {
    "bessel_j": _pair(_bessel_j, -1.0, 1.0),
    "bessel_k": _pair(_plain_k, -1.0, -1.0),
    "bessel_y": _pair(_bessel_y, -1.0, 1.0),
    "scaled_bessel_k": _pair(_scaled_k, -1.0, -1.0, 1.0),
}

BESSEL: dict[str, Pointwise] = {
    **{f"{name}{order}": one for name, two in _PAIRS.items() for order, one in enumerate(two)},
    "spherical_bessel_j0": Pointwise(_spherical_j0, (_spherical_j0_slope,)),
    "log_ndtr": Pointwise(log_ndtr, (_log_ndtr_slope,)),
    "erfcx": Pointwise(erfcx, (_erfcx_slope,)),
    "i0": Pointwise(i0, (lambda g, a: g * i1(a),)),
    "i0e": Pointwise(i0e, (_i0e_slope,)),
    "i1": Pointwise(i1, (_i1_slope,)),
    "i1e": Pointwise(i1e, (_i1e_slope,)),
}
