"""Element-by-element ops with broadcasting."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from tvm import relax

from tests.training.cases.case import DTYPE, Case, Draw, DrawCase

op, nn = relax.op, relax.op.nn


def _unary(
    operator: Callable[[relax.Expr], relax.Expr],
    reference: Callable[[torch.Tensor], torch.Tensor],
    low: float = -2.5,
    high: float = 2.5,
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        return Case(operator, reference, {"x": draw.uniform(low, high, *draw.shape())})

    return draw_case


def _binary(
    operator: Callable[[relax.Expr, relax.Expr], relax.Expr],
    reference: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    low: float = -2.5,
    high: float = 2.5,
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        shapes = draw.permutation(draw.broadcastable(2))
        a, b = (draw.uniform(low, high, *shape) for shape in shapes)
        return Case(operator, reference, {"a": a, "b": b})

    return draw_case


def _leaky_relu(draw: Draw) -> Case:
    slope = draw.number(0, 1)
    return Case(
        lambda x: nn.leakyrelu(x, slope),
        lambda x: F.leaky_relu(x, slope),
        {"x": draw.normal(*draw.shape())},
    )


def _softplus(draw: Draw) -> Case:
    beta, threshold = draw.number(0.5, 3), draw.number(1, 20)
    return Case(
        lambda x: nn.softplus(x, beta, threshold),
        lambda x: F.softplus(x, beta, threshold),
        {"x": draw.normal(*draw.shape()) * 3},
    )


def _clip(draw: Draw) -> Case:
    low = draw.number(-2, 1)
    high = low + draw.number(0, 2)
    return Case(
        lambda x: op.clip(x, low, high),
        lambda x: x.clamp(low, high),
        {"x": draw.normal(*draw.shape())},
    )


def _prelu(draw: Draw) -> Case:
    shape = draw.shape(ranks=(2, 4))
    axis = draw.axis(len(shape))
    count = draw.one_of([1, shape[axis]])
    return Case(
        lambda x, a: nn.prelu(x, a, axis),
        lambda x, a: F.prelu(x.movedim(axis, 1), a).movedim(1, axis),
        {"x": draw.normal(*shape), "a": draw.normal(count)},
    )


def _where(draw: Draw) -> Case:
    condition, left, right = draw.permutation(draw.broadcastable(3))
    return Case(
        lambda c, a, b: op.where(op.astype(c, "bool"), a, b),
        lambda c, a, b: torch.where(c.bool(), a, b),
        {"c": draw.indices(2, *condition), "a": draw.normal(*left), "b": draw.normal(*right)},
    )


def _power(draw: Draw) -> Case:
    if draw.flag():
        return _binary(op.power, torch.pow, 0.5, 2)(draw)
    exponent = draw.one_of([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0])
    whole = exponent == int(exponent)
    x = draw.uniform(0.5, 2, *draw.shape())
    signs = np.where(draw.normal(*x.shape) > 0, 1.0, -1.0) if whole else 1.0
    return Case(
        lambda x: op.power(x, relax.const(exponent, DTYPE)), lambda x: x**exponent, {"x": x * signs}
    )


def _extremum(
    operator: Callable[[relax.Expr, relax.Expr], relax.Expr],
    reference: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        ties = draw.flag()
        left, right = draw.permutation(draw.broadcastable(2))
        a, b = draw.normal(*left), draw.normal(*right)
        if ties:
            a, b = (np.asarray(np.round(x)) for x in (a, b))
        return Case(operator, reference, {"a": a, "b": b}, smooth=not ties)

    return draw_case


def _astype(draw: Draw) -> Case:
    return Case(
        lambda x: op.multiply(op.astype(op.astype(x, "float32"), DTYPE), x),
        lambda x: x.float().double() * x,
        {"x": draw.normal(*draw.shape()).astype("float32").astype(DTYPE)},
        smooth=False,
    )


def _fused_multiply_add(draw: Draw) -> Case:
    shape = draw.shape()
    return Case(
        op.ewise_fma,
        lambda a, b, c: a * b + c,
        {name: draw.normal(*shape) for name in "abc"},
    )


def _outer(draw: Draw) -> Case:
    rows, columns = draw.integers(2, 1, 5)
    return Case(op.outer, torch.outer, {"a": draw.normal(rows), "b": draw.normal(columns)})


def _relu_at_zero(draw: Draw) -> Case:
    x = draw.normal(*draw.shape())
    return Case(nn.relu, torch.relu, {"x": np.round(x)}, smooth=False)


CASES: dict[str, list[DrawCase]] = {
    "abs": [_unary(op.abs, torch.abs)],
    "acos": [_unary(op.acos, torch.acos, -0.9, 0.9)],
    "acosh": [_unary(op.acosh, torch.acosh, 1.2, 3)],
    "asin": [_unary(op.asin, torch.asin, -0.9, 0.9)],
    "asinh": [_unary(op.asinh, torch.asinh)],
    "atan": [_unary(op.atan, torch.atan)],
    "atanh": [_unary(op.atanh, torch.atanh, -0.9, 0.9)],
    "cos": [_unary(op.cos, torch.cos)],
    "cosh": [_unary(op.cosh, torch.cosh)],
    "erf": [_unary(op.erf, torch.erf)],
    "exp": [_unary(op.exp, torch.exp)],
    "log": [_unary(op.log, torch.log, 0.2, 3)],
    "negative": [_unary(op.negative, torch.neg)],
    "rsqrt": [_unary(op.rsqrt, torch.rsqrt, 0.2, 3)],
    "sigmoid": [_unary(op.sigmoid, torch.sigmoid, -30, 30)],
    "sin": [_unary(op.sin, torch.sin)],
    "sinh": [_unary(op.sinh, torch.sinh)],
    "sqrt": [_unary(op.sqrt, torch.sqrt, 0.2, 3)],
    "square": [_unary(op.square, torch.square)],
    "tan": [_unary(op.tan, torch.tan, -1.2, 1.2)],
    "tanh": [_unary(op.tanh, torch.tanh)],
    "nn.gelu": [_unary(nn.gelu, F.gelu)],
    "nn.gelu_tanh": [_unary(nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"))],
    "nn.leakyrelu": [_leaky_relu],
    "nn.relu": [_unary(nn.relu, torch.relu), _relu_at_zero],
    "nn.selu": [_unary(nn.selu, F.selu)],
    "nn.silu": [_unary(nn.silu, F.silu)],
    "nn.softplus": [_softplus],
    "nn.prelu": [_prelu],
    "clip": [_clip],
    "astype": [_astype],
    "add": [_binary(op.add, torch.add)],
    "subtract": [_binary(op.subtract, torch.sub)],
    "multiply": [_binary(op.multiply, torch.mul)],
    "divide": [_binary(op.divide, torch.div, 0.4, 3)],
    "power": [_power],
    "maximum": [_extremum(op.maximum, torch.maximum)],
    "minimum": [_extremum(op.minimum, torch.minimum)],
    "mod": [_binary(op.mod, torch.fmod, 0.3, 3)],
    "floor_mod": [_binary(op.floor_mod, torch.remainder, 0.3, 3)],
    "atan2": [_binary(op.atan2, torch.atan2, 0.3, 3)],
    "log_add_exp": [_binary(op.log_add_exp, torch.logaddexp)],
    "where": [_where],
    "ewise_fma": [_fused_multiply_add],
    "outer": [_outer],
}
