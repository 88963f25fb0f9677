"""Updates of optimizers that scale each element by its own history, one kernel per parameter.

The stages keep the rule of `tvm_xengine.kernels.te.optimizer`, so that every output may be written
over the tensor that it replaces.
"""

from __future__ import annotations

import math

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.inplace import writes_over
from tvm_xengine.kernels.te.optimizer import Element, decayed, rate_of
from tvm_xengine.kernels.te.pointwise.function import greater


def adam_factors(
    lr: te.Tensor, step: te.Tensor, *, beta1: float, beta2: float, dtype: str
) -> list[te.Tensor]:
    """The corrections of Adam's bias: ``lr / (1 - beta1^t)`` and ``sqrt(1 - beta2^t)``.

    They are the same for all elements. No float64 is needed, whose power costs thousands of
    instructions on processors without such numbers: `_left_of_decay` does not cancel.
    """
    wide = _at_least_single(dtype)
    count = (step() + tvm.tirx.const(1, step.dtype)).astype(wide)

    def rate() -> Expr:
        return (lr().astype(wide) / _left_of_decay(beta1, count)).astype(dtype)

    return [
        te.compute((), rate, name="rate"),
        te.compute((), lambda: te.sqrt(_left_of_decay(beta2, count)).astype(dtype), name="root"),
    ]


_SERIES_TERMS = {"float32": 9, "float64": 15}
"""Terms of the series of ``1 - exp(-y)`` whose rest, up to y = 0.5, is below the type's rounding:
``0.5^9 / 10! = 5e-10`` of the value, and ``0.5^15 / 16! = 1.5e-18``."""


def _left_of_decay(beta: float, count: Expr) -> Expr:
    """``1 - beta^count`` as ``1 - exp(-y)`` with ``y = -log(beta) * count``.

    By its series where the difference would cancel.
    """
    dtype = str(count.ty.dtype)
    one = tvm.tirx.const(1, dtype)
    if beta == 0:
        return one
    y = count * tvm.tirx.const(-math.log(beta), dtype)
    series = one
    for k in range(_SERIES_TERMS[dtype], 1, -1):
        series = one - y * tvm.tirx.const(1 / k, dtype) * series
    is_small = y < tvm.tirx.const(0.5, dtype)
    return tvm.tirx.Select(is_small, y * series, one - te.exp(-y))


