"""Batch norm as vendors ship it: forward with saved statistics, backward."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import te
from tvm.tirx import Expr, IterVar, Var

from tvm_xengine.kernels.te.inplace import writes_over
from tvm_xengine.kernels.te.norms.wanted import only
from tvm_xengine.kernels.te.pointwise.function import clipped


def batch_norm_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, epsilon: float, relu: bool
) -> list[te.Tensor]:
    """Normalise each channel by its mean and biased variance over the batch.

    Returns the output, the mean and ``1 / sqrt(variance + epsilon)``, the last two of shape
    ``(channels,)``. With `relu`, negative outputs become zero.
    """
    mean, inv_std = _batch_statistics(data, epsilon)
    return [_normalised(data, gamma, beta, mean, inv_std, relu), mean, inv_std]


def batch_norm_add_relu_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, residual: te.Tensor, *, epsilon: float
) -> list[te.Tensor]:
    """max(batch norm + residual, 0): the end of a residual block. Returns as `batch_norm_forward`."""
    mean, inv_std = _batch_statistics(data, epsilon)

    def output(n: Var, c: Var, *i: Var) -> Expr:
        value = (data(n, c, *i) - mean[c]) * inv_std[c] * gamma[c] + beta[c]
        return clipped(value + residual(n, c, *i))

    return [te.compute(data.shape, output, name="output"), mean, inv_std]


def _batch_statistics(data: te.Tensor, epsilon: float) -> tuple[te.Tensor, te.Tensor]:
    """Mean and ``1 / sqrt(variance + epsilon)`` of every channel."""
    count = _elements_per_channel(data)
    over, at = _over_channel(data)
    total = te.compute((data.shape[1],), lambda c: te.sum(data(*at(c)), axis=over), name="total")
    mean = te.compute(total.shape, lambda c: total[c] / count, name="mean")
    over, at = _over_channel(data)
    squares = te.compute(
        total.shape,
        lambda c: te.sum((data(*at(c)) - mean[c]) * (data(*at(c)) - mean[c]), axis=over),
        name="squares",
    )
    inv_std = te.compute(
        total.shape,
        lambda c: tvm.tirx.const(1, data.dtype) / te.sqrt(squares[c] / count + epsilon),
        name="inv_std",
    )
    return mean, inv_std


def batch_norm_backward(
    output_gradient: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    *,
    relu: bool,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma and beta of a batch norm that used the batch's statistics.

    With x' = (x - mean) * inv_std and m elements per channel:
    dx = gamma * inv_std * (dy - (dbeta + x' * dgamma) / m).
    With `relu`, dy is zero where the output was not positive.
    """
    gradient = _masked(output_gradient, data, gamma, beta, mean, inv_std, relu)
    return only(wanted, _backward(gradient, data, gamma, mean, inv_std))


