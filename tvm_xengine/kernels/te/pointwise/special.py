"""Special functions related to the gamma and error functions."""

from __future__ import annotations

from math import factorial, log, pi, sqrt

from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.pointwise.function import (
    Pointwise,
    both,
    const,
    in_single,
    library,
    named,
    select,
    with_sign,
    zero,
)

_SHIFT = 10
"""Asymptotic series are used from here on; after the seven terms below the next one is under 1e-16."""

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""Bernoulli's numbers B2, B4, ..., B14."""

_HALF_LOG_TWO_PI = 0.9189385332046727
"""log(2 pi) / 2, the constant of Stirling's series."""


def lgamma(a: Expr) -> Expr:
    """log |gamma(a)|, by Stirling's series above 10, the recurrence and the reflection below."""
    infinity = const(float("inf"), a)
    above = select(a < 0.5, 1.0 - a, a)
    product = const(1, a)
    for k in range(_SHIFT):
        product = product * (above + float(k))
    shifted = select(above < float(_SHIFT), above + float(_SHIFT), above)
    value = _stirling(shifted) - select(above < float(_SHIFT), te.log(product), zero(a))
    fraction = a - te.floor(a)
    reflected = te.log(const(pi, a) / te.abs(te.sin(fraction * pi))) - value
    value = select(a < 0.5, reflected, value)
    at_pole = both(a <= zero(a), fraction == zero(a))
    return select(at_pole, infinity, select(te.abs(a) == infinity, infinity, value))


def _stirling(z: Expr) -> Expr:
    tail = zero(z)
    for k, number in enumerate(BERNOULLI, 1):
        tail = tail + (number / (2 * k * (2 * k - 1))) / _whole_power(z, 2 * k - 1)
    return (z - 0.5) * te.log(z) - z + _HALF_LOG_TWO_PI + tail


def digamma(a: Expr) -> Expr:
    """The derivative of log gamma."""
    above = select(a < 0.5, 1.0 - a, a)
    below = zero(a)
    for k in range(_SHIFT):
        below = below + 1.0 / (above + float(k))
    z = select(above < float(_SHIFT), above + float(_SHIFT), above)
    tail = zero(a)
    for k, number in enumerate(BERNOULLI, 1):
        tail = tail + (number / (2 * k)) / _whole_power(z, 2 * k)
    value = te.log(z) - 0.5 / z - tail - select(above < float(_SHIFT), below, zero(a))
    fraction = a - te.floor(a)
    value = select(a < 0.5, value - pi / te.tan(fraction * pi), value)
    at_pole = both(a < zero(a), fraction == zero(a))
    value = select(at_pole, float("nan"), value)
    # 1 / a keeps the sign of a zero.
    return select(a == zero(a), -1.0 / a, value)


def trigamma(a: Expr) -> Expr:
    """The derivative of digamma."""
    fraction = a - te.floor(a)
    # At whole numbers PyTorch's value is large, but finite: its sine of a multiple of pi is not 0.
    sine = te.sin(select(fraction == zero(a), a, fraction) * pi)
    value = _hurwitz_zeta(2, select(a < 0.5, 1.0 - a, a))
    return select(a < 0.5, const(pi * pi, a) / (sine * sine) - value, value)


def _trigamma_slope(g: Expr, a: Expr) -> Expr:
    fraction = a - te.floor(a)
    sine, cosine = te.sin(fraction * pi), te.cos(fraction * pi)
    value = -2.0 * _hurwitz_zeta(3, select(a < 0.5, 1.0 - a, a))
    # The reflection's cosine changes its sign with every whole number, as the cube of its sine does.
    reflected = value - const(2 * pi**3, a) * cosine / (sine * sine * sine)
    value = select(a < 0.5, reflected, value)
    at_pole = both(a <= zero(a), fraction == zero(a))
    value = select(at_pole, const(-float("inf"), a), value)
    return g * select(te.abs(a) == float("inf"), _far_slope(a), value)


def _far_slope(a: Expr) -> Expr:
    """PyTorch's sum ends in NaN at infinity, and takes minus infinity for a whole number."""
    return select(a < zero(a), const(-float("inf"), a), const(float("nan"), a))


def _hurwitz_zeta(s: int, q: Expr) -> Expr:
    """The sum of 1 / (q + k)^s for q from 1/2, by Euler and Maclaurin behind the first terms."""
    value = zero(q)
    for k in range(_SHIFT):
        value = value + 1.0 / _whole_power(q + float(k), s)
    z = q + float(_SHIFT)
    value = value + 1.0 / _whole_power(z, s - 1) / float(s - 1) + 0.5 / _whole_power(z, s)
    rising = float(s)
    for k, number in enumerate(BERNOULLI, 1):
        value = value + (number * rising / factorial(2 * k)) / _whole_power(z, s + 2 * k - 1)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return value


def _whole_power(a: Expr, exponent: int) -> Expr:
    result = const(1, a)
    while exponent:
        if exponent % 2:
            result = result * a
        a, exponent = a * a, exponent // 2
    return result


