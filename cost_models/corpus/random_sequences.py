"""Random networks over sequences: convolutions along the time, and what is made of all times."""

from __future__ import annotations

import math

from tvm import relax

from tvm_xengine.cost_models.corpus.random_elementwise import curve
from tvm_xengine.cost_models.corpus.random_layers import LARGEST_IMAGE, RandomLayers, activation
from tvm_xengine.relax_ir.types import static_shape

_MOST_FLOPS = 1 << 25
"""Of a layer, so that it is measured in some 10 ms."""


def sequences(r: RandomLayers) -> relax.Expr:
    """Convolutions over time, of one time step or several, near or apart, of all channels or each."""
    channels, length = _channels(r), _length(r)
    while r.batch_size * channels * length > LARGEST_IMAGE and length > 4:
        length //= 2
    x: relax.Expr = r.layers.input("x", (r.batch_size, channels, length))
    for _ in range(r.between(2, 4)):
        before = x
        x = _convolution(r, x)
        if r.happens(0.2) and static_shape(x.ty)[1] % 2 == 0:
            x = _gated(r, x)
        else:
            x = r.layers.batch_norm(r.name("norm"), x) if r.happens(0.5) else x
            x = activation(r, x) if r.happens(0.8) else x
        if static_shape(x.ty) == static_shape(before.ty) and r.happens(0.6):
            x = r.layers.add(r.name("sum"), x, before)
    if r.happens(0.3):
        x = r.layers.emit("rows", relax.op.permute_dims(x, [0, 2, 1]))
        x = r.layers.layer_norm("last_norm", x) if r.happens(0.5) else x
        x = r.layers.linear("each", x, r.between(2, 200))
        return r.layers.emit("all", relax.op.mean(x, [1]))
    over = relax.op.mean if r.happens(0.6) else relax.op.max
    return r.layers.linear("head", r.layers.emit("over", over(x, [2])), r.between(2, 100))


def _convolution(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    batch, before, length = static_shape(x.ty)
    is_alone = r.happens(0.2)
    groups = before if is_alone else 1
    window = 1 if not is_alone and r.happens(0.45) else r.between(2, 9)
    dilation = int(r.rng.choice((1, 1, 2, 4, 8))) if window > 1 else 1
    stride = 2 if length >= 8 and r.happens(0.15) else 1
    reach = (window - 1) * dilation
    channels = before if is_alone else _channels(r)
    most = max(4, _MOST_FLOPS // (batch * before * window * length))
    channels = channels if is_alone else min(channels, most)
    # All of the border before the first time step, or half of it on each side.
    border = (reach, 0) if r.happens(0.4) else (reach // 2, reach - reach // 2)
    weight = r.layers.weight(r.name("weight"), (channels, before // groups, window))
    y = relax.op.nn.conv1d(
        x, weight, strides=stride, padding=list(border), dilation=dilation, groups=groups
    )
    y = r.layers.emit(r.name("conv"), y)
    if r.happens(0.3):
        shift = r.layers.weight(r.name("shift"), (1, channels, 1))
        y = r.layers.add(r.name("shifted"), y, shift)
    return y


def _gated(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """A function of half of the channels times one of the others."""
    both = r.layers.emit(r.name("both"), relax.op.split(x, 2, 1))
    value, gate = curve(r, relax.TupleGetItem(both, 0)), curve(r, relax.TupleGetItem(both, 1))
    return r.layers.emit(r.name("gated"), relax.op.multiply(value, gate))


def _channels(r: RandomLayers) -> int:
    """4 to 512, small numbers as often as large ones; mostly a multiple of 8."""
    channels = round(4 * math.pow(128.0, r.rng.random()))
    return channels if channels < 8 or r.happens(0.2) else channels - channels % 8


def _length(r: RandomLayers) -> int:
    """4 to 2,048, mostly no power of two."""
    length = round(4 * math.pow(512.0, r.rng.random()))
    return 1 << max(2, length.bit_length() - 1) if r.happens(0.3) else length
