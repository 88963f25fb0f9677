"""Parts of arithmetic that functions are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import ir, tirx


def let(value: ir.Expr, body: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """What `body` makes of a value that is computed once."""
    var = ir.Var("v", str(value.ty.dtype))
    return tirx.Let(var, value, body(var))


def polynomial(coefficients: Sequence[float], x: ir.Expr) -> ir.Expr:
    """Horner's rule, the coefficient of the highest power first."""
    value: ir.Expr = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + f32(coefficient)
    return value


def clip(x: ir.Expr, limit: float) -> ir.Expr:
    """`x` within ``-limit .. limit``; unlike a minimum of a maximum it keeps NaN."""
    return tirx.Select(x > limit, f32(limit), tirx.Select(x < -limit, f32(-limit), x))


def f32(value: float) -> ir.Expr:
    """A constant of float32."""
    return tirx.const(value, "float32")
