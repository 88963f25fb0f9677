"""Layer norm and RMS norm: each row is normalised over its trailing axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, IterVar, Var

from tvm_xengine.kernels.te.norms.wanted import only


def layer_norm_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, epsilon: float
) -> list[te.Tensor]:
    """Normalise over the axes of `gamma`, the trailing ones of `data`.

    Returns the output, and per row the mean and ``1 / sqrt(variance + epsilon)``.
    """
    outer, inner = _split(data, gamma)
    count = tvm.tirx.const(prod(inner), data.dtype)
    total = _row_sum(outer, inner, lambda *i: data(*i), "total")
    mean = te.compute(outer, lambda *i: total(*i) / count, name="mean")

    def square(*i: Expr) -> Expr:
        centred = data(*i) - mean(*i[: len(outer)])
        return centred * centred

    squares = _row_sum(outer, inner, square, "squares")
    inv_std = te.compute(
        outer,
        lambda *i: tvm.tirx.const(1, data.dtype) / te.sqrt(squares(*i) / count + epsilon),
        name="inv_std",
    )

    def output(*i: Var) -> Expr:
        row, column = i[: len(outer)], i[len(outer) :]
        return (data(*i) - mean(*row)) * inv_std(*row) * gamma(*column) + beta(*column)

    return [te.compute(data.shape, output, name="output"), mean, inv_std]


def layer_norm_backward(
    output_gradient: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    *,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma and beta.

    With x' = (x - mean) * inv_std and a = dy * gamma:
    dx = inv_std * (a - mean(a) - x' * mean(a * x')), the means being over a row.
    """
    outer, inner = _split(data, gamma)
    count = tvm.tirx.const(prod(inner), data.dtype)

    def centred(*i: Expr) -> Expr:
        row = i[: len(outer)]
        return (data(*i) - mean(*row)) * inv_std(*row)

    def scaled(*i: Expr) -> Expr:
        return output_gradient(*i) * gamma(*i[len(outer) :])

    shift = _row_sum(outer, inner, scaled, "shift")
    slope = _row_sum(outer, inner, lambda *i: scaled(*i) * centred(*i), "slope")

    def data_gradient(*i: Var) -> Expr:
        row = i[: len(outer)]
        through = scaled(*i) - (shift(*row) + centred(*i) * slope(*row)) / count
        return inv_std(*row) * through

    gradients = [
        te.compute(data.shape, data_gradient, name="data_gradient"),
        _column_sum(outer, inner, lambda *i: output_gradient(*i) * centred(*i), "gamma_gradient"),
        _column_sum(outer, inner, lambda *i: output_gradient(*i), "beta_gradient"),
    ]
    return only(wanted, gradients)


def rms_norm_forward(data: te.Tensor, weight: te.Tensor, *, epsilon: float) -> list[te.Tensor]:
    """x / sqrt(mean(x^2) + epsilon) * weight; returns the output and the inverse root per row."""
    outer, inner = _split(data, weight)
    count = tvm.tirx.const(prod(inner), data.dtype)
    squares = _row_sum(outer, inner, lambda *i: data(*i) * data(*i), "squares")
    inv_rms = te.compute(
        outer,
        lambda *i: tvm.tirx.const(1, data.dtype) / te.sqrt(squares(*i) / count + epsilon),
        name="inv_rms",
    )
    output = te.compute(
        data.shape,
        lambda *i: data(*i) * inv_rms(*i[: len(outer)]) * weight(*i[len(outer) :]),
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
    outer, inner = _split(data, weight)
    count = tvm.tirx.const(prod(inner), data.dtype)

    def scaled(*i: Expr) -> Expr:
        return output_gradient(*i) * weight(*i[len(outer) :])

    slope = _row_sum(outer, inner, lambda *i: scaled(*i) * data(*i), "slope")

    def data_gradient(*i: Var) -> Expr:
        row = i[: len(outer)]
        inverse = inv_rms(*row)
        return inverse * (scaled(*i) - data(*i) * inverse * inverse * slope(*row) / count)

    gradients = [
        te.compute(data.shape, data_gradient, name="data_gradient"),
        _column_sum(
            outer,
            inner,
            lambda *i: output_gradient(*i) * data(*i) * inv_rms(*i[: len(outer)]),
            "weight_gradient",
        ),
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


def _split(data: te.Tensor, weight: te.Tensor) -> tuple[list[int], list[int]]:
    """The shape of the rows, and of one row."""
    shape = [int(extent) for extent in data.shape]
    rank = len(shape) - len(weight.shape)
    return shape[:rank], shape[rank:]


def _row_sum(
    outer: Sequence[int], inner: Sequence[int], element: Callable[..., Expr], name: str
) -> te.Tensor:
    over = _axes(inner, "k")
    return te.compute(outer, lambda *i: te.sum(element(*i, *over), axis=over), name=name)


def _column_sum(
    outer: Sequence[int], inner: Sequence[int], element: Callable[..., Expr], name: str
) -> te.Tensor:
    over = _axes(outer, "m")
    return te.compute(inner, lambda *i: te.sum(element(*over, *i), axis=over), name=name)


def _axes(shape: Sequence[int], letter: str) -> list[IterVar]:
    return [te.reduce_axis((0, extent), name=f"{letter}{a}") for a, extent in enumerate(shape)]
