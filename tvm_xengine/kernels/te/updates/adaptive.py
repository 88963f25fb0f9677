"""Updates of optimizers that scale each element by its own history, one kernel per parameter.

The stages keep the rule of `tvm_xengine.kernels.te.updates.optimizer`, so that every output may be written
over the tensor that it replaces.
"""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.updates.factors import at_least_single, scalar
from tvm_xengine.kernels.te.updates.optimizer import Element, Updated


def decayed_rate(lr: te.Tensor, step: te.Tensor, *, lr_decay: float, dtype: str) -> te.Tensor:
    """Adagrad's learning rate after `step` earlier steps: ``lr / (1 + step * lr_decay)``."""
    wide = at_least_single(dtype)
    slower = tvm.tirx.const(1, wide) + step().astype(wide) * tvm.tirx.const(lr_decay, wide)
    return scalar(lr().astype(wide) / slower, dtype, "rate")


def rmsprop(
    read: Updated, alpha: float, eps: float, momentum: float = 0.0, centered: bool = False
) -> tuple[Element, list[te.Tensor]]:
    """s = alpha * s + (1 - alpha) * g^2; p = p - lr * g / (sqrt(s) + eps).

    With the slot of the gradient's average, when `centered`, it divides by the estimated standard
    deviation instead; the last slot is the velocity when there is a `momentum` of the scaled gradient.
    """
    square = read.average(0, read.squared, alpha, "new_square")
    made = [square]
    if centered:
        made.append(read.average(1, read.gradient, alpha, "new_mean"))

    def scaled(*i: Var) -> Expr:
        spread = square(*i) - made[1](*i) * made[1](*i) if centered else square(*i)
        return read.gradient(*i) / (te.sqrt(spread) + eps)

    change: Element = scaled
    if momentum:
        change = read.stored(lambda *i: read.slots[-1](*i) * momentum + scaled(*i), "new_velocity")
        made = [*made, change]
    return lambda *i: read.rate() * change(*i), made


def adagrad(read: Updated, eps: float) -> tuple[Element, list[te.Tensor]]:
    """s = s + g^2; p = p - lr * g / (sqrt(s) + eps)."""
    (old,) = read.slots
    total = read.stored(lambda *i: old(*i) + read.squared(*i), "new_sum")
    return lambda *i: read.rate() * (read.gradient(*i) / (te.sqrt(total(*i)) + eps)), [total]


def adadelta(read: Updated, rho: float, eps: float) -> tuple[Element, list[te.Tensor]]:
    """s = rho * s + (1 - rho) * g^2; d = g * sqrt((u + eps) / (s + eps)); p = p - lr * d.

    Then u follows d^2 by rho. The parameter is written last, so the old u is read out of the new one:
    ``u + eps = (new u + rho * eps) (s + eps) / (rho * (s + eps) + (1 - rho) * g^2)``, and with
    ``rho = 0`` the new u is d^2.
    """
    square = read.average(0, read.squared, rho, "new_square")
    old = read.slots[1]

    def moved(*i: Var) -> Expr:
        ratio = (old(*i) + eps) / (square(*i) + eps)
        return old(*i) * rho + ratio * read.squared(*i) * (1 - rho)

    deltas = read.stored(moved, "new_deltas")

    def change(*i: Var) -> Expr:
        if not rho:
            length = read.rate() * te.sqrt(deltas(*i))
            return tvm.tirx.Select(read.gradient(*i) < 0, -length, length)
        below = (square(*i) + eps) * rho + read.squared(*i) * (1 - rho)
        return read.rate() * read.gradient(*i) * te.sqrt((deltas(*i) + rho * eps) / below)

    return change, [square, deltas]


def lion(read: Updated, betas: tuple[float, float]) -> tuple[Element, list[te.Tensor]]:
    """p = p - lr * sign(beta1 * m + (1 - beta1) * g); then m follows g by beta2.

    The stage of the parameter comes first and writes nothing that the other one reads.
    """
    (old,) = read.slots
    zero, one = (tvm.tirx.const(value, read.parameter.dtype) for value in (0, 1))

    def change(*i: Var) -> Expr:
        mixed = old(*i) * betas[0] + read.gradient(*i) * (1 - betas[0])
        sign = tvm.tirx.Select(mixed > zero, one, tvm.tirx.Select(mixed < zero, -one, zero))
        return read.rate() * sign

    return change, [read.average(0, read.gradient, betas[1], "new_first_moment")]
