"""Optimizer updates, one kernel per parameter.

Every later stage of a kernel reads the NEW value of what an earlier stage wrote, and the old value
of nothing that was written, so that each output may be written over the tensor that it replaces.
"""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.inplace import writes_over


@writes_over((0, 0))
def sgd_update(
    parameter: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    *scale: te.Tensor,
    weight_decay: float,
) -> te.Tensor:
    """p - lr * (g + weight_decay * p)."""
    step = _decayed(parameter, gradient, scale, weight_decay)
    return te.compute(
        parameter.shape,
        lambda *i: parameter(*i) - _rate(lr, parameter) * step(*i),
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
) -> list[te.Tensor]:
    """v = momentum * v + g; p = p - lr * v, or p - lr * (g + momentum * v) with `nesterov`."""
    step = _decayed(parameter, gradient, scale, weight_decay)
    new_velocity = te.compute(
        parameter.shape, lambda *i: velocity(*i) * momentum + step(*i), name="new_velocity"
    )

    def new_parameter(*i: Var) -> Expr:
        direction = new_velocity(*i)
        if nesterov:
            direction = step(*i) + direction * momentum
        return parameter(*i) - _rate(lr, parameter) * direction

    return [te.compute(parameter.shape, new_parameter, name="new_parameter"), new_velocity]


@writes_over((0, 0), (1, 1), (2, 2))
def adam_update(
    parameter: te.Tensor,
    first_moment: te.Tensor,
    second_moment: te.Tensor,
    gradient: te.Tensor,
    lr: te.Tensor,
    step: te.Tensor,
    *scale: te.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
) -> list[te.Tensor]:
    """Adam with bias correction after `step` earlier steps; AdamW when the decay is `decoupled`."""
    dtype = parameter.dtype
    one = tvm.tirx.const(1, dtype)
    direction = _decayed(parameter, gradient, scale, 0.0 if decoupled else weight_decay)
    new_first = te.compute(
        parameter.shape,
        lambda *i: first_moment(*i) * beta1 + direction(*i) * (1 - beta1),
        name="new_first_moment",
    )
    new_second = te.compute(
        parameter.shape,
        lambda *i: second_moment(*i) * beta2 + direction(*i) * direction(*i) * (1 - beta2),
        name="new_second_moment",
    )

    def bias(beta: float) -> te.Tensor:
        count = step().astype(dtype) + one
        return te.compute(
            (), lambda: one - te.power(tvm.tirx.const(beta, dtype), count), name="bias_correction"
        )

    bias1, bias2 = bias(beta1), bias(beta2)

    def new_parameter(*i: Var) -> Expr:
        kept = parameter(*i)
        if decoupled and weight_decay:
            kept = kept * (one - _rate(lr, parameter) * weight_decay)
        denominator = te.sqrt(new_second(*i)) / te.sqrt(bias2()) + epsilon
        return kept - _rate(lr, parameter) / bias1() * new_first(*i) / denominator

    return [
        te.compute(parameter.shape, new_parameter, name="new_parameter"),
        new_first,
        new_second,
    ]


@writes_over((0, 0))
def advance_step(step: te.Tensor) -> te.Tensor:
    """The number of steps taken, plus one."""
    return te.compute((), lambda: step() + tvm.tirx.const(1, step.dtype), name="next_step")


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
        return te.min(factor, tvm.tirx.const(1, dtype))

    return te.compute((), scale, name="clipping_scale")


def _rate(lr: te.Tensor, parameter: te.Tensor) -> Expr:
    """The learning rate in the type of the parameter."""
    return lr().astype(parameter.dtype)


def _decayed(
    parameter: te.Tensor, gradient: te.Tensor, scale: tuple[te.Tensor, ...], weight_decay: float
) -> te.Tensor:
    """The gradient as an expression of the index: scaled, with the decay added; no buffer."""

    def value(*i: Var) -> Expr:
        result = gradient(*i)
        for factor in scale:
            result = result * factor()
        return result + parameter(*i) * weight_decay if weight_decay else result

    return value
