"""Designs for images of dense convolutions."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.cost_models.corpus.designs.blocks import leaky_relu, silu, tanh, weighted_channels
from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.relax_ir.types import static_shape


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
    """SqueezeNet (Iandola et al. 2016): 1x1 to squeeze, then 1x1 and 3x3 in parallel; biases, no norm."""
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
    x = d.image(divisible_by=2 ** len(channels))
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


def regnet(d: Design) -> relax.Expr:
    """RegNetY (Radosavovic et al. 2020): groups of one width, and weighed channels."""
    each = max(8, d.width(16))
    x = d.conv_norm_relu(d.image(), d.width(32), 3, stride=2)
    for groups, blocks in ((3, 1), (7, 2), (16, 2)):
        channels = groups * each
        for block in range(blocks):
            before = static_shape(x.ty)[1]
            stride = 2 if block == 0 else 1
            y = d.conv_norm_relu(x, channels, 1)
            y = d.conv_norm_relu(y, channels, 3, stride=stride, groups=groups)
            y = weighted_channels(d, y, max(4, before // 4))
            y = d.norm(d.conv(y, channels, 1))
            around = x if block else d.norm(d.conv(x, channels, 1, stride=stride))
            x = d.relu(d.add(around, y))
    return d.classify(x)


def repvgg(d: Design) -> relax.Expr:
    """RepVGG (Ding et al. 2021), as it is trained: 3x3, 1x1 and nothing, each with its norm."""
    x = d.image()
    for channels, stride in ((48, 2), (48, 2), (48, 1), (96, 2), (96, 1), (96, 1), (192, 2)):
        wide = d.width(channels)
        y = d.add(
            d.norm(d.conv(x, wide, 3, stride=stride)), d.norm(d.conv(x, wide, 1, stride=stride))
        )
        x = d.relu(d.add(y, d.norm(x)) if static_shape(x.ty) == static_shape(y.ty) else y)
    return d.classify(x)


def cspdarknet(d: Design) -> relax.Expr:
    """The backbone of YOLO since version 4 (Bochkovskiy et al. 2020): half goes around each stage.

    Half of them with SiLU, the others with a leaky ReLU, as versions differ.
    """

    def conv(y: relax.Expr, channels: int, kernel: int, stride: int = 1) -> relax.Expr:
        normed = d.norm(d.conv(y, channels, kernel, stride=stride))
        return leaky_relu(d, normed, 0.1) if d.length % 2 else silu(d, normed)

    x = conv(d.image(), d.width(32), 3)
    for channels in (64, 128, 256):
        wide = d.width(channels)
        x = conv(x, wide, 3, 2)
        around, inner = conv(x, wide // 2, 1), conv(x, wide // 2, 1)
        inner = d.add(inner, conv(conv(inner, wide // 2, 1), wide // 2, 3))
        x = conv(d.layers.concat(d.name("concat"), [inner, around], axis=1), wide, 1)
    if static_shape(x.ty)[2] >= 4:
        x = conv(x, static_shape(x.ty)[1] // 2, 1)
        pools = [
            d.emit("pool", relax.op.nn.max_pool2d(x, size, strides=1, padding=size // 2))
            for size in (3, 5)
        ]
        x = d.layers.concat(d.name("concat"), [x, *pools], axis=1)
    return d.layers.conv("head", x, d.classes, 1)


def dcgan(d: Design) -> relax.Expr:
    """Both networks of DCGAN (Radford et al. 2016) in a row: an image from it, judged by it."""
    x = d.layers.input("x", (d.batch_size, 2 * d.length))
    side = max(2, d.extent // 8)
    x = d.linear(x, d.width(128) * side * side)
    x = d.emit("image", relax.op.reshape(x, (d.batch_size, d.width(128), side, side)))
    for channels in (64, 32):
        x = d.relu(d.norm(_enlarged(d, d.relu(d.norm(x)), d.width(channels))))
    x = tanh(d, _enlarged(d, x, 3))
    for number, channels in enumerate((32, 64, 128)):
        y = d.layers.conv(d.name("judge"), x, d.width(channels), 4, stride=2, padding=1, bias=False)
        x = leaky_relu(d, d.norm(y) if number else y, 0.2)
    return d.linear(d.layers.flatten("flat", x), d.classes)


def _enlarged(d: Design, x: relax.Expr, channels: int) -> relax.Expr:
    """Twice as high and wide by a transposed convolution whose windows overlap."""
    weight = d.layers.weight(d.name("up_weight"), (static_shape(x.ty)[1], channels, 4, 4))
    return d.emit("up", relax.op.nn.conv2d_transpose(x, weight, strides=2, padding=1))


def srresnet(d: Design) -> relax.Expr:
    """SRResNet (Ledig et al. 2017): a larger image from channels; its "classes" are pixel values."""
    channels = d.width(64)
    x = _prelu(d, d.layers.conv("first", d.image(), channels, 5, padding=2))
    first = x
    for _ in range(3):
        y = d.norm(d.conv(_prelu(d, d.norm(d.conv(x, channels, 3))), channels, 3))
        x = d.add(x, y)
    x = d.add(first, d.norm(d.conv(x, channels, 3)))
    x = d.layers.conv("more", x, 4 * channels, 3, padding=1)
    batch, _, height, width = static_shape(x.ty)
    apart = d.emit("apart", relax.op.reshape(x, (batch, channels, 2, 2, height, width)))
    dealt = d.emit("dealt", relax.op.permute_dims(apart, [0, 1, 4, 2, 5, 3]))
    x = d.emit("larger", relax.op.reshape(dealt, (batch, channels, 2 * height, 2 * width)))
    return d.layers.conv("head", _prelu(d, x), max(2, d.classes // 8), 3, padding=1)


def _prelu(d: Design, x: relax.Expr) -> relax.Expr:
    """x above 0, and below it x times what is learned for its channel."""
    name = d.name("prelu")
    slope = np.full(static_shape(x.ty)[1], 0.25, "float32")
    return d.emit(name, relax.op.nn.prelu(x, d.layers.parameter(f"{name}_slope", slope), axis=1))
