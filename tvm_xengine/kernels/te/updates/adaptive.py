"""Updates of optimizers that scale each element by its own history, one kernel per parameter.

The stages keep the rule of `tvm_xengine.kernels.te.updates.optimizer`, so that every output may be written
over the tensor that it replaces.
"""

from __future__ import annotations

import math

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.pointwise.function import greater, named
from tvm_xengine.kernels.te.updates.optimizer import Element, Updated


def adam_factors(
    lr: te.Tensor, step: te.Tensor, *, beta1: float, beta2: float, dtype: str
) -> list[te.Tensor]:
    """The corrections of Adam's bias: ``lr / (1 - beta1^t)`` and ``sqrt(1 - beta2^t)``.

    They are the same for all elements. No float64 is needed, whose power costs thousands of
    instructions on processors without such numbers: `left_of_decay` does not cancel.
    """
    wide = at_least_single(dtype)
    count = (step() + tvm.tirx.const(1, step.dtype)).astype(wide)

    def rate() -> Expr:
        return (lr().astype(wide) / left_of_decay(beta1, count)).astype(dtype)

    return [
        te.compute((), rate, name="rate"),
        te.compute(
            (), lambda: te.sqrt(left_of_decay(beta2, count)).astype(dtype), name="root_of_average"
        ),
    ]


_SERIES_TERMS = {"float32": 9, "float64": 15}
"""Terms of the series of ``1 - exp(-y)`` whose rest, up to y = 0.5, is below the type's rounding:
``0.5^9 / 10! = 5e-10`` of the value, and ``0.5^15 / 16! = 1.5e-18``."""


def left_of_decay(beta: float, count: Expr) -> Expr:
    """``1 - beta^count``."""
    dtype = str(count.ty.dtype)
    if beta == 0:
        return tvm.tirx.const(1, dtype)
    return left_of_exponential(count * tvm.tirx.const(-math.log(beta), dtype))


def left_of_exponential(y: Expr) -> Expr:
    """``1 - exp(-y)``, by its series where the difference would cancel."""
    dtype = str(y.ty.dtype)
    one = tvm.tirx.const(1, dtype)

    def left(y: Expr) -> Expr:
        series = one
        for k in range(_SERIES_TERMS[dtype], 1, -1):
            series = one - y * tvm.tirx.const(1 / k, dtype) * series
        is_small = y < tvm.tirx.const(0.5, dtype)
        return tvm.tirx.Select(is_small, y * series, one - te.exp(-y))

    return named(y, left)


def at_least_single(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def decayed_rate(lr: te.Tensor, step: te.Tensor, *, lr_decay: float, dtype: str) -> te.Tensor:
    """Adagrad's learning rate after `step` earlier steps: ``lr / (1 + step * lr_decay)``."""
    wide = at_least_single(dtype)
    slower = tvm.tirx.const(1, wide) + step().astype(wide) * tvm.tirx.const(lr_decay, wide)
    return te.compute((), lambda: (lr().astype(wide) / slower).astype(dtype), name="rate")


def adam(
    read: Updated, beta1: float, beta2: float, epsilon: float
) -> tuple[Element, list[te.Tensor]]:
    """Adam with the factors of `adam_factors`.

    With a third slot it divides by the largest second moment so far (Reddi et al. 2018).
    """
    rate, root = read.factors
    first = read.average(0, read.gradient, beta1, "new_first_moment")
    second = read.average(1, read.squared, beta2, "new_second_moment")
    made = [first, second]
    if len(read.slots) > len(made):
        largest = read.slots[2]
        made.append(read.stored(lambda *i: greater(largest(*i), second(*i)), "new_largest_moment"))
    return lambda *i: rate() * (first(*i) / (te.sqrt(made[-1](*i)) / root() + epsilon)), made


def rmsprop(
    read: Updated, alpha: float, epsilon: float, momentum: float = 0.0, centered: bool = False
) -> tuple[Element, list[te.Tensor]]:
    """s = alpha * s + (1 - alpha) * g^2; p = p - lr * g / (sqrt(s) + epsilon).

    With the slot of the gradient's average, when `centered`, it divides by the estimated standard
    deviation instead; the last slot is the velocity when there is a `momentum` of the scaled gradient.
    """
    square = read.average(0, read.squared, alpha, "new_square")
    made = [square]
    if centered:
        made.append(read.average(1, read.gradient, alpha, "new_mean"))

    def scaled(*i: Var) -> Expr:
        spread = square(*i) - made[1](*i) * made[1](*i) if centered else square(*i)
        return read.gradient(*i) / (te.sqrt(spread) + epsilon)

    change: Element = scaled
    if momentum:
        change = read.stored(lambda *i: read.slots[-1](*i) * momentum + scaled(*i), "new_velocity")
        made = [*made, change]
    return lambda *i: read.rate() * change(*i), made


def adagrad(read: Updated, epsilon: float) -> tuple[Element, list[te.Tensor]]:
    """s = s + g^2; p = p - lr * g / (sqrt(s) + epsilon)."""
    (old,) = read.slots
    total = read.stored(lambda *i: old(*i) + read.squared(*i), "new_sum")
    return lambda *i: read.rate() * (read.gradient(*i) / (te.sqrt(total(*i)) + epsilon)), [total]


def adadelta(read: Updated, rho: float, epsilon: float) -> tuple[Element, list[te.Tensor]]:
    """s = rho * s + (1 - rho) * g^2; d = g * sqrt((u + epsilon) / (s + epsilon)); p = p - lr * d.

    Then u follows d^2 by rho. The parameter is written last, so the old u is read out of the new one:
    ``u + epsilon = (new u + rho * epsilon) (s + epsilon) / (rho * (s + epsilon) + (1 - rho) * g^2)``.
    """
    square = read.average(0, read.squared, rho, "new_square")
    old = read.slots[1]

    def moved(*i: Var) -> Expr:
        ratio = (old(*i) + epsilon) / (square(*i) + epsilon)
        return old(*i) * rho + ratio * read.squared(*i) * (1 - rho)

    deltas = read.stored(moved, "new_deltas")

    def change(*i: Var) -> Expr:
        below = (square(*i) + epsilon) * rho + read.squared(*i) * (1 - rho)
        return read.rate() * read.gradient(*i) * te.sqrt((deltas(*i) + rho * epsilon) / below)

    return change, [square, deltas]


def lion(read: Updated, beta1: float, beta2: float) -> tuple[Element, list[te.Tensor]]:
    """p = p - lr * sign(beta1 * m + (1 - beta1) * g); then m follows g by beta2.

    The stage of the parameter comes first and writes nothing that the other one reads.
    """
    (old,) = read.slots
    zero, one = (tvm.tirx.const(value, read.parameter.dtype) for value in (0, 1))

    def change(*i: Var) -> Expr:
        mixed = old(*i) * beta1 + read.gradient(*i) * (1 - beta1)
        sign = tvm.tirx.Select(mixed > zero, one, tvm.tirx.Select(mixed < zero, -one, zero))
        return read.rate() * sign

    return change, [read.average(0, read.gradient, beta2, "new_first_moment")]
