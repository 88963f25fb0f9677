"""Modified Bessel functions of the first kind, and the scaled complementary error function."""

from __future__ import annotations

from math import pi, sqrt

from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.pointwise.function import Pointwise, const, select, zero

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
    return g * select(a == zero(a), const(0.5, a), i0(a) - y / safe)


def _i1e_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    safe = select(a == zero(a), const(1, a), a)
    sign = select(a < zero(a), const(-1, a), const(1, a))
    return g * select(a == zero(a), const(0.5, a), i0e(a) - y * (sign + 1.0 / safe))


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
    value = select(x < _FRACTION_FROM, square * (1.0 - te.erf(x)), (1 / sqrt(pi)) / rest)
    return select(a < zero(a), 2.0 * square - value, value)


def _erfcx_slope(g: Expr, a: Expr, y: Expr) -> Expr:
    return g * (2.0 * a * y - 2 / sqrt(pi))


BESSEL: dict[str, Pointwise] = {
    "erfcx": Pointwise(erfcx, (_erfcx_slope,)),
    "i0": Pointwise(i0, (lambda g, a: g * i1(a),)),
    "i0e": Pointwise(i0e, (_i0e_slope,)),
    "i1": Pointwise(i1, (_i1_slope,)),
    "i1e": Pointwise(i1e, (_i1e_slope,)),
}
