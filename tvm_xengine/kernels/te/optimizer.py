"""Optimizer updates, one kernel per parameter.

Every later stage of a kernel reads the NEW value of what an earlier stage wrote, and the old value
of nothing that was written, so that each output may be written over the tensor that it replaces.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.inplace import writes_over
from tvm_xengine.kernels.te.pointwise.function import lesser

Element = Callable[..., Expr]
"""An element of a tensor that is not stored, by its index."""


@writes_over((0, 0))
def sgd_update(
    parameter: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    *scale: te.Tensor,
    weight_decay: float,
    maximize: bool = False,
) -> te.Tensor:
    """p - lr * (g + weight_decay * p)."""
    step = decayed(parameter, gradient, scale, weight_decay, maximize)
    return te.compute(
        parameter.shape,
        lambda *i: parameter(*i) - rate_of(lr, parameter) * step(*i),
        name="new_parameter",
    )


@writes_over((0, 0), (1, 1))
def momentum_update(
    parameter: te.Tensor,
    velocity: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    *scale: te.Tensor,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool = False,
) -> list[te.Tensor]:
    """v = momentum * v + g; p = p - lr * v, or p - lr * (g + momentum * v) with `nesterov`."""
    step = decayed(parameter, gradient, scale, weight_decay, maximize)
    return _momentum(parameter, velocity, step, step, lr, momentum, nesterov)


@writes_over((0, 0), (1, 1))
def dampened_update(
    parameter: te.Tensor,
    velocity: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    share: te.Tensor,
    *scale: te.Tensor,
    momentum: float,
    weight_decay: float,
    maximize: bool,
) -> list[te.Tensor]:
    """v = momentum * v + share * g; p = p - lr * v."""
    step = decayed(parameter, gradient, scale, weight_decay, maximize)
    return _momentum(
        parameter, velocity, step, lambda *i: share() * step(*i), lr, momentum, nesterov=False
    )


def dampening_share(step: te.Tensor, *, dampening: float, dtype: str) -> te.Tensor:
    """How much of the gradient counts: all of the first, later ``1 - dampening``, as in PyTorch."""
    one, later = tvm.tirx.const(1, dtype), tvm.tirx.const(1 - dampening, dtype)
    return te.compute((), lambda: tvm.tirx.Select(step() == 0, one, later), name="share")


@writes_over((0, 0))
def advance_step(step: te.Tensor) -> te.Tensor:
    """The number of steps taken, plus one."""
    return te.compute((), lambda: step() + tvm.tirx.const(1, step.dtype), name="next_step")


def clipped_value(gradient: te.Tensor, *, limit: float) -> te.Tensor:
    """The gradient within -limit .. limit, element by element; NaN stays NaN."""
    low, high = (tvm.tirx.const(value, gradient.dtype) for value in (-limit, limit))

    def element(*i: Var) -> Expr:
        value = gradient(*i)
        above = tvm.tirx.Select(value > high, high, value)
        return tvm.tirx.Select(value < low, low, above)

    return te.compute(gradient.shape, element, name="clipped")


def squared_norm(gradient: te.Tensor) -> te.Tensor:
    """The sum of the squares of a gradient."""
    over = [te.reduce_axis((0, extent), name=f"i{a}") for a, extent in enumerate(gradient.shape)]
    return te.compute(
        (), lambda: te.sum(gradient(*over) * gradient(*over), axis=over), name="squared_norm"
    )


def clipping_scale(*squared_norms: te.Tensor, max_norm: float) -> te.Tensor:
    """The factor that limits the norm of all gradients together, as ``clip_grad_norm_`` does."""
    dtype = squared_norms[0].dtype

    def scale() -> Expr:
        total = squared_norms[0]()
        for norm in squared_norms[1:]:
            total = total + norm()
        factor = tvm.tirx.const(max_norm, dtype) / (te.sqrt(total) + tvm.tirx.const(1e-6, dtype))
        return lesser(factor, tvm.tirx.const(1, dtype))

    return te.compute((), scale, name="clipping_scale")


def rate_of(lr: te.Tensor, parameter: te.Tensor) -> Expr:
    """The learning rate in the type of the parameter."""
    return lr().astype(parameter.dtype)


def _momentum(
    parameter: te.Tensor,
    velocity: te.Tensor,
    step: Element,
    counted: Element,
    lr: te.Tensor,
    momentum: float,
    nesterov: bool,
) -> list[te.Tensor]:
    new_velocity = te.compute(
        parameter.shape, lambda *i: velocity(*i) * momentum + counted(*i), name="new_velocity"
    )

    def new_parameter(*i: Var) -> Expr:
        direction = new_velocity(*i)
        if nesterov:
            direction = step(*i) + direction * momentum
        return parameter(*i) - rate_of(lr, parameter) * direction

    return [te.compute(parameter.shape, new_parameter, name="new_parameter"), new_velocity]


def decayed(
    parameter: te.Tensor,
    gradient: te.Tensor,
    scale: tuple[te.Tensor, ...],
    weight_decay: float,
    maximize: bool,
) -> Element:
    """The gradient as an expression of the index: scaled, with the decay added; no buffer."""

    def value(*i: Var) -> Expr:
        result = gradient(*i)
        for factor in scale:
            result = result * factor()
        if maximize:
            result = -result
        return result + parameter(*i) * weight_decay if weight_decay else result

    return value
