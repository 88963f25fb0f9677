"""Group norm, and instance norm as the case of one channel per group."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import te
from tvm.tirx import Expr, IterVar, Var

from tvm_xengine.kernels.te.norms.wanted import only


def group_norm_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, groups: int, epsilon: float
) -> list[te.Tensor]:
    """Normalise each group of channels of each image.

    Returns the output, and the mean and ``1 / sqrt(variance + epsilon)``, both of shape
    ``(batch, groups)``.
    """
    size = int(data.shape[1]) // groups
    count = _elements(data, groups)
    total = _group_sum(data, groups, lambda *i: data(*i), "total")
    mean = te.compute(total.shape, lambda n, g: total(n, g) / count, name="mean")

    def square(n: Expr, c: Expr, *i: Expr) -> Expr:
        centred = data(n, c, *i) - mean(n, c // size)
        return centred * centred

    squares = _group_sum(data, groups, square, "squares")
    inv_std = te.compute(
        total.shape,
        lambda n, g: tvm.tirx.const(1, data.dtype) / te.sqrt(squares(n, g) / count + epsilon),
        name="inv_std",
    )

    def output(n: Var, c: Var, *i: Var) -> Expr:
        centred = (data(n, c, *i) - mean(n, c // size)) * inv_std(n, c // size)
        return centred * gamma(c) + beta(c)

    return [te.compute(data.shape, output, name="output"), mean, inv_std]


def group_norm_backward(
    output_gradient: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    *,
    groups: int,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma and beta.

    With x' = (x - mean) * inv_std and a = dy * gamma:
    dx = inv_std * (a - mean(a) - x' * mean(a * x')), the means being over a group.
    """
    size = int(data.shape[1]) // groups
    count = _elements(data, groups)

    def centred(n: Expr, c: Expr, *i: Expr) -> Expr:
        return (data(n, c, *i) - mean(n, c // size)) * inv_std(n, c // size)

    def scaled(n: Expr, c: Expr, *i: Expr) -> Expr:
        return output_gradient(n, c, *i) * gamma(c)

    shift = _group_sum(data, groups, scaled, "shift")
    slope = _group_sum(data, groups, lambda *i: scaled(*i) * centred(*i), "slope")

    def data_gradient(n: Var, c: Var, *i: Var) -> Expr:
        g = c // size
        through = scaled(n, c, *i) - (shift(n, g) + centred(n, c, *i) * slope(n, g)) / count
        return inv_std(n, g) * through

    gradients = [
        te.compute(data.shape, data_gradient, name="data_gradient"),
        _channel_sum(data, lambda *i: output_gradient(*i) * centred(*i), "gamma_gradient"),
        _channel_sum(data, lambda *i: output_gradient(*i), "beta_gradient"),
    ]
    return only(wanted, gradients)


def _group_sum(data: te.Tensor, groups: int, element: Callable[..., Expr], name: str) -> te.Tensor:
    batch, channels, *_ = data.shape
    size = int(channels) // groups
    k = te.reduce_axis((0, size), name="k")
    rest = _space(data)
    return te.compute(
        (batch, groups),
        lambda n, g: te.sum(element(n, g * size + k, *rest), axis=[k, *rest]),
        name=name,
    )


def _channel_sum(data: te.Tensor, element: Callable[..., Expr], name: str) -> te.Tensor:
    n = te.reduce_axis((0, data.shape[0]), name="n")
    rest = _space(data)
    return te.compute(
        (data.shape[1],), lambda c: te.sum(element(n, c, *rest), axis=[n, *rest]), name=name
    )


def _space(data: te.Tensor) -> list[IterVar]:
    return [te.reduce_axis((0, extent), name=f"i{k}") for k, extent in enumerate(data.shape[2:])]


def _elements(data: te.Tensor, groups: int) -> Expr:
    count = int(data.shape[1]) // groups
    for extent in data.shape[2:]:
        count *= int(extent)
    return tvm.tirx.const(count, data.dtype)
