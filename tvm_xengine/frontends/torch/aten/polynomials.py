"""Orthogonal polynomials, divisors, zeta and polygamma functions: loops that end by their values."""

from __future__ import annotations

from functools import partial
from math import factorial, prod

import numpy as np
from tvm import ir, relax

from tvm_xengine.frontends.torch.aten.arithmetic import Operand, pair
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.matrix_ops import value_and_change
from tvm_xengine.relax_ir.own_ops import POLYNOMIAL_OPS, loop_op, pointwise
from tvm_xengine.relax_ir.types import static_shape


def looped(name: str, builder: Builder, a: Operand, b: Operand) -> Expr:
    """A loop for each pair of elements."""
    left, right = pair(a, b)
    return _over_pairs(name, builder, left, right)


def _over_pairs(name: str, builder: Builder, left: Expr, right: Expr) -> Expr:
    shape = np.broadcast_shapes(static_shape(left.ty), static_shape(right.ty))
    flat = []
    for one in (left, right):
        wide = builder.emit(relax.op.broadcast_to(one, shape))
        flat.append(builder.emit(relax.op.reshape(wide, (prod(shape),))))
    return builder.emit(relax.op.reshape(builder.emit(loop_op(name, *flat)), shape))


def polynomial(family: str, shifted: bool, builder: Builder, x: Operand, degree: Operand) -> Expr:
    """A polynomial of a degree, whose fraction is cut off; shifted ones live on [0, 1]."""
    at, number = pair(x, degree)
    if not isinstance(degree, ir.Expr):
        number = relax.const(int(degree), "int64")
    if shifted:
        doubled = relax.op.multiply(at, scalar(2.0, at))
        at = builder.emit(relax.op.subtract(doubled, scalar(1.0, at)))
    return _over_pairs(family, builder, at, builder.emit(relax.op.astype(number, "int64")))


def polygamma(builder: Builder, order: int, x: Expr) -> Expr:
    """A derivative of the logarithm of the gamma function: from order 2 on by the zeta function."""
    if order < 2:
        return builder.emit(pointwise("trigamma" if order else "digamma", x))
    fixed = builder.emit(relax.op.grad.no_grad(x))
    value, slope = (_by_zeta(builder, n, fixed) for n in (order, order + 1))
    change = builder.emit(relax.op.multiply(x, slope))
    return builder.emit(value_and_change(value, change))


def _by_zeta(builder: Builder, order: int, x: Expr) -> Expr:
    """(-1)^(n + 1) n! zeta(n + 1, x) (Abramowitz and Stegun 6.4.10)."""
    value = looped("hurwitz_zeta", builder, order + 1, x)
    factor = float((-1) ** (order + 1) * factorial(order))
    return builder.emit(relax.op.multiply(value, scalar(factor, x)))


def lcm(builder: Builder, a: Expr, b: Expr) -> Expr:
    """The least common multiple, 0 where one of them is."""
    divisor = looped("gcd", builder, a, b)
    share = pointwise("trunc_divide", a, relax.op.maximum(divisor, scalar(1, divisor)))
    return builder.emit(relax.op.abs(relax.op.multiply(builder.emit(share), b)))


CONVERTERS: dict[str, Converter] = {
    **{
        f"special_{prefix}{kind[:-2]}_polynomial_{kind[-1]}.{form}": partial(
            polynomial, kind, bool(prefix)
        )
        for kind in POLYNOMIAL_OPS
        if kind != "hermite_he"
        for prefix in (("", "shifted_") if kind.startswith("chebyshev") else ("",))
        for form in ("default", "n_scalar", "x_scalar")
    },
    **{
        f"special_hermite_polynomial_he.{form}": partial(polynomial, "hermite_he", False)
        for form in ("default", "n_scalar", "x_scalar")
    },
    "gcd.default": partial(looped, "gcd"),
    "lcm.default": lcm,
    "polygamma.default": polygamma,
    **{
        f"special_zeta.{form}": partial(looped, "hurwitz_zeta")
        for form in ("default", "other_scalar", "self_scalar")
    },
}
