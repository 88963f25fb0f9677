"""The building blocks of designs: layers in one width and size, which a seed chooses."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers

_WIDTH_RATIOS = (0.25, 0.5, 0.75, 1.0, 1.0)
"""Channels relative to the published ones; the published are drawn twice as often."""

_EXTENTS = (16, 24, 28, 32, 40, 48, 56, 64)
"""Pixels a side: small enough to be measured in seconds."""

_LENGTHS = (12, 16, 25, 32, 49, 64)
"""Positions of a sequence; two are squares of patches."""


class Design:
    """Layers of one network with its width, and numbers for the names of its layers."""

    def __init__(self, layers: Layers, batch_size: int, classes: int, seed: int) -> None:
        self.layers = layers
        self.batch_size = batch_size
        self.classes = classes
        rng = np.random.default_rng(seed)
        self.ratio = float(rng.choice(_WIDTH_RATIOS))
        self.extent = int(rng.choice(_EXTENTS))
        self.length = int(rng.choice(_LENGTHS))
        self._names = 0

    def name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def width(self, channels: int) -> int:
        """So many channels in a network of this width; a multiple of eight."""
        return max(8, int(channels * self.ratio) // 8 * 8)

    def image(self, divisible_by: int = 1) -> relax.Expr:
        extent = self.extent // divisible_by * divisible_by
        return self.layers.input("x", (self.batch_size, 3, extent, extent))

    def emit(self, kind: str, value: relax.Expr) -> relax.Expr:
        return self.layers.emit(self.name(kind), value)

    def conv(
        self, x: relax.Expr, channels: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> relax.Expr:
        """Without bias, padded so that stride alone changes the size."""
        return self.layers.conv(
            self.name("conv"),
            x,
            channels,
            kernel,
            stride=stride,
            padding=kernel // 2,
            groups=groups,
            bias=False,
        )

    def norm(self, x: relax.Expr) -> relax.Expr:
        return self.layers.batch_norm(self.name("norm"), x)

    def relu(self, x: relax.Expr) -> relax.Expr:
        return self.layers.relu(self.name("relu"), x)

    def conv_norm_relu(
        self, x: relax.Expr, channels: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> relax.Expr:
        return self.relu(self.norm(self.conv(x, channels, kernel, stride=stride, groups=groups)))

    def linear(self, x: relax.Expr, width: int) -> relax.Expr:
        return self.layers.linear(self.name("fc"), x, width)

    def add(self, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return self.layers.add(self.name("add"), x, y)

    def max_pool(self, x: relax.Expr, size: int = 2, *, stride: int = 2) -> relax.Expr:
        return self.layers.max_pool(self.name("pool"), x, size, stride=stride, padding=size // 3)

    def dropout(self, x: relax.Expr, rate: float) -> relax.Expr:
        return self.layers.dropout(self.name("dropout"), x, rate)

    def classify(self, x: relax.Expr) -> relax.Expr:
        """Logits from an image."""
        return self.linear(self.layers.global_avg_pool("mean", x), self.classes)