_NEAR = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_FAR = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)
"""Polynomials of Giles, Approximating the erfinv function (2010), single precision."""

_HALLEY_STEPS = 3
"""Each one cubes the error of 1e-7 that the polynomials leave; the others are for the tails."""


def erfc(a: Expr) -> Expr:
    """What the error function leaves to 1."""
    return in_single(lambda x: library("erfc", x), a)


def erfinv(a: Expr) -> Expr:
    """The number whose error function is a."""
    w = -te.log((1.0 - a) * (1.0 + a))
    near, far = w - 2.5, te.sqrt(w) - 3.0
    low, high = const(_NEAR[0], a), const(_FAR[0], a)
    for p, q in zip(_NEAR[1:], _FAR[1:], strict=True):
        low, high = low * near + p, high * far + q
    size = te.abs(a)
    # Beyond float32: erfc(x) is exp(-x^2) / (x sqrt(pi)), about.
    beyond_single = te.sqrt(w + log(2) - te.log(te.sqrt(w * pi)))
    x = select(w < 16.0, select(w < 5.0, low, high) * size, beyond_single)
    for _ in range(_HALLEY_STEPS):
        x = named(x, lambda x: _nearer(x, size))
    beyond = select(size == 1.0, const(float("inf"), a), const(float("nan"), a))
    return with_sign(select(size < 1.0, x, beyond), a)


def _nearer(x: Expr, wanted: Expr) -> Expr:
    """A step of Halley's method towards the number of this error function."""
    # Near 1 the difference of what both leave to 1 has digits that their own difference lacks.
    excess = select(wanted < 0.5, te.erf(x) - wanted, (1.0 - wanted) - erfc(x))
    slope = te.exp(-x * x) * (2 / sqrt(pi))
    return named(excess, lambda excess: x - excess / (slope + x * excess))


_MIDDLE = (
    (
        *(2509.0809287301226727, 33430.575583588128105, 67265.770927008700853),
        *(45921.953931549871457, 13731.693765509461125, 1971.5909503065514427),
        *(133.14166789178437745, 3.387132872796366608),
    ),
    (
        *(5226.495278852854561, 28729.085735721942674, 39307.89580009271061),
        *(21213.794301586595867, 5394.1960214247511077, 687.1870074920579083),
        *(42.313330701600911252, 1.0),
    ),
)
_TAIL = (
    (
        *(7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177),
        *(1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055),
        *(4.6303378461565452959, 1.42343711074968357734),
    ),
    (
        *(1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966),
        *(0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494),
        *(2.05319162663775882187, 1.0),
    ),
)
_FAR_TAIL = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386),
        *(0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358),
        *(5.4637849111641143699, 6.6579046435011037772),
    ),
    (
        *(2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5),
        *(7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531),
        *(0.59983220655588793769, 1.0),
    ),
)
"""Numerators and denominators of Wichura, The percentage points of the normal distribution (1988)."""


def _ratio(x: Expr, factors: tuple[tuple[float, ...], tuple[float, ...]]) -> Expr:
    made = []
    for polynomial in factors:
        total = zero(x)
        for factor in polynomial:
            total = total * x + factor
        made.append(total)
    return made[0] / made[1]


def ndtri(a: Expr) -> Expr:
    """The number below which a share of the normal distribution lies."""
    from_half = a - 0.5
    middle = from_half * _ratio(0.180625 - from_half * from_half, _MIDDLE)
    r = te.sqrt(-te.log(select(from_half < zero(a), a, 1.0 - a)))
    tail = select(r <= 5.0, _ratio(r - 1.6, _TAIL), _ratio(r - 5.0, _FAR_TAIL))
    value = select(from_half < zero(a), -tail, tail)
    value = select(te.abs(from_half) <= 0.425, middle, value)
    value = select(a == zero(a), const(-float("inf"), a), value)
    value = select(a == 1.0, const(float("inf"), a), value)
    return select(both(a >= zero(a), a <= 1.0), value, const(float("nan"), a))


def entr(a: Expr) -> Expr:
    """-a log(a), 0 at 0 and -inf below."""
    value = select(a == zero(a), zero(a), -a * te.log(a))
    return select(a < zero(a), const(-float("inf"), a), value)


SPECIAL: dict[str, Pointwise] = {
    "digamma": Pointwise(digamma, (lambda g, a: g * trigamma(a),)),
    "entr": Pointwise(entr, (lambda g, a: g * (-(1.0 + te.log(a))),)),
    "erfc": Pointwise(
        erfc,
        (lambda g, a: g * te.exp(-a * a) * (-2 / sqrt(pi)),),
    ),
    "erfinv": Pointwise(erfinv, (lambda g, y: g * te.exp(y * y) * (sqrt(pi) / 2),)),
    "lgamma": Pointwise(lgamma, (lambda g, a: g * digamma(a),)),
    "ndtri": Pointwise(ndtri, (lambda g, y: g * te.exp(y * y * 0.5) * sqrt(2 * pi),)),
    "trigamma": Pointwise(trigamma, (_trigamma_slope,)),
}
