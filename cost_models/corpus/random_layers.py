"""Layers of random networks: random choices, convolutions and the layers that follow them."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape

_WIDTHS = (3, 5, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Channels: those of published networks, and some that fill no vector."""

_COMMON_EXTENTS = (4, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""Pixels a side in published networks, and between them."""

LARGEST_IMAGE = 1 << 18
"""Elements of an activation behind which the random network narrows."""


class RandomLayers:
    """Layers with a random generator, and numbers for names."""

    def __init__(self, layers: Layers, rng: np.random.Generator, batch_size: int) -> None:
        self.layers = layers
        self.rng = rng
        self.batch_size = batch_size
        self._names = 0

    def name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def happens(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        """Both included."""
        return int(self.rng.integers(low, high + 1))

    def width(self) -> int:
        return int(self.rng.choice(_WIDTHS))

    def extent(self) -> int:
        """Of an image: mostly one that designers choose."""
        return int(self.rng.choice(_COMMON_EXTENTS)) if self.happens(0.7) else self.between(4, 64)


def plain_block(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """A convolution, sometimes a norm, and an activation."""
    x = convolution(r, x, channels=r.width())
    if r.happens(0.5):
        x = r.layers.batch_norm(r.name("norm"), x)
    return activation(r, x)


def residual_block(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """Two convolutions and the way around them, with a norm and ReLU or without."""
    channels = static_shape(x.ty)[1]
    y = convolution(r, x, channels=channels, keeps_size=True)
    y = r.layers.relu(r.name("relu"), r.layers.batch_norm(r.name("norm"), y))
    y = convolution(r, y, channels=channels, keeps_size=True)
    y = r.layers.batch_norm(r.name("norm"), y)
    x = r.layers.add(r.name("sum"), x, y)
    return r.layers.relu(r.name("relu"), x) if r.happens(0.7) else x


def inverted_block(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """Wide, each channel by itself, narrow."""
    channels = min(64, static_shape(x.ty)[1])
    hidden = channels * r.between(2, 6)
    y = clipped(r, r.layers.conv(r.name("expand"), x, hidden, 1, bias=False))
    y = r.layers.conv(
        r.name("depthwise"), y, hidden, 3, stride=r.between(1, 2), padding=1, groups=hidden
    )
    y = r.layers.conv(r.name("project"), clipped(r, y), channels, 1, bias=False)
    y = r.layers.batch_norm(r.name("norm"), y)
    return r.layers.add(r.name("sum"), x, y) if static_shape(x.ty) == static_shape(y.ty) else y


def clipped(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """A norm, and ReLU6."""
    return r.layers.emit(
        r.name("relu6"), relax.op.clip(r.layers.batch_norm(r.name("norm"), x), 0.0, 6.0)
    )


def convolution(
    r: RandomLayers, x: relax.Expr, *, channels: int, keeps_size: bool = False
) -> relax.Expr:
    """Of any window, stride and border that fits; sometimes of each channel by itself."""
    _, before, height, width = static_shape(x.ty)
    while channels > 8 and r.batch_size * channels * height * width > LARGEST_IMAGE:
        channels //= 2
    is_depthwise = not keeps_size and r.happens(0.2)
    if keeps_size or r.happens(0.8):
        # With a border a window may be larger than the image.
        widest = min(height, width) + (2 if keeps_size else 0)
        odd = [extent for extent in (1, 3, 3, 5, 7) if extent <= widest]
        kernel = (extent := int(r.rng.choice(odd)), extent)
    else:
        kernel = (min(height, r.between(1, 10)), min(width, r.between(1, 5)))
    square = kernel[0] // 2 if kernel[0] == kernel[1] else 0
    return r.layers.conv(
        r.name("conv"),
        x,
        before if is_depthwise else channels,
        kernel,
        stride=1 if keeps_size else int(r.rng.choice((1, 1, 2))),
        padding=square if keeps_size or r.happens(0.6) else 0,
        groups=before if is_depthwise else 1,
        bias=r.happens(0.5),
    )


def activation(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """A function that networks have behind their layers; half of them ReLU."""
    nn = relax.op.nn
    ops = (nn.relu, nn.gelu, nn.gelu_tanh, nn.silu, relax.op.tanh, relax.op.sigmoid)
    op = ops[int(r.rng.choice(len(ops), p=(0.5, 0.1, 0.1, 0.1, 0.1, 0.1)))]
    return r.layers.emit(r.name("act"), op(x))
