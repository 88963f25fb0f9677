"""Layers for building networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

import numpy as np
from tvm import relax

from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.initial_weights import (
    WeightDistribution,
    fan_in,
    uniform_by_fan_in,
)
from tvm_xengine.relax_ir.types import Array, static_shape


class Layers:
    """Emits the layers of one network and collects their parameters.

    Every method takes the name of the layer first; its parameters are called after it. Biases of
    convolutions and fully connected layers start as in PyTorch.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        seed: int,
        weights: WeightDistribution = uniform_by_fan_in,
    ) -> None:
        self._builder = builder
        self._random = np.random.default_rng(seed)
        self._weights = weights
        self.inputs: list[relax.Var] = []
        self.parameters: dict[relax.Var, Array] = {}
        self.statistics: dict[relax.Var, Array] = {}

    def input(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> relax.Var:
        """A tensor that the batch provides."""
        self.inputs.append(relax.Var(name, relax.TensorType(shape, dtype)))
        return self.inputs[-1]

    def emit(self, name: str, value: relax.Expr) -> relax.Var:
        """Any op without parameters."""
        return self._builder.emit(value, name)

    def parameter(self, name: str, value: Array) -> relax.Var:
        """A trainable tensor."""
        var = relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        self.parameters[var] = value
        return var

    def weight(self, name: str, shape: tuple[int, ...]) -> relax.Var:
        """A trainable tensor of shape (outputs, inputs, kernel...) at random values."""
        return self.parameter(name, self._weights(self._random, shape))

    def conv(
        self,
        name: str,
        x: relax.Expr,
        channels: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | tuple[int, int, int, int] = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> relax.Var:
        """A 2-d convolution.

        Parameters
        ----------
        padding
            On every side, or (top, left, bottom, right).
        """
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        shape = (channels, static_shape(x.ty)[1] // groups, height, width)
        weight = self.weight(f"{name}_weight", shape)
        value = relax.op.nn.conv2d(x, weight, strides=stride, padding=padding, groups=groups)
        output = self.emit(name, value)
        return self._channel_bias(name, output, fan_in(shape)) if bias else output

    def conv_transpose(self, name: str, x: relax.Expr, channels: int, size: int) -> relax.Var:
        """A transposed 2-d convolution that enlarges by `size`, windows side by side."""
        shape = (static_shape(x.ty)[1], channels, size, size)
        weight = self.weight(f"{name}_weight", shape)
        output = self.emit(name, relax.op.nn.conv2d_transpose(x, weight, strides=size))
        return self._channel_bias(name, output, fan_in(shape))

    def linear(self, name: str, x: relax.Expr, width: int, *, bias: bool = True) -> relax.Var:
        """A fully connected layer over the last axis."""
        shape = (width, static_shape(x.ty)[-1])
        weight = self.weight(f"{name}_weight", shape)
        transposed = self.emit(f"{name}_weight_transposed", relax.op.permute_dims(weight))
        output = self.emit(name, relax.op.matmul(x, transposed))
        if not bias:
            return output
        shift = self.parameter(f"{name}_bias", self._uniform((width,), fan_in(shape)))
        return self.emit(f"{name}_biased", relax.op.add(output, shift))

    def embedding(self, name: str, tokens: relax.Expr, num_tokens: int, width: int) -> relax.Var:
        """The row of a table for every token: (..., width)."""
        table = self.weight(f"{name}_weight", (num_tokens, width))
        return self.emit(name, relax.op.take(table, tokens, axis=0))

    def batch_norm(self, name: str, x: relax.Expr) -> relax.Var:
        """A batch norm that uses the statistics of the batch."""
        channels = static_shape(x.ty)[1]
        gamma = self.parameter(f"{name}_weight", np.ones(channels, "float32"))
        beta = self.parameter(f"{name}_bias", np.zeros(channels, "float32"))
        mean = self._statistic(f"{name}_running_mean", np.zeros(channels, "float32"))
        var = self._statistic(f"{name}_running_var", np.ones(channels, "float32"))
        norm = relax.op.nn.batch_norm(x, gamma, beta, mean, var, axis=1, training=True)
        return self._builder.emit(relax.TupleGetItem(self._builder.emit(norm, name), 0))

    def layer_norm(self, name: str, x: relax.Expr) -> relax.Var:
        """A norm over the last axis."""
        width = static_shape(x.ty)[-1]
        gamma = self.parameter(f"{name}_weight", np.ones(width, "float32"))
        beta = self.parameter(f"{name}_bias", np.zeros(width, "float32"))
        return self.emit(name, relax.op.nn.layer_norm(x, gamma, beta, axes=[-1]))

    def relu(self, name: str, x: relax.Expr) -> relax.Var:
        """max(x, 0)."""
        return self.emit(name, relax.op.nn.relu(x))

    def add(self, name: str, x: relax.Expr, y: relax.Expr) -> relax.Var:
        """x + y."""
        return self.emit(name, relax.op.add(x, y))

    def concat(self, name: str, parts: Sequence[relax.Expr], axis: int) -> relax.Var:
        """Tensors one after the other along an axis."""
        return self.emit(name, relax.op.concat(list(parts), axis))

    def dropout(self, name: str, x: relax.Expr, rate: float) -> relax.Var:
        """Zero with probability `rate`, the rest scaled up."""
        return self._builder.emit(
            relax.TupleGetItem(self._builder.emit(relax.op.nn.dropout(x, rate)), 0), name
        )

    def max_pool(
        self, name: str, x: relax.Expr, size: int, *, stride: int | None = None, padding: int = 0
    ) -> relax.Var:
        """Maximum over square windows."""
        return self.emit(
            name, relax.op.nn.max_pool2d(x, size, strides=stride or size, padding=padding)
        )

    def global_avg_pool(self, name: str, x: relax.Expr) -> relax.Var:
        """Mean over the image: (batch, channels)."""
        return self.emit(name, relax.op.mean(x, [2, 3]))

    def flatten(self, name: str, x: relax.Expr) -> relax.Var:
        """(batch, everything else)."""
        batch, *rest = static_shape(x.ty)
        return self.emit(name, relax.op.reshape(x, (batch, prod(rest))))

    def _channel_bias(self, name: str, x: relax.Expr, inputs: int) -> relax.Var:
        channels = static_shape(x.ty)[1]
        shift = self.parameter(f"{name}_bias", self._uniform((channels,), inputs))
        column = self.emit(f"{name}_bias_column", relax.op.reshape(shift, (1, channels, 1, 1)))
        return self.emit(f"{name}_biased", relax.op.add(x, column))

    def _uniform(self, shape: tuple[int, ...], inputs: int) -> Array:
        bound = 1 / sqrt(inputs)
        return self._random.uniform(-bound, bound, shape).astype("float32")

    def _statistic(self, name: str, value: Array) -> relax.Var:
        var = relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        self.statistics[var] = value
        return var


def build_network(
    name: str,
    seed: int,
    body: Callable[[Layers], relax.Expr],
    weights: WeightDistribution = uniform_by_fan_in,
) -> ForwardModel:
    """The forward model whose layers `body` emits."""
    builder = relax.BlockBuilder()
    layers = Layers(builder, seed, weights)
    with builder.function("main"):
        with builder.dataflow():
            output = builder.emit_output(body(layers), "output")
        state = [*layers.parameters, *layers.statistics]
        builder.emit_func_output(output, params=[*layers.inputs, *state])
    return ForwardModel(
        name,
        builder.get(),
        tuple(var.name for var in layers.inputs),
        {var.name: value for var, value in layers.parameters.items()},
        {var.name: value for var, value in layers.statistics.items()},
    )
