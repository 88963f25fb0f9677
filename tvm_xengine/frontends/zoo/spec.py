"""The description of a network of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.zoo.initial_weights import WeightDistribution, uniform_by_fan_in
from tvm_xengine.frontends.zoo.layers import Layers


@dataclass(frozen=True)
class NetworkSpec:
    """A network of the zoo.

    Attributes
    ----------
    body
        Emits the layers behind the input; returns the logits, classes on axis 1.
    input_shape
        Usual shape of one example: (channels, height, width) of an image, or (length,) of a
        sequence of tokens.
    num_classes
        Usual number of classes; for sequences, of different tokens.
    weights
        Distribution of the initial weights.
    """

    body: Callable[[Layers, relax.Var, int], relax.Expr]
    input_shape: tuple[int, ...]
    num_classes: int = 10
    weights: WeightDistribution = uniform_by_fan_in

    @property
    def reads_tokens(self) -> bool:
        """Whether the input is a sequence of integers."""
        return len(self.input_shape) == 1

    def shape_of_size(self, size: int | None) -> tuple[int, ...]:
        """Shape of one example whose height and width, or length, is `size` (None: the usual)."""
        if size is None:
            return self.input_shape
        if size < 1:
            raise UnsupportedModelError(f"expected a size of at least 1, got {size}")
        return (size,) if self.reads_tokens else (self.input_shape[0], size, size)