def _at_least_single(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


@writes_over((0, 0), (1, 1), (2, 2))
def adam_update(
    parameter: te.Tensor,
    first_moment: te.Tensor,
    second_moment: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    rate: te.Tensor,
    root: te.Tensor,
    *scale: te.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool = False,
) -> list[te.Tensor]:
    """Adam with the factors of `adam_factors`; AdamW when the decay is `decoupled`."""
    direction = decayed(parameter, gradient, scale, 0.0 if decoupled else weight_decay, maximize)
    new_first, new_second = _moments(first_moment, second_moment, direction, beta1, beta2)
    kept = _kept(parameter, lr, weight_decay if decoupled else 0.0)
    updated = _adam_step(kept, new_first, new_second, rate, root, epsilon)
    return [updated, new_first, new_second]


@writes_over((0, 0), (1, 1), (2, 2), (3, 3))
def amsgrad_update(
    parameter: te.Tensor,
    first_moment: te.Tensor,
    second_moment: te.Tensor,
    largest_moment: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    rate: te.Tensor,
    root: te.Tensor,
    *scale: te.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> list[te.Tensor]:
    """Adam that divides by the largest second moment so far (Reddi et al. 2018)."""
    direction = decayed(parameter, gradient, scale, 0.0 if decoupled else weight_decay, maximize)
    new_first, new_second = _moments(first_moment, second_moment, direction, beta1, beta2)
    new_largest = te.compute(
        parameter.shape,
        lambda *i: greater(largest_moment(*i), new_second(*i)),
        name="new_largest_moment",
    )
    kept = _kept(parameter, lr, weight_decay if decoupled else 0.0)
    updated = _adam_step(kept, new_first, new_largest, rate, root, epsilon)
    return [updated, new_first, new_second, new_largest]


def _adam_step(
    kept: Element,
    first: te.Tensor,
    second: te.Tensor,
    rate: te.Tensor,
    root: te.Tensor,
    epsilon: float,
) -> te.Tensor:
    def new_parameter(*i: Var) -> Expr:
        return kept(*i) - rate() * (first(*i) / (te.sqrt(second(*i)) / root() + epsilon))

    return te.compute(first.shape, new_parameter, name="new_parameter")


@writes_over((0, 0), (1, 1), (2, 2), (3, 3))
def rmsprop_update(
    parameter: te.Tensor,
    square_average: te.Tensor,
    *others: te.Tensor,
    alpha: float,
    epsilon: float,
    weight_decay: float,
    maximize: bool,
    momentum: float = 0.0,
    centered: bool = False,
) -> list[te.Tensor]:
    """s = alpha * s + (1 - alpha) * g^2; p = p - lr * g / (sqrt(s) + epsilon).

    `others` are the average of the gradient when `centered`, which divides by the estimated
    standard deviation instead; the velocity when there is a `momentum` of the scaled gradient; the
    gradient, the learning rate and factors of the gradient.
    """
    *slots, gradient, lr = others[: 2 + centered + bool(momentum)]
    step = decayed(parameter, gradient, others[len(slots) + 2 :], weight_decay, maximize)
    new_square = _average(square_average, lambda *i: step(*i) * step(*i), alpha, "new_square")
    made = [new_square]
    if centered:
        made.append(_average(slots[0], step, alpha, "new_mean"))

    def scaled(*i: Var) -> Expr:
        square = new_square(*i) - made[1](*i) * made[1](*i) if centered else new_square(*i)
        return step(*i) / (te.sqrt(square) + epsilon)

    change: Element = scaled
    if momentum:
        speed = te.compute(
            parameter.shape, lambda *i: slots[-1](*i) * momentum + scaled(*i), name="new_velocity"
        )
        made, change = [*made, speed], speed
    updated = te.compute(
        parameter.shape,
        lambda *i: parameter(*i) - rate_of(lr, parameter) * change(*i),
        name="new_parameter",
    )
    return [updated, *made]


def decayed_rate(lr: te.Tensor, step: te.Tensor, *, lr_decay: float, dtype: str) -> te.Tensor:
    """Adagrad's learning rate after `step` earlier steps: ``lr / (1 + step * lr_decay)``."""
    wide = _at_least_single(dtype)
    slower = tvm.tirx.const(1, wide) + step().astype(wide) * tvm.tirx.const(lr_decay, wide)
    return te.compute((), lambda: (lr().astype(wide) / slower).astype(dtype), name="rate")


@writes_over((0, 0), (1, 1))
def adagrad_update(
    parameter: te.Tensor,
    square_sum: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    *scale: te.Tensor,
    epsilon: float,
    weight_decay: float,
    maximize: bool,
) -> list[te.Tensor]:
    """s = s + g^2; p = p - lr * g / (sqrt(s) + epsilon)."""
    step = decayed(parameter, gradient, scale, weight_decay, maximize)
    new_sum = te.compute(
        parameter.shape, lambda *i: square_sum(*i) + step(*i) * step(*i), name="new_sum"
    )

    def new_parameter(*i: Var) -> Expr:
        scaled = step(*i) / (te.sqrt(new_sum(*i)) + epsilon)
        return parameter(*i) - rate_of(lr, parameter) * scaled

    return [te.compute(parameter.shape, new_parameter, name="new_parameter"), new_sum]


@writes_over((0, 0), (1, 1))
def lion_update(
    parameter: te.Tensor,
    first_moment: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    *scale: te.Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> list[te.Tensor]:
    """p = p * (1 - lr * decay) - lr * sign(beta1 * m + (1 - beta1) * g); then m follows g by beta2.

    The stage of the parameter comes first and writes nothing that the other one reads.
    """
    step = decayed(parameter, gradient, scale, 0.0, maximize=False)
    kept = _kept(parameter, lr, weight_decay)
    zero, one = tvm.tirx.const(0, parameter.dtype), tvm.tirx.const(1, parameter.dtype)

    def new_parameter(*i: Var) -> Expr:
        mixed = first_moment(*i) * beta1 + step(*i) * (1 - beta1)
        sign = tvm.tirx.Select(mixed > zero, one, tvm.tirx.Select(mixed < zero, -one, zero))
        return kept(*i) - rate_of(lr, parameter) * sign

    updated = te.compute(parameter.shape, new_parameter, name="new_parameter")
    return [updated, _average(first_moment, step, beta2, "new_first_moment")]


def _moments(
    first_moment: te.Tensor,
    second_moment: te.Tensor,
    direction: Element,
    beta1: float,
    beta2: float,
) -> tuple[te.Tensor, te.Tensor]:
    return (
        _average(first_moment, direction, beta1, "new_first_moment"),
        _average(
            second_moment, lambda *i: direction(*i) * direction(*i), beta2, "new_second_moment"
        ),
    )


def _average(old: te.Tensor, value: Element, keep: float, name: str) -> te.Tensor:
    """keep * old + (1 - keep) * value."""
    return te.compute(old.shape, lambda *i: old(*i) * keep + value(*i) * (1 - keep), name=name)


def _kept(parameter: te.Tensor, lr: te.Tensor, weight_decay: float) -> Element:
    """What decoupled weight decay leaves of a parameter."""
    one = tvm.tirx.const(1, parameter.dtype)

    def value(*i: Var) -> Expr:
        if not weight_decay:
            return parameter(*i)
        return parameter(*i) * (one - rate_of(lr, parameter) * weight_decay)

    return value
