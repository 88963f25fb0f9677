"""Batch norm as vendors ship it: forward with saved statistics, backward."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.inplace import writes_over
from tvm_xengine.kernels.te.norms.parts import (
    Element,
    centred,
    channels,
    inverse_root,
    scaled,
    statistics,
)
from tvm_xengine.kernels.te.norms.wanted import only
from tvm_xengine.kernels.te.pointwise.function import clipped


def batch_norm_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, epsilon: float, relu: bool
) -> list[te.Tensor]:
    """Normalise each channel by its mean and biased variance over the batch.

    Returns the output, the mean and ``1 / sqrt(variance + epsilon)``, the last two of shape
    ``(channels,)``. With `relu`, negative outputs become zero.
    """
    mean, inv_std = statistics(data, channels(data), epsilon)
    return [_Norm(data, gamma, mean, inv_std, beta).output(relu), mean, inv_std]


def batch_norm_add_relu_forward(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, residual: te.Tensor, *, epsilon: float
) -> list[te.Tensor]:
    """max(batch norm + residual, 0): the end of a residual block. Returns as `batch_norm_forward`."""
    mean, inv_std = statistics(data, channels(data), epsilon)
    value = _Norm(data, gamma, mean, inv_std, beta).affine
    output = te.compute(data.shape, lambda *i: clipped(value(*i) + residual(*i)), name="output")
    return [output, mean, inv_std]


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
    norm = _Norm(data, gamma, mean, inv_std, beta)
    return only(wanted, norm.gradients_of_batch(norm.masked(output_gradient, relu)))


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
    gradients = _Norm(data, gamma, mean, inv_std).gradients_of_batch(residual_gradient)
    return only(wanted, [*gradients, residual_gradient])


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
    inv_std = inverse_root(lambda c: running_var[c] + epsilon, running_var, "inv_std")
    return _Norm(data, gamma, running_mean, inv_std, beta).output(relu)


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
    inv_std = inverse_root(lambda c: running_var[c] + epsilon, running_var, "inv_std")
    norm = _Norm(data, gamma, running_mean, inv_std, beta)
    return only(wanted, norm.gradients_of_inference(norm.masked(output_gradient, relu)))


@dataclass(frozen=True)
class _Norm:
    """A batch norm with the statistics that it uses, each of shape (channels,).

    `beta` is None where only gradients are asked for, which do not depend on it.
    """

    data: te.Tensor
    gamma: te.Tensor
    mean: te.Tensor
    inv_std: te.Tensor
    beta: te.Tensor | None = None

    @property
    def affine(self) -> Element:
        """gamma * x' + beta, with x' = (x - mean) * inv_std."""
        channel = channels(self.data)
        return scaled(self._centred, self.gamma, self.beta, channel)

    @property
    def _centred(self) -> Element:
        return centred(self.data, self.mean, self.inv_std, channels(self.data))

    def output(self, relu: bool) -> te.Tensor:
        """The output, with `relu` at least zero."""
        value = self.affine
        element = (lambda *i: clipped(value(*i))) if relu else value
        return te.compute(self.data.shape, element, name="output")

    def masked(self, output_gradient: te.Tensor, relu: bool) -> Element:
        """The gradient in front of the ReLU, recomputing the sign of what went into it."""
        value, zero = self.affine, tvm.tirx.const(0, self.data.dtype)

        def masked(*i: Var) -> Expr:
            return tvm.tirx.Select(value(*i) <= zero, zero, output_gradient(*i))

        return masked if relu else output_gradient

    def gradients_of_batch(self, gradient: Element) -> list[te.Tensor]:
        """Gradients of data, gamma and beta, where the statistics are those of the batch."""
        value, count = self._centred, channels(self.data).count(self.data.dtype)
        dgamma, dbeta = self._scale_and_shift(gradient)

        def data_gradient(*i: Var) -> Expr:
            c = i[1]
            through = gradient(*i) - (dbeta[c] + value(*i) * dgamma[c]) / count
            return self.gamma[c] * self.inv_std[c] * through

        return [te.compute(self.data.shape, data_gradient, name="data_gradient"), dgamma, dbeta]

    def gradients_of_inference(self, gradient: Element) -> list[te.Tensor]:
        """Gradients of data, gamma and beta, where the statistics are constants."""
        dgamma, dbeta = self._scale_and_shift(gradient)
        data_gradient = te.compute(
            self.data.shape,
            lambda n, c, *i: gradient(n, c, *i) * self.gamma[c] * self.inv_std[c],
            name="data_gradient",
        )
        return [data_gradient, dgamma, dbeta]

    def _scale_and_shift(self, gradient: Element) -> tuple[te.Tensor, te.Tensor]:
        value, channel = self._centred, channels(self.data)
        return (
            channel.total(lambda *i: gradient(*i) * value(*i), "gamma_gradient"),
            channel.total(lambda *i: gradient(*i), "beta_gradient"),
        )
