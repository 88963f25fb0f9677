"""Designed networks beyond the zoo's, in many widths, for cost models to learn from.

Each has the blocks of a published design, at a size that trains on a small machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel, static_shape
from tvm_xengine.frontends.zoo.layers import Layers, build_network

_WIDTH_RATIOS = (0.25, 0.5, 0.75, 1.0, 1.0)
_EXTENTS = (16, 24, 28, 32, 40, 48, 56, 64)
_LENGTHS = (12, 16, 25, 32, 49, 64)


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

    def image(self) -> relax.Expr:
        return self.layers.input("x", (self.batch_size, 3, self.extent, self.extent))

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


def mobilenetv1(d: Design) -> relax.Expr:
    """MobileNet (Howard et al. 2017): each channel by itself, then 1x1."""
    x = d.conv_norm_relu(d.image(), d.width(32), 3, stride=2)
    stages = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (1024, 1))
    for channels, stride in stages:
        before = static_shape(x.ty)[1]
        x = d.conv_norm_relu(x, before, 3, stride=stride, groups=before)
        x = d.conv_norm_relu(x, d.width(channels), 1)
    return d.classify(x)


def efficientnet(d: Design) -> relax.Expr:
    """EfficientNet (Tan and Le 2019): inverted bottlenecks that weigh their channels, SiLU."""
    x = _silu(d, d.norm(d.conv(d.image(), d.width(32), 3, stride=2)))
    for channels, expansion, kernel, stride in (
        *((16, 1, 3, 1), (24, 6, 3, 2), (24, 6, 3, 1), (40, 6, 5, 2)),
        *((80, 6, 3, 1), (112, 6, 5, 1), (192, 6, 5, 2)),
    ):
        before = static_shape(x.ty)[1]
        hidden = before * expansion
        y = x if expansion == 1 else _silu(d, d.norm(d.conv(x, hidden, 1)))
        y = _silu(d, d.norm(d.conv(y, hidden, kernel, stride=stride, groups=hidden)))
        y = _weighted_channels(d, y, max(4, before // 4))
        y = d.norm(d.conv(y, d.width(channels), 1))
        x = d.add(x, y) if static_shape(x.ty) == static_shape(y.ty) else y
    x = _silu(d, d.norm(d.conv(x, d.width(640), 1)))
    return d.linear(d.dropout(d.layers.global_avg_pool("mean", x), 0.2), d.classes)


def _silu(d: Design, x: relax.Expr) -> relax.Expr:
    return d.emit("silu", relax.op.nn.silu(x))


def _weighted_channels(d: Design, x: relax.Expr, hidden: int) -> relax.Expr:
    """Squeeze and excitation (Hu et al. 2018)."""
    batch, channels = static_shape(x.ty)[:2]
    y = d.relu(d.linear(d.emit("squeezed", relax.op.mean(x, [2, 3])), hidden))
    y = d.emit("gate", relax.op.sigmoid(d.linear(y, channels)))
    return d.emit("weighted", relax.op.multiply(x, relax.op.reshape(y, (batch, channels, 1, 1))))


def resnext(d: Design) -> relax.Expr:
    """ResNeXt (Xie et al. 2017): bottlenecks whose 3x3 has groups."""
    x = d.conv_norm_relu(d.image(), d.width(64), 3)
    for stage, channels in enumerate((128, 256, 512)):
        wide, inner = d.width(channels), d.width(channels // 2)
        for block in range(2):
            stride = 2 if block == 0 and stage > 0 else 1
            y = d.conv_norm_relu(x, inner, 1)
            y = d.conv_norm_relu(y, inner, 3, stride=stride, groups=8)
            y = d.norm(d.conv(y, wide, 1))
            around = x if block else d.norm(d.conv(x, wide, 1, stride=stride))
            x = d.relu(d.add(around, y))
    return d.classify(x)


def wide_resnet(d: Design) -> relax.Expr:
    """Wide ResNet (Zagoruyko and Komodakis 2016): norms first, dropout between."""
    x = d.conv(d.image(), 16, 3)
    for stage, channels in enumerate((128, 256, 512)):
        stride = 2 if stage else 1
        y = d.relu(d.norm(x))
        around = d.conv(y, d.width(channels), 1, stride=stride)
        y = d.relu(d.norm(d.conv(y, d.width(channels), 3, stride=stride)))
        x = d.add(around, d.conv(d.dropout(y, 0.3), d.width(channels), 3))
    return d.classify(d.relu(d.norm(x)))


def densenet(d: Design) -> relax.Expr:
    """DenseNet (Huang et al. 2017): every layer reads what all before it made."""
    growth = max(8, d.width(32))
    x = d.conv(d.image(), 2 * growth, 3)
    for stage in range(3):
        for _ in range(3):
            y = d.conv(d.relu(d.norm(x)), 4 * growth, 1)
            y = d.conv(d.relu(d.norm(y)), growth, 3)
            x = d.layers.concat(d.name("concat"), [x, y], axis=1)
        if stage < 2:
            x = d.conv(d.relu(d.norm(x)), static_shape(x.ty)[1] // 2, 1)
            x = d.emit("pool", relax.op.nn.avg_pool2d(x, 2, strides=2))
    return d.classify(d.relu(d.norm(x)))


def squeezenet(d: Design) -> relax.Expr:
    """SqueezeNet (Iandola et al. 2016): narrow by 1x1, then 1x1 beside 3x3; biases, no norm."""
    x = d.layers.conv("first", d.image(), d.width(64), 3, stride=2, padding=1)
    x = d.relu(x)
    for fire, channels in enumerate((16, 16, 32, 32, 48, 64)):
        if fire in (2, 4) and static_shape(x.ty)[2] >= 4:
            x = d.max_pool(x, 3)
        narrow = d.width(channels)
        squeezed = d.relu(d.layers.conv(d.name("squeeze"), x, narrow, 1))
        parts = [
            d.relu(d.layers.conv(d.name("expand"), squeezed, 4 * narrow, k, padding=k // 2))
            for k in (1, 3)
        ]
        x = d.layers.concat(d.name("concat"), parts, axis=1)
    x = d.layers.conv("last", d.dropout(x, 0.5), d.classes, 1)
    return d.layers.global_avg_pool("mean", d.relu(x))


def inception(d: Design) -> relax.Expr:
    """GoogLeNet (Szegedy et al. 2015): 1x1, 3x3, 5x5 and pooling side by side."""
    x = d.conv_norm_relu(d.image(), d.width(64), 3, stride=2)
    for module, channels in enumerate((64, 96, 128, 192)):
        if module == 2:
            x = d.max_pool(x)
        w = d.width(channels)
        pooled = d.emit("pool", relax.op.nn.max_pool2d(x, 3, strides=1, padding=1))
        parts = [
            d.conv_norm_relu(x, w, 1),
            d.conv_norm_relu(d.conv_norm_relu(x, w // 2, 1), w, 3),
            d.conv_norm_relu(d.conv_norm_relu(x, max(8, w // 4), 1), w // 2, 5),
            d.conv_norm_relu(pooled, w // 2, 1),
        ]
        x = d.layers.concat(d.name("concat"), parts, axis=1)
    return d.linear(d.dropout(d.layers.global_avg_pool("mean", x), 0.4), d.classes)


def shufflenet(d: Design) -> relax.Expr:
    """ShuffleNet (Zhang et al. 2018): 1x1 in groups, whose channels are then dealt out anew."""
    groups = 4
    x = d.conv_norm_relu(d.image(), d.width(32), 3, stride=2)
    for channels in (128, 128, 256, 256):
        wide = max(16, d.width(channels))
        before = static_shape(x.ty)[1]
        y = d.conv_norm_relu(x, wide // 2, 1, groups=groups if before % groups == 0 else 1)
        batch, _, height, width = static_shape(y.ty)
        apart = (batch, groups, wide // 2 // groups, height, width)
        y = relax.op.permute_dims(relax.op.reshape(y, apart), [0, 2, 1, 3, 4])
        y = d.emit("dealt", relax.op.reshape(y, (batch, wide // 2, height, width)))
        stride = 1 if before == wide else 2
        y = d.norm(d.conv(y, wide // 2, 3, stride=stride, groups=wide // 2))
        y = d.norm(d.conv(y, wide, 1, groups=groups))
        x = d.relu(d.add(x, y) if static_shape(x.ty) == static_shape(y.ty) else y)
    return d.classify(x)


def alexnet(d: Design) -> relax.Expr:
    """AlexNet (Krizhevsky et al. 2012): few convolutions, large fully connected layers."""
    x = d.relu(d.layers.conv("conv_a", d.image(), d.width(64), 5, stride=2, padding=2))
    x = d.max_pool(x, 3)
    x = d.relu(d.layers.conv("conv_b", x, d.width(192), 5, padding=2))
    x = d.max_pool(x, 3)
    x = d.relu(d.layers.conv("conv_c", x, d.width(384), 3, padding=1))
    x = d.relu(d.layers.conv("conv_d", x, d.width(256), 3, padding=1))
    x = d.layers.flatten("flat", x)
    for _ in range(2):
        x = d.relu(d.linear(d.dropout(x, 0.5), d.width(4096)))
    return d.linear(x, d.classes)


def segnet(d: Design) -> relax.Expr:
    """A fully convolutional network (Long et al. 2015): a class for every pixel."""
    channels = [d.width(w) for w in (32, 64, 128)]
    x = d.image()
    passed = []
    for w in channels:
        x = d.conv_norm_relu(x, w, 3)
        passed.append(x)
        x = d.max_pool(x)
    x = d.dropout(d.conv_norm_relu(x, 2 * channels[-1], 3), 0.1)
    for before in reversed(passed):
        x = d.layers.conv_transpose(d.name("up"), x, static_shape(before.ty)[1], 2)
        x = d.conv_norm_relu(d.add(x, before), static_shape(before.ty)[1], 3)
    return d.layers.conv("head", x, d.classes, 1)


def convolutional_autoencoder(d: Design) -> relax.Expr:
    """Down by strides and up by transposed convolutions; its "classes" are pixel values."""
    x = d.image()
    for w in (32, 64, 128):
        x = d.relu(d.layers.conv(d.name("down"), x, d.width(w), 3, stride=2, padding=1))
    for w in (64, 32, 16):
        x = d.relu(d.layers.conv_transpose(d.name("up"), x, d.width(w), 2))
    return d.layers.conv("head", x, max(2, d.classes // 8), 3, padding=1)


def convnext(d: Design) -> relax.Expr:
    """ConvNeXt (Liu et al. 2022): 7x7 on each channel, layer norm and a wide GELU layer."""
    x = d.layers.conv("patches", d.image(), d.width(64), 4, stride=4)
    for stage in range(2):
        channels = static_shape(x.ty)[1]
        for _ in range(2):
            y = d.layers.conv(d.name("each"), x, channels, 7, padding=3, groups=channels)
            y = d.layers.layer_norm(d.name("norm"), _channels_last(d, y))
            y = d.emit("gelu", relax.op.nn.gelu(d.linear(y, 4 * channels)))
            y = relax.op.permute_dims(d.linear(y, channels), [0, 3, 1, 2])
            x = d.add(x, y)
        if stage == 0:
            x = d.layers.conv("halve", x, 2 * channels, 2, stride=2)
    return d.classify(x)


def _channels_last(d: Design, x: relax.Expr) -> relax.Expr:
    return d.emit("last", relax.op.permute_dims(x, [0, 2, 3, 1]))


def mixer(d: Design) -> relax.Expr:
    """MLP-Mixer (Tolstikhin et al. 2021): fully connected over places, then over channels."""
    x = _patches(d, d.width(256))
    _, places, width = static_shape(x.ty)
    for _ in range(2):
        y = d.emit("turned", relax.op.permute_dims(_layer_norm(d, x), [0, 2, 1]))
        y = d.linear(d.emit("gelu", relax.op.nn.gelu(d.linear(y, d.width(128)))), places)
        x = d.add(x, relax.op.permute_dims(y, [0, 2, 1]))
        x = d.add(x, _feed_forward(d, _layer_norm(d, x), 4 * width))
    return d.linear(d.emit("pooled", relax.op.mean(_layer_norm(d, x), 1)), d.classes)


def vit(d: Design) -> relax.Expr:
    """Vision transformer (Dosovitskiy et al. 2021)."""
    x = _patches(d, d.width(192))
    _, places, width = static_shape(x.ty)
    x = d.add(x, d.layers.weight("places", (places, width)))
    for _ in range(2):
        x = _transformer_block(d, x, 4)
    return d.linear(d.emit("pooled", relax.op.mean(_layer_norm(d, x), 1)), d.classes)


def bert(d: Design) -> relax.Expr:
    """BERT (Devlin et al. 2019): an encoder that guesses the word at every place."""
    words = max(d.classes, 50)
    tokens = d.layers.input("x", (d.batch_size, d.length), "int64")
    x = d.layers.embedding("tokens", tokens, words, d.width(256))
    x = d.add(x, d.layers.weight("places", (d.length, static_shape(x.ty)[-1])))
    x = d.dropout(_layer_norm(d, x), 0.1)
    for _ in range(2):
        y = d.dropout(_attention(d, x, 4), 0.1)
        x = _layer_norm(d, d.add(x, y))
        y = d.dropout(_feed_forward(d, x, 4 * static_shape(x.ty)[-1]), 0.1)
        x = _layer_norm(d, d.add(x, y))
    logits = d.linear(x, words)
    return d.emit("rows", relax.op.reshape(logits, (d.batch_size * d.length, words)))


def autoencoder(d: Design) -> relax.Expr:
    """The anomaly detector of MLPerf Tiny (Banbury et al. 2021): 640 numbers through eight."""
    x: relax.Expr = d.layers.input("x", (d.batch_size * 4, 20 * d.length))
    inputs = static_shape(x.ty)[1]
    for w in (512, 512, 512):
        x = d.relu(d.norm(d.linear(x, d.width(w))))
    x = d.relu(d.linear(x, 8))
    for w in (512, 512, 512):
        x = d.relu(d.norm(d.linear(x, d.width(w))))
    return d.linear(x, inputs)


def recommender(d: Design) -> relax.Expr:
    """Large fully connected layers over rows of tables, as in DLRM (Naumov et al. 2019)."""
    items = d.layers.input("x", (d.batch_size * 8, 16), "int64")
    rows = d.layers.embedding("items", items, 500 + 10 * d.length, d.width(128))
    x = d.layers.flatten("flat", rows)
    for w in (2048, 1024, 256):
        x = d.relu(d.linear(x, d.width(w)))
    return d.linear(x, d.classes)


def _patches(d: Design, width: int) -> relax.Expr:
    """Squares of an image as vectors: (batch, places, width)."""
    x = d.layers.conv("patches", d.image(), width, 4, stride=4)
    batch, _, height, across = static_shape(x.ty)
    flat = relax.op.reshape(x, (batch, width, height * across))
    return d.emit("places", relax.op.permute_dims(flat, [0, 2, 1]))


def _layer_norm(d: Design, x: relax.Expr) -> relax.Expr:
    return d.layers.layer_norm(d.name("norm"), x)


def _feed_forward(d: Design, x: relax.Expr, hidden: int) -> relax.Expr:
    width = static_shape(x.ty)[-1]
    return d.linear(d.emit("gelu", relax.op.nn.gelu(d.linear(x, hidden))), width)


def _transformer_block(d: Design, x: relax.Expr, heads: int) -> relax.Expr:
    x = d.add(x, _attention(d, _layer_norm(d, x), heads))
    return d.add(x, _feed_forward(d, _layer_norm(d, x), 4 * static_shape(x.ty)[-1]))


def _attention(d: Design, x: relax.Expr, heads: int) -> relax.Expr:
    batch, length, width = static_shape(x.ty)
    apart = (batch, length, heads, width // heads)
    query, key, value = (
        d.emit("turned", relax.op.permute_dims(relax.op.reshape(d.linear(x, width), apart), order))
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = relax.op.multiply(
        relax.op.matmul(query, key), relax.const(1 / sqrt(width // heads), "float32")
    )
    shares = d.emit("shares", relax.op.nn.softmax(scores, axis=-1))
    joined = relax.op.permute_dims(relax.op.matmul(shares, value), [0, 2, 1, 3])
    return d.linear(d.emit("joined", relax.op.reshape(joined, (batch, length, width))), width)


DESIGNS: Mapping[str, Callable[[Design], relax.Expr]] = {
    design.__name__: design
    for design in (
        *(mobilenetv1, efficientnet, resnext, wide_resnet, densenet, squeezenet, inception),
        *(shufflenet, alexnet, segnet, convolutional_autoencoder, convnext, mixer, vit, bert),
        *(autoencoder, recommender),
    )
}


def build_design(name: str, batch_size: int, num_classes: int, seed: int) -> ForwardModel:
    """The design of that name, in a width and a size that the seed chooses.

    Raises
    ------
    UnsupportedModelError
        When there is no such design.
    """
    if name not in DESIGNS:
        raise UnsupportedModelError(f"unknown design {name!r}, there are {', '.join(DESIGNS)}")
    return build_network(
        name, seed, lambda layers: DESIGNS[name](Design(layers, batch_size, num_classes, seed))
    )