def batch_norm_add_relu_backward(
    output_gradient: te.Tensor,
    output: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    *,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma, beta and residual of ``batch_norm_add_relu_forward``."""
    zero = tvm.tirx.const(0, data.dtype)
    residual_gradient = te.compute(
        data.shape,
        lambda *i: tvm.tirx.Select(output(*i) <= zero, zero, output_gradient(*i)),
        name="residual_gradient",
    )
    gradients = _backward(residual_gradient, data, gamma, mean, inv_std)
    return only(wanted, [*gradients, residual_gradient])


def _backward(
    gradient: Callable[..., Expr],
    data: te.Tensor,
    gamma: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
) -> list[te.Tensor]:
    count = _elements_per_channel(data)
    dgamma, dbeta = _scale_and_shift_gradients(gradient, data, mean, inv_std)

    def data_gradient(n: Var, c: Var, *i: Var) -> Expr:
        centred = (data(n, c, *i) - mean[c]) * inv_std[c]
        through = gradient(n, c, *i) - (dbeta[c] + centred * dgamma[c]) / count
        return gamma[c] * inv_std[c] * through

    return [te.compute(data.shape, data_gradient, name="data_gradient"), dgamma, dbeta]


@writes_over((0, 0), (1, 1))
def batch_norm_statistics(
    running_mean: te.Tensor,
    running_var: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    *,
    momentum: float,
    epsilon: float,
    count: int,
) -> list[te.Tensor]:
    """New running mean and variance, as PyTorch keeps them: the variance is the unbiased one."""
    unbias = count / max(count - 1, 1)

    def new_var(c: Var) -> Expr:
        biased = tvm.tirx.const(1, inv_std.dtype) / (inv_std[c] * inv_std[c]) - epsilon
        return running_var[c] * (1 - momentum) + clipped(biased) * (momentum * unbias)

    return [
        te.compute(
            mean.shape,
            lambda c: running_mean[c] * (1 - momentum) + mean[c] * momentum,
            name="new_mean",
        ),
        te.compute(mean.shape, new_var, name="new_var"),
    ]


def batch_norm_inference(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    running_mean: te.Tensor,
    running_var: te.Tensor,
    *,
    epsilon: float,
    relu: bool,
) -> te.Tensor:
    """Normalise each channel by the running statistics."""
    inv_std = _inv_std_of(running_var, epsilon)
    return _normalised(data, gamma, beta, running_mean, inv_std, relu)


def batch_norm_inference_backward(
    output_gradient: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    running_mean: te.Tensor,
    running_var: te.Tensor,
    *,
    epsilon: float,
    relu: bool,
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma and beta of a batch norm that used the running statistics."""
    inv_std = _inv_std_of(running_var, epsilon)
    gradient = _masked(output_gradient, data, gamma, beta, running_mean, inv_std, relu)
    dgamma, dbeta = _scale_and_shift_gradients(gradient, data, running_mean, inv_std)
    data_gradient = te.compute(
        data.shape,
        lambda n, c, *i: gradient(n, c, *i) * gamma[c] * inv_std[c],
        name="data_gradient",
    )
    return only(wanted, [data_gradient, dgamma, dbeta])


def _inv_std_of(variance: te.Tensor, epsilon: float) -> te.Tensor:
    return te.compute(
        variance.shape,
        lambda c: tvm.tirx.const(1, variance.dtype) / te.sqrt(variance[c] + epsilon),
        name="inv_std",
    )


def _normalised(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    relu: bool,
) -> te.Tensor:
    def output(n: Var, c: Var, *i: Var) -> Expr:
        value = (data(n, c, *i) - mean[c]) * inv_std[c] * gamma[c] + beta[c]
        return clipped(value) if relu else value

    return te.compute(data.shape, output, name="output")


def _masked(
    output_gradient: te.Tensor,
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    mean: te.Tensor,
    inv_std: te.Tensor,
    relu: bool,
) -> Callable[..., Expr]:
    """The gradient in front of the ReLU, recomputing the sign of what went into it."""

    def masked(n: Var, c: Var, *i: Var) -> Expr:
        value = (data(n, c, *i) - mean[c]) * inv_std[c] * gamma[c] + beta[c]
        zero = tvm.tirx.const(0, data.dtype)
        return tvm.tirx.Select(value <= zero, zero, output_gradient(n, c, *i))

    return masked if relu else output_gradient


def _scale_and_shift_gradients(
    gradient: Callable[..., Expr], data: te.Tensor, mean: te.Tensor, inv_std: te.Tensor
) -> tuple[te.Tensor, te.Tensor]:
    over, at = _over_channel(data)
    dgamma = te.compute(
        mean.shape,
        lambda c: te.sum(gradient(*at(c)) * ((data(*at(c)) - mean[c]) * inv_std[c]), axis=over),
        name="gamma_gradient",
    )
    over_beta, at_beta = _over_channel(data)
    dbeta = te.compute(
        mean.shape, lambda c: te.sum(gradient(*at_beta(c)), axis=over_beta), name="beta_gradient"
    )
    return dgamma, dbeta


def _over_channel(
    data: te.Tensor,
) -> tuple[list[IterVar], Callable[[Var], tuple[Expr, ...]]]:
    """Reduction axes over all but the channel, and the index of one element."""
    batch, _, *space = data.shape
    n = te.reduce_axis((0, batch), name="n")
    rest = [te.reduce_axis((0, extent), name=f"i{k}") for k, extent in enumerate(space)]
    return [n, *rest], lambda c: (n, c, *rest)


def _elements_per_channel(data: te.Tensor) -> Expr:
    batch, _, *space = (int(extent) for extent in data.shape)
    count = batch
    for extent in space:
        count *= extent
    return tvm.tirx.const(count, data.dtype)
