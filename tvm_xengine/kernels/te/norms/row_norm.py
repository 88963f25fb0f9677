"""Layer norm, RMS norm and group norm, forward and backward, and the way back of softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.norms.parts import (
    centred,
    channels,
    inverse_root,
    normalised,
    normalised_backward,
    rows,
)
from tvm_xengine.kernels.te.norms.parts import (
    groups as grouped,
)
from tvm_xengine.kernels.te.norms.wanted import only


def layer_norm_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, epsilon: float
) -> list[te.Tensor]:
    """Normalise over the axes of `gamma`, the trailing ones of `data`.

    Returns the output, and per row the mean and ``1 / sqrt(variance + epsilon)``.
    """
    return normalised(data, gamma, beta, rows(data, gamma), epsilon)


def layer_norm_backward(
    output_gradient: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    *,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma and beta."""
    parts = rows(data, gamma)
    value = centred(data, mean, inv_std, parts[0])
    return normalised_backward(output_gradient, gamma, value, inv_std, parts, wanted)


def group_norm_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, groups: int, epsilon: float
) -> list[te.Tensor]:
    """Normalise each group of channels of each image; instance norm has one channel per group.

    Returns the output, and the mean and ``1 / sqrt(variance + epsilon)``, both of shape
    ``(batch, groups)``.
    """
    return normalised(data, gamma, beta, (grouped(data, groups), channels(data)), epsilon)


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
    """Gradients of data, gamma and beta."""
    parts = (grouped(data, groups), channels(data))
    value = centred(data, mean, inv_std, parts[0])
    return normalised_backward(output_gradient, gamma, value, inv_std, parts, wanted)


def rms_norm_forward(data: te.Tensor, weight: te.Tensor, *, epsilon: float) -> list[te.Tensor]:
    """x / sqrt(mean(x^2) + epsilon) * weight; returns the output and the inverse root per row."""
    row, column = rows(data, weight)
    count = row.count(data.dtype)
    squares = row.total(lambda *i: data(*i) * data(*i), "squares")
    inv_rms = inverse_root(lambda *at: squares(*at) / count + epsilon, squares, "inv_rms")
    output = te.compute(
        data.shape,
        lambda *i: data(*i) * inv_rms(*row.part(i)) * weight(*column.part(i)),
        name="output",
    )
    return [output, inv_rms]


def rms_norm_backward(
    output_gradient: te.Tensor,
    data: te.Tensor,
    weight: te.Tensor,
    inv_rms: te.Tensor,
    *,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data and weight: dx = r * (a - x r^2 mean(a x)) with a = dy * weight."""
    row, column = rows(data, weight)
    count = row.count(data.dtype)

    def scaled(*i: Expr) -> Expr:
        return output_gradient(*i) * weight(*column.part(i))

    slope = row.total(lambda *i: scaled(*i) * data(*i), "slope")

    def data_gradient(*i: Var) -> Expr:
        at = row.part(i)
        inverse = inv_rms(*at)
        return inverse * (scaled(*i) - data(*i) * inverse * inverse * slope(*at) / count)

    def weight_gradient(*i: Expr) -> Expr:
        return output_gradient(*i) * data(*i) * inv_rms(*row.part(i))

    gradients = [
        te.compute(data.shape, data_gradient, name="data_gradient"),
        column.total(weight_gradient, "weight_gradient"),
    ]
    return only(wanted, gradients)


def softmax_backward(output_gradient: te.Tensor, output: te.Tensor, *, axis: int) -> te.Tensor:
    """dx = y * (dy - sum(dy * y))."""
    total = _axis_sum(output, axis, lambda *i: output_gradient(*i) * output(*i))
    return te.compute(
        output.shape,
        lambda *i: output(*i) * (output_gradient(*i) - total(*_without(i, axis))),
        name="data_gradient",
    )


def log_softmax_backward(output_gradient: te.Tensor, output: te.Tensor, *, axis: int) -> te.Tensor:
    """dx = dy - exp(y) * sum(dy)."""
    total = _axis_sum(output, axis, lambda *i: output_gradient(*i))
    return te.compute(
        output.shape,
        lambda *i: output_gradient(*i) - te.exp(output(*i)) * total(*_without(i, axis)),
        name="data_gradient",
    )


def _axis_sum(like: te.Tensor, axis: int, element: Callable[..., Expr]) -> te.Tensor:
    k = te.reduce_axis((0, like.shape[axis]), name="k")
    return te.compute(
        _without(like.shape, axis),
        lambda *i: te.sum(element(*i[:axis], k, *i[axis:]), axis=k),
        name="total",
    )


def _without(values: Sequence[Expr], axis: int) -> list[Expr]:
    return [value for position, value in enumerate(values) if position != axis]
