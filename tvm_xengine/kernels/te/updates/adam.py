"""Updates of Adam and its relatives, one kernel per parameter.

The stages keep the rule of `tvm_xengine.kernels.te.updates.optimizer`, so that every output may be written
over the tensor that it replaces.
"""

from __future__ import annotations

import math
from itertools import accumulate

import tvm
from scipy.special import bernoulli
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.pointwise.function import greater, named, select
from tvm_xengine.kernels.te.updates.factors import (
    left_of_decay,
    left_of_exponential,
    scalar,
    step_count,
)
from tvm_xengine.kernels.te.updates.optimizer import Element, Updated

NADAM_BASE = 0.96
"""Of the schedule of NAdam's momentum."""

_PRODUCT_TERMS = {"float32": 24, "float64": 50}
"""Of the series of ``log(1 - 0.5 x)``, up to x = 1: ``0.5^24 / 24 = 2e-9``, ``0.5^50 / 50 = 2e-17``."""

_RECTIFIED_FROM = 5.0
"""Length of the average from which on RAdam takes the variance of its scale for finite."""

_LENGTH_TERMS = 11
"""Of the series of ``1 / (exp(y) - 1)``, up to y = 1: each is 40 times smaller than the one before."""


def adam_factors(
    lr: te.Tensor, step: te.Tensor, *, betas: tuple[float, float], dtype: str
) -> list[te.Tensor]:
    """The corrections of Adam's bias: ``lr / (1 - beta1^t)`` and ``sqrt(1 - beta2^t)``.

    They are the same for all elements. No float64 is needed, whose power costs thousands of
    instructions on processors without such numbers: `left_of_decay` does not cancel.
    """
    count = step_count(step, dtype)
    return [
        scalar(_corrected_rate(lr, betas[0], count), dtype, "rate"),
        scalar(te.sqrt(left_of_decay(betas[1], count)), dtype, "root_of_average"),
    ]


def _corrected_rate(lr: te.Tensor, beta: float, count: Expr) -> Expr:
    """The learning rate with the correction of the first moment's bias."""
    return lr().astype(str(count.ty.dtype)) / left_of_decay(beta, count)


def nadam_factors(
    lr: te.Tensor,
    step: te.Tensor,
    *,
    betas: tuple[float, float],
    momentum_decay: float,
    dtype: str,
) -> list[te.Tensor]:
    """What NAdam multiplies gradient and first moment with, and the root of Adam's correction.

    The momentum of step t is ``mu_t = beta1 (1 - 0.5 q^t)`` with ``q = 0.96^momentum_decay``. The product
    of all is a state in PyTorch; here its logarithm is a sum of geometric series, of which only ``q^t``
    changes: ``log(1 - 0.5 q^t) = -sum_j (0.5 q^t)^j / j``.
    """
    count, q = step_count(step, dtype), NADAM_BASE**momentum_decay
    wide = str(count.ty.dtype)
    one, of_beta = tvm.tirx.const(1, wide), tvm.tirx.const(betas[0], wide)
    left = scalar(left_of_decay(q, count), wide, "left")  # 1 - q^t
    momentum, following = ((one - (one - left()) * (0.5 * f)) * of_beta for f in (1, q))
    rest: te.Tensor = scalar(one, wide, "rest")  # of the product of all momenta, to 1
    if betas[0]:
        log_product = count * -math.log(betas[0]) + _log_of_shares(q, count, left())
        rest = scalar(left_of_exponential(log_product), wide, "rest")
    rest_of_next = rest() + (one - rest()) * (one - following)
    rate = lr().astype(wide)
    return [
        scalar(rate * (one - momentum) / rest(), dtype, "of_gradient"),
        scalar(rate * following / rest_of_next, dtype, "of_moment"),
        scalar(te.sqrt(left_of_decay(betas[1], count)), dtype, "root_of_average"),
    ]


def _log_of_shares(q: float, count: Expr, left: Expr) -> Expr:
    """Minus the logarithm of the product of ``1 - 0.5 q^k`` for k = 1 to `count`."""
    if q == 1:
        return count * math.log(2)
    terms = [
        0.5**j / j * q**j / (1 - q**j) for j in range(1, _PRODUCT_TERMS[str(count.ty.dtype)] + 1)
    ]
    held = list(accumulate(reversed(terms)))

    def polynomial(power: Expr) -> Expr:
        total = tvm.tirx.const(0, count.ty.dtype)
        for factor in held:
            total = total * power + factor
        return total

    # (1 - q^jt) = (1 - q^t) (1 + q^t + ... + q^(j-1)t): Horner's rule in q^t.
    return left * named(1 - left, polynomial)


