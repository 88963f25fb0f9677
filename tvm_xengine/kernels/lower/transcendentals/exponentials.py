"""Exponentials, logarithms, hyperbolic functions and the error function as arithmetic.

Some are written with calls of others, which are expanded in turn.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, tirx

from tvm_xengine.kernels.lower.transcendentals.terms import clip, f32, let, polynomial

_LOG2_E = 1.44269504088896341
"""1 / ln 2."""

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
"""ln 2 in two parts, of which the first has so few bits that its multiples are exact (Cephes)."""

# exp(r) = 1 + r + r^2 * p(r) for |r| <= ln(2) / 2; coefficients of expf in Cephes.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_EXP_UNDERFLOW, _EXP_OVERFLOW = -87.0, 89.0
"""Below the first the result is no normal number of float32, above the second it is infinite."""

# tanh(x) = x + x^3 * p(x^2) for |x| < 0.625, else 1 - 2 / (exp(2 |x|) + 1); coefficients of tanhf in
# Cephes. Gradients read 1 - tanh(x)^2, which a rational function over the whole range makes noise of.
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
_TANH_SMALL = 0.625

# log(1 + f) = f - f^2 / 2 + f^3 * p(f) for 1 + f between sqrt(1/2) and sqrt(2); coefficients of logf
# in Cephes.
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_SQRT_HALF = 0.707106781186547524
_LEAST_NORMAL = 1.1754943508222875e-38
"""Of float32."""

_ERF_LIMIT = 4.0
"""Beyond it erf is 1 in float32."""

# Rational approximation x * p(x^2) / q(x^2) of XLA's erf, for float32.
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def exp(x: ir.Expr) -> ir.Expr:
    """e to the power of `x`, by a polynomial and the bits of a power of two."""

    def scaled(bounded: ir.Expr) -> ir.Expr:
        half = tirx.Select(bounded < 0.0, f32(-0.5), f32(0.5))
        return let(tirx.Cast("int32", bounded * _LOG2_E + half), lambda n: times(bounded, n))

    def times(bounded: ir.Expr, n: ir.Expr) -> ir.Expr:
        exponent = tirx.Cast("float32", n)
        rest = bounded - exponent * _LN2_HIGH - exponent * _LN2_LOW
        # Half of the power of two and then twice: 2^128 alone would overflow too early.
        half_power = tirx.reinterpret("float32", (n + 126) << 23)
        return let(rest, lambda r: (polynomial(_EXP, r) * r * r + r + 1.0) * half_power * 2.0)

    bounded = tirx.Select(x > _EXP_OVERFLOW, f32(_EXP_OVERFLOW), x)
    return tirx.Select(x < _EXP_UNDERFLOW, f32(0.0), let(bounded, scaled))


def log(x: ir.Expr) -> ir.Expr:
    """By the exponent, and a polynomial of the mantissa."""
    # What is no normal number has its bits shifted up first.
    is_small = x < _LEAST_NORMAL
    normal = tirx.Select(is_small, x * 8388608.0, x)
    shift = tirx.Select(is_small, tirx.const(126 + 23, "int32"), tirx.const(126, "int32"))

    def of_bits(bits: ir.Expr) -> ir.Expr:
        mantissa = tirx.reinterpret("float32", (bits & 0x7FFFFF) | 0x3F000000)
        return let(mantissa, lambda m: of_parts(m, (bits >> 23) - shift))

    def of_parts(m: ir.Expr, exponent: ir.Expr) -> ir.Expr:
        is_low = m < _SQRT_HALF
        rest = tirx.Select(is_low, m + m, m) - 1.0
        power = tirx.Cast("float32", exponent - tirx.Select(is_low, 1, 0))
        return let(rest, lambda f: let(power, lambda n: joined(f, n)))

    def joined(f: ir.Expr, n: ir.Expr) -> ir.Expr:
        cubic = polynomial(_LOG, f) * f * f * f
        return f + (cubic + n * _LN2_LOW - f * f * 0.5) + n * _LN2_HIGH

    finite = let(tirx.reinterpret("int32", normal), of_bits)
    of_least = tirx.Select(x < 0.0, f32(float("nan")), f32(float("-inf")))
    # A comparison with NaN does not hold.
    of_most = tirx.Select(x <= 3.4028234663852886e38, finite, x)
    return tirx.Select(x <= 0.0, of_least, of_most)


def log1p(x: ir.Expr) -> ir.Expr:
    """log(u) and what the rounding of u = 1 + x took away, relative to u (fdlibm)."""
    # Through its bits, lest (1 + x) - 1 is taken for x.
    wide = tirx.reinterpret("float32", tirx.reinterpret("int32", x + 1.0))

    def corrected(u: ir.Expr) -> ir.Expr:
        lost = tirx.Select(tirx.abs(x) < 1.0e10, (x - (u - 1.0)) / u, f32(0.0))
        return tirx.log(u) + tirx.Select(u > 0.0, lost, f32(0.0))

    return let(wide, corrected)


def sigmoid(x: ir.Expr) -> ir.Expr:
    """1 / (1 + exp(-x))."""
    return f32(1.0) / (tirx.exp(f32(0.0) - x) + 1.0)


def tanh(x: ir.Expr) -> ir.Expr:
    """By a polynomial near zero, by an exponential elsewhere."""
    near = let(x * x, lambda s: (polynomial(_TANH, s) * s + 1.0) * x)
    grown = tirx.exp(tirx.abs(x) * 2.0)
    far = let(
        f32(1.0) - f32(2.0) / (grown + 1.0),
        lambda y: tirx.Select(x < 0.0, f32(0.0) - y, y),
    )
    return tirx.Select(tirx.abs(x) < _TANH_SMALL, near, far)


def cosh(x: ir.Expr) -> ir.Expr:
    """(exp(x) + exp(-x)) / 2, without an overflow before its own."""
    return _of_half_exponential(x, lambda half: half * 0.5 * half + 0.5 / half / half)


_SINH_TERMS = 9
"""Of the power series up to 1, where the next one is below 1e-17."""


def sinh(x: ir.Expr) -> ir.Expr:
    """Near zero by the series, since the exponentials cancel there."""
    square, near = x * x, tirx.const(1.0, str(x.ty.dtype))
    for k in range(_SINH_TERMS, 0, -1):
        near = near * square * (1 / (2 * k * (2 * k + 1))) + 1.0
    far = _of_half_exponential(x, lambda half: half * 0.5 * half - 0.5 / half / half)
    sign = tirx.Select(x < 0.0, tirx.const(-1.0, str(x.ty.dtype)), tirx.const(1.0, str(x.ty.dtype)))
    return tirx.Select(tirx.abs(x) < 1.0, near * x, far * sign)


def _of_half_exponential(x: ir.Expr, body: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """Of exp(|x| / 2), which overflows only where the result has long overflown."""
    half = tirx.abs(x) * 0.5
    return let(tirx.exp(half), body)


def erf(x: ir.Expr) -> ir.Expr:
    """A rational function within the limit."""

    def rational(c: ir.Expr) -> ir.Expr:
        return let(c * c, lambda s: c * polynomial(_ERF_P, s) / polynomial(_ERF_Q, s))

    return let(let(clip(x, _ERF_LIMIT), rational), lambda y: clip(y, 1.0))
