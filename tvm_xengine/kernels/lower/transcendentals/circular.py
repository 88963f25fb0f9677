"""Functions of angles, and angles, as arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

from tvm import ir, tirx

from tvm_xengine.kernels.lower.transcendentals.terms import f32, let, polynomial

_TWO_BY_PI = (
    *("0x1.45f306dp-1", "0x1.9391054p-30", "0x1.4fe13abp-59", "0x1.d1f534dp-88"),
    *("0x1.b81b6c5p-117", "0x1.5993c4p-148", "0x1.c820ff2p-175"),
)
"""2 / pi in parts of 29 bits, whose products with 24 bits of a float32 are exact in float64.

All of them reach 70 bits behind the point of the greatest float32 (Payne and Hanek, 1983).
"""
_TURNING = 5
"""Parts whose product with a float32 may be more than a quarter turn."""

# sin(r) = r + r^3 * p(r^2), cos(r) = 1 - r^2 / 2 + r^4 * p(r^2) for |r| <= pi / 4; coefficients of
# sinf and cosf in Cephes.
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)

# atan(r) = r + r^3 * p(r^2) for |r| <= tan(pi / 8); coefficients of atanf in Cephes.
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_TAN_OF_EIGHTH = 0.4142135623730950
_NEAR_OVERFLOW, _NEAR_UNDERFLOW = 1.0e38, 1.0e-30
"""Beyond the first the sum of two float32 may be infinite, below the second products lose digits."""
_PI, _HALF_PI = (3.14159274101257324, -8.74227766e-8), (1.57079637050628662, -4.37113883e-8)
"""As float32, and what that is too great or small by."""


def sin(x: ir.Expr) -> ir.Expr:
    """Of any float32; NaN of an infinity.

    Over every 37th float32 the greatest error is 1.53 units in the last place.
    """
    return _odd(x, lambda n, s, c: _signed(tirx.Select((n & 1) == 0, s, c), n))


def cos(x: ir.Expr) -> ir.Expr:
    """Of any float32, as `sin`."""
    return _of_quarters(x, lambda n, s, c: _signed(tirx.Select((n & 1) == 0, c, s), n + 1))


def tan(x: ir.Expr) -> ir.Expr:
    """sin / cos: the cotangent of an odd quarter, with the other sign."""

    def of_parts(n: ir.Expr, sine: ir.Expr, cosine: ir.Expr) -> ir.Expr:
        is_even = (n & 1) == 0
        dividend = tirx.Select(is_even, sine, f32(0.0) - cosine)
        return dividend / tirx.Select(is_even, cosine, sine)

    return _odd(x, of_parts)


def atan(x: ir.Expr) -> ir.Expr:
    """The angle between -pi / 2 and pi / 2 whose tangent is `x`."""
    return let(tirx.abs(x), lambda size: _with_sign_of(x, _angle(size, f32(1.0))))


def atan2(y: ir.Expr, x: ir.Expr) -> ir.Expr:
    """The angle of the point (x, y), between -pi and pi; of zeros and infinities as C defines it."""

    def of_sizes(up: ir.Expr, along: ir.Expr) -> ir.Expr:
        return let(_angle(up, along), lambda a: tirx.Select(_bits(x) < 0, _from(_PI, a), a))

    sizes = let(tirx.abs(y), lambda up: let(tirx.abs(x), lambda along: of_sizes(up, along)))
    return _with_sign_of(y, sizes)


def _odd(x: ir.Expr, body: Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr]) -> ir.Expr:
    """A function of sine and cosine that is a zero with its own sign at zero."""
    return tirx.Select(x == 0.0, x, _of_quarters(x, body))


def _of_quarters(x: ir.Expr, body: Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr]) -> ir.Expr:
    """`body` of the nearest number of quarter turns, and of sine and cosine of the rest.

    Each product is less whole turns before they are added; a sum that is near a quarter turn is exact
    until the last part that counts.
    """

    def of_parts(parts: list[ir.Expr]) -> ir.Expr:
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return let(tirx.nearbyint(total), lambda quarters: of_rest(parts, quarters))

    def of_rest(parts: list[ir.Expr], quarters: ir.Expr) -> ir.Expr:
        rest = parts[0] - quarters
        for part in parts[1:]:
            rest = rest + part
        number = tirx.Cast("int32", quarters)
        angle = tirx.Cast("float32", rest * tirx.const(pi / 2, "float64"))
        return let(number, lambda n: let(angle, lambda r: let(r * r, lambda s: of(n, r, s))))

    def of(n: ir.Expr, r: ir.Expr, square: ir.Expr) -> ir.Expr:
        sine = polynomial(_SIN, square) * square * r + r
        cosine = polynomial(_COS, square) * square * square - square * 0.5 + 1.0
        return body(n, sine, cosine)

    def multiplied(wide: ir.Expr, done: list[ir.Expr]) -> ir.Expr:
        if len(done) == len(_TWO_BY_PI):
            return of_parts(done)
        product = wide * tirx.const(float.fromhex(_TWO_BY_PI[len(done)]), "float64")
        if len(done) < _TURNING:
            product = let(product, _less_whole_turns)
        return let(product, lambda part: multiplied(wide, [*done, part]))

    return let(tirx.Cast("float64", x), lambda wide: multiplied(wide, []))


def _less_whole_turns(quarters: ir.Expr) -> ir.Expr:
    return quarters - tirx.nearbyint(quarters * 0.25) * 4.0


def _angle(up: ir.Expr, along: ir.Expr) -> ir.Expr:
    """The angle of a point with coordinates that are not negative, between 0 and pi / 2."""
    is_steep = along < up
    least, most = tirx.Select(is_steep, along, up), tirx.Select(is_steep, up, along)
    scale = tirx.Select(most < _NEAR_UNDERFLOW, f32(2.0**40), f32(1.0))
    scale = tirx.Select(most > _NEAR_OVERFLOW, f32(0.25), scale)

    def of_sides(a: ir.Expr, b: ir.Expr) -> ir.Expr:
        is_far = tirx.all(a >= b * _TAN_OF_EIGHTH, a > 0.0)
        dividend = tirx.Select(is_far, tirx.Select(a == b, f32(0.0), a - b), a)
        divisor = tirx.Select(is_far, a + b, b)
        ratio = dividend / tirx.Select(b == 0.0, f32(1.0), divisor)
        start = tirx.Select(is_far, f32(pi / 4), f32(0.0))
        return let(ratio, lambda r: let(r * r, lambda s: polynomial(_ATAN, s) * s * r + r + start))

    sides = let(scale, lambda k: let(least * k, lambda a: let(most * k, lambda b: of_sides(a, b))))
    return let(sides, lambda angle: tirx.Select(is_steep, _from(_HALF_PI, angle), angle))


def _from(angle: tuple[float, float], less: ir.Expr) -> ir.Expr:
    high, low = angle
    return f32(high) - less + f32(low)


def _signed(value: ir.Expr, quarters: ir.Expr) -> ir.Expr:
    """Negative in the two quarters of a turn in which a sine is."""
    return tirx.Select((quarters & 2) == 0, value, f32(0.0) - value)


def _with_sign_of(x: ir.Expr, size: ir.Expr) -> ir.Expr:
    """A number that is not negative with the sign of `x`, also that of a zero."""
    return tirx.reinterpret("float32", _bits(size) | (_bits(x) & tirx.const(-(2**31), "int32")))


def _bits(x: ir.Expr) -> ir.Expr:
    return tirx.reinterpret("int32", x)
