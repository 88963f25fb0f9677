"""Designs for images of convolutions of single channels and 1x1 between."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.cost_models.corpus.designs.blocks import (
    channels_last,
    gelu,
    hard_swish,
    silu,
    weighted_channels,
)
from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.relax_ir.types import static_shape


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
    x = silu(d, d.norm(d.conv(d.image(), d.width(32), 3, stride=2)))
    for channels, expansion, kernel, stride in (
        *((16, 1, 3, 1), (24, 6, 3, 2), (24, 6, 3, 1), (40, 6, 5, 2)),
        *((80, 6, 3, 1), (112, 6, 5, 1), (192, 6, 5, 2)),
    ):
        before = static_shape(x.ty)[1]
        hidden = before * expansion
        y = x if expansion == 1 else silu(d, d.norm(d.conv(x, hidden, 1)))
        y = silu(d, d.norm(d.conv(y, hidden, kernel, stride=stride, groups=hidden)))
        y = weighted_channels(d, y, max(4, before // 4))
        y = d.norm(d.conv(y, d.width(channels), 1))
        x = d.add(x, y) if static_shape(x.ty) == static_shape(y.ty) else y
    x = silu(d, d.norm(d.conv(x, d.width(640), 1)))
    return d.linear(d.dropout(d.layers.global_avg_pool("mean", x), 0.2), d.classes)


def shufflenet(d: Design) -> relax.Expr:
    """ShuffleNet (Zhang et al. 2018): grouped 1x1 convolutions with a channel shuffle."""
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


def convnext(d: Design) -> relax.Expr:
    """ConvNeXt (Liu et al. 2022): 7x7 on each channel, layer norm and a wide GELU layer."""
    x = d.layers.conv("patches", d.image(), d.width(64), 4, stride=4)
    for stage in range(2):
        channels = static_shape(x.ty)[1]
        for _ in range(2):
            y = d.layers.conv(d.name("each"), x, channels, 7, padding=3, groups=channels)
            y = d.layers.layer_norm(d.name("norm"), channels_last(d, y))
            y = gelu(d, d.linear(y, 4 * channels))
            y = relax.op.permute_dims(d.linear(y, channels), [0, 3, 1, 2])
            x = d.add(x, y)
        if stage == 0:
            x = d.layers.conv("halve", x, 2 * channels, 2, stride=2)
    return d.classify(x)


def mnasnet(d: Design) -> relax.Expr:
    """MnasNet (Tan et al. 2019): inverted bottlenecks of two window sizes, some weigh channels."""
    x = d.conv_norm_relu(d.image(), d.width(32), 3, stride=2)
    before = static_shape(x.ty)[1]
    x = d.conv_norm_relu(x, before, 3, groups=before)
    x = d.norm(d.conv(x, d.width(16), 1))
    for channels, expansion, kernel, stride, weighs in (
        *((24, 6, 3, 2, False), (24, 6, 3, 1, False), (40, 3, 5, 2, True), (40, 3, 5, 1, True)),
        *((80, 6, 3, 2, False), (112, 6, 3, 1, True), (160, 6, 5, 2, True)),
    ):
        before = static_shape(x.ty)[1]
        hidden = before * expansion
        y = d.conv_norm_relu(x, hidden, 1)
        y = d.conv_norm_relu(y, hidden, kernel, stride=stride, groups=hidden)
        y = weighted_channels(d, y, max(4, before // 4)) if weighs else y
        y = d.norm(d.conv(y, d.width(channels), 1))
        x = d.add(x, y) if static_shape(x.ty) == static_shape(y.ty) else y
    return d.classify(d.conv_norm_relu(x, d.width(640), 1))


def lcnet(d: Design) -> relax.Expr:
    """PP-LCNet (Cui et al. 2021): as MobileNet, with hard swish, 5x5 and weighed channels late."""
    x = hard_swish(d, d.norm(d.conv(d.image(), d.width(16), 3, stride=2)))
    for channels, kernel, stride, weighs in (
        *((32, 3, 1, False), (64, 3, 2, False), (64, 3, 1, False), (128, 3, 2, False)),
        *((128, 3, 1, False), (256, 5, 2, False), (256, 5, 1, False), (512, 5, 2, True)),
    ):
        before = static_shape(x.ty)[1]
        x = hard_swish(d, d.norm(d.conv(x, before, kernel, stride=stride, groups=before)))
        x = weighted_channels(d, x, max(4, before // 4), hard=True) if weighs else x
        x = hard_swish(d, d.norm(d.conv(x, d.width(channels), 1)))
    x = hard_swish(d, d.linear(d.layers.global_avg_pool("mean", x), d.width(1280)))
    return d.linear(d.dropout(x, 0.2), d.classes)


def ghostnet(d: Design) -> relax.Expr:
    """GhostNet (Han et al. 2020): half of the channels are made from the other half, one by one."""
    x = d.conv_norm_relu(d.image(), d.width(16), 3, stride=2)
    for channels, expansion, kernel, stride in (
        *((16, 1, 3, 1), (24, 3, 3, 2), (24, 3, 3, 1), (40, 3, 5, 2), (80, 6, 3, 2), (80, 2, 3, 1)),
    ):
        before = static_shape(x.ty)[1]
        y = d.relu(_ghosts(d, x, 2 * ((before * expansion + 1) // 2)))
        hidden = static_shape(y.ty)[1]
        if stride > 1:
            y = d.norm(d.conv(y, hidden, kernel, stride=stride, groups=hidden))
        if kernel == 5:
            y = weighted_channels(d, y, max(4, hidden // 4), hard=True)
        y = _ghosts(d, y, d.width(channels))
        around = x
        if static_shape(x.ty) != static_shape(y.ty):
            around = d.norm(d.conv(x, before, kernel, stride=stride, groups=before))
            around = d.norm(d.conv(around, d.width(channels), 1))
        x = d.add(around, y)
    return d.classify(d.conv_norm_relu(x, d.width(480), 1))


def _ghosts(d: Design, x: relax.Expr, channels: int) -> relax.Expr:
    """So many channels, half of them by 3x3 on each of the others."""
    first = d.conv_norm_relu(x, channels // 2, 1)
    second = d.conv_norm_relu(first, channels // 2, 3, groups=channels // 2)
    return d.layers.concat(d.name("concat"), [first, second], axis=1)


def poolformer(d: Design) -> relax.Expr:
    """PoolFormer (Yu et al. 2022): a transformer that averages neighbours instead of attention."""
    x = d.layers.conv("patches", d.image(), d.width(64), 4, stride=4)
    for stage in range(2):
        channels = static_shape(x.ty)[1]
        for _ in range(2):
            y = _norm_of_all(d, x)
            pooled = d.emit("pool", relax.op.nn.avg_pool2d(y, 3, strides=1, padding=1))
            x = d.add(x, d.emit("mixed", relax.op.subtract(pooled, y)))
            y = d.layers.conv(d.name("up"), _norm_of_all(d, x), 4 * channels, 1)
            x = d.add(x, d.layers.conv(d.name("down"), gelu(d, y), channels, 1))
        if stage == 0:
            x = d.layers.conv("halve", x, 2 * channels, 3, stride=2, padding=1)
    return d.classify(_norm_of_all(d, x))


def _norm_of_all(d: Design, x: relax.Expr) -> relax.Expr:
    """A norm over channels and places together."""
    channels = static_shape(x.ty)[1]
    name = d.name("norm")
    gamma = d.layers.parameter(f"{name}_weight", np.ones(channels, "float32"))
    beta = d.layers.parameter(f"{name}_bias", np.zeros(channels, "float32"))
    return d.emit(name, relax.op.nn.group_norm(x, gamma, beta, 1, 1, [2, 3]))