def radam_factors(
    lr: te.Tensor, step: te.Tensor, *, betas: tuple[float, float], dtype: str
) -> list[te.Tensor]:
    """RAdam's rate, and whether it divides by the root of the second moment (1 or 0)."""
    count = step_count(step, dtype)
    wide = str(count.ty.dtype)
    plain = scalar(_corrected_rate(lr, betas[0], count), wide, "plain")
    rate, divides = plain(), tvm.tirx.const(0, wide)
    longest = 2 / (1 - betas[1]) - 1
    if longest > _RECTIFIED_FROM:
        length = scalar(_length_of_average(betas[1], count), wide, "length")()
        safe = greater(length, tvm.tirx.const(_RECTIFIED_FROM, wide))
        scale = longest / ((longest - 4) * (longest - 2))
        rectified = te.sqrt(
            (safe - 4.0) * (safe - 2.0) * scale / safe * left_of_decay(betas[1], count)
        )
        is_long = length > tvm.tirx.const(_RECTIFIED_FROM, wide)
        rate = select(is_long, rate * rectified, rate)
        divides = select(is_long, tvm.tirx.const(1, wide), divides)
    return [scalar(rate, dtype, "rate"), scalar(divides, dtype, "divides")]


def _length_of_average(beta: float, count: Expr) -> Expr:
    """``2 / (1 - beta) - 1 - 2 t beta^t / (1 - beta^t)``, also where its terms cancel.

    With ``y = -t log(beta)`` the last one is ``2 t / (exp(y) - 1)``, whose series begins with
    ``2 t / y - t``, a number and the count.
    """
    decay = -math.log(beta)
    numbers = bernoulli(2 * _LENGTH_TERMS)
    terms = [
        float(-2 * numbers[2 * k] / math.factorial(2 * k)) for k in range(1, _LENGTH_TERMS + 1)
    ]

    def length(y: Expr) -> Expr:
        series, square = tvm.tirx.const(0, y.ty.dtype), y * y
        for term in reversed(terms):
            series = series * square + term
        near = count * (series * y + 1.0) + (2 / (1 - beta) - 1 - 2 / decay)
        far = (2 / (1 - beta) - 1) - named(
            left_of_exponential(y), lambda left: count * 2.0 * (1 - left) / left
        )
        return select(y < 1.0, near, far)

    return named(count * decay, length)


def adamax_factors(
    lr: te.Tensor, step: te.Tensor, *, betas: tuple[float, float], dtype: str
) -> list[te.Tensor]:
    """The rate with the correction of the first moment's bias."""
    count = step_count(step, dtype)
    return [scalar(_corrected_rate(lr, betas[0], count), dtype, "rate")]


def adam(read: Updated, betas: tuple[float, float], eps: float) -> tuple[Element, list[te.Tensor]]:
    """Adam with the factors of `adam_factors`.

    With a third slot it divides by the largest second moment so far (Reddi et al. 2018).
    """
    rate, root = read.factors
    first = read.average(0, read.gradient, betas[0], "new_first_moment")
    second = read.average(1, read.squared, betas[1], "new_second_moment")
    made = [first, second]
    if len(read.slots) > len(made):
        largest = read.slots[2]
        made.append(read.stored(lambda *i: greater(largest(*i), second(*i)), "new_largest_moment"))
    return lambda *i: rate() * (first(*i) / (te.sqrt(made[-1](*i)) / root() + eps)), made


def nadam(read: Updated, betas: tuple[float, float], eps: float) -> tuple[Element, list[te.Tensor]]:
    """Adam that looks one step of its momentum ahead (Dozat 2016), with `nadam_factors`."""
    first = read.average(0, read.gradient, betas[0], "new_first_moment")
    second = read.average(1, read.squared, betas[1], "new_second_moment")
    of_gradient, of_moment, root = read.factors

    def change(*i: Var) -> Expr:
        ahead = of_gradient() * read.gradient(*i) + of_moment() * first(*i)
        return ahead / (te.sqrt(second(*i)) / root() + eps)

    return change, [first, second]


def radam(read: Updated, betas: tuple[float, float], eps: float) -> tuple[Element, list[te.Tensor]]:
    """Adam that begins without the second moment (Liu et al. 2020), with `radam_factors`."""
    first = read.average(0, read.gradient, betas[0], "new_first_moment")
    second = read.average(1, read.squared, betas[1], "new_second_moment")
    rate, divides = read.factors

    def change(*i: Var) -> Expr:
        moved = first(*i) * rate()
        scaled = moved / (te.sqrt(second(*i)) + eps)
        return select(divides() > 0.5, scaled, moved)

    return change, [first, second]


def adamax(
    read: Updated, betas: tuple[float, float], eps: float
) -> tuple[Element, list[te.Tensor]]:
    """Adam that divides by the largest gradient, which decays (Kingma and Ba 2015)."""
    first = read.average(0, read.gradient, betas[0], "new_first_moment")
    old = read.slots[1]
    largest = read.stored(
        lambda *i: greater(old(*i) * betas[1], te.abs(read.gradient(*i)) + eps), "new_largest"
    )
    (rate,) = read.factors
    return lambda *i: rate() * first(*i) / largest(*i), [first, largest]
