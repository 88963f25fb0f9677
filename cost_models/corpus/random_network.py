"""Random networks, for kernels of unusual shapes in unusual combinations."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
from tvm import relax

from tvm_xengine.cost_models.corpus.random_elementwise import curve, gated, light, self_gated
from tvm_xengine.cost_models.corpus.random_layers import (
    LARGEST_IMAGE,
    RandomLayers,
    activation,
    clipped,
    convolution,
    inverted_block,
    plain_block,
    residual_block,
)
from tvm_xengine.cost_models.corpus.random_sequences import sequences
from tvm_xengine.cost_models.corpus.random_small_layers import (
    normed_rows,
    shared_products,
    tiny_maps,
)
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import build_network
from tvm_xengine.relax_ir.types import static_shape

_MANY_CHANNELS = (96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Channels of deep layers, whose images are small."""

_LARGEST_WEIGHT = 1 << 25
"""Elements of the weights of a random fully connected layer."""


def random_network(seed: int, batch_size: int) -> ForwardModel:
    """A network of random layers; equal arguments give equal networks."""
    rng = np.random.default_rng(seed)
    kinds: tuple[Callable[[RandomLayers], relax.Expr], ...] = (
        *(_images, _hourglass, _vectors, _tokens),
        *(_late_stages, _each_channel, _wide_vectors, _large_tensors, _curves),
        *(tiny_maps, normed_rows, shared_products, _smooth, sequences),
    )
    shares = (0.12, 0.06, 0.05, 0.11, 0.08, 0.12, 0.05, 0.07, 0.08, 0.06, 0.05, 0.05, 0.05, 0.05)
    body = kinds[int(rng.choice(len(kinds), p=shares))]
    return build_network(
        f"random{seed}", seed, lambda layers: body(RandomLayers(layers, rng, batch_size))
    )


def _images(r: RandomLayers) -> relax.Expr:
    height = r.extent()
    width = height if r.happens(0.6) else r.extent()
    x: relax.Expr = r.layers.input("x", (r.batch_size, r.between(1, 4), height, width))
    if r.happens(0.4):
        x = convolution(r, x, channels=r.width())
    for _ in range(r.between(2, 5)):
        block = r.rng.choice(3, p=(0.6, 0.25, 0.15))
        x = (plain_block, residual_block, inverted_block)[int(block)](r, x)
        if r.happens(0.3) and min(static_shape(x.ty)[2:]) >= 4:
            x = r.layers.max_pool(r.name("pool"), x, r.between(2, 3), stride=2)
        if r.happens(0.15):
            x = r.layers.dropout(r.name("dropout"), x, 0.2)
    x = r.layers.global_avg_pool("mean", x) if r.happens(0.6) else r.layers.flatten("flat", x)
    if r.happens(0.3):
        x = r.layers.dropout("last_dropout", x, 0.3)
    return r.layers.linear("head", x, r.between(2, 100))


def _hourglass(r: RandomLayers) -> relax.Expr:
    """Down- and upsampling with a skip connection, as in a U-Net."""
    extent = 4 * r.between(1, 10)
    x: relax.Expr = r.layers.input("x", (r.batch_size, r.between(1, 4), extent, extent))
    levels = []
    for _ in range(r.between(1, 2)):
        x = activation(r, convolution(r, x, channels=r.width(), keeps_size=True))
        levels.append(x)
        x = r.layers.max_pool(r.name("pool"), x, 2)
    x = plain_block(r, convolution(r, x, channels=r.width(), keeps_size=True))
    if static_shape(x.ty)[2] != static_shape(levels[-1].ty)[2] // 2:
        return r.layers.linear("head", r.layers.global_avg_pool("mean", x), r.between(2, 100))
    while levels:
        before = levels.pop()
        x = r.layers.conv_transpose(r.name("up"), x, static_shape(before.ty)[1], 2)
        x = r.layers.concat(r.name("concat"), [before, x], axis=1)
        x = convolution(r, x, channels=r.width(), keeps_size=True)
        x = r.layers.relu(r.name("relu"), r.layers.batch_norm(r.name("norm"), x))
    if r.happens(0.5):
        return r.layers.conv("head", x, r.between(2, 200), 1)  # a class for every pixel
    return r.layers.linear("head", r.layers.global_avg_pool("mean", x), r.between(2, 100))


def _late_stages(r: RandomLayers) -> relax.Expr:
    """Many channels on few pixels, where weights are most of what is read."""
    extent = r.between(1, 10) if r.happens(0.6) else r.between(1, 3)
    x: relax.Expr = r.layers.input(
        "x", (r.batch_size, int(r.rng.choice(_MANY_CHANNELS)), extent, extent)
    )
    for _ in range(r.between(1, 3)):
        before = x
        channels = static_shape(x.ty)[1]
        if r.happens(0.3):
            hidden = int(r.rng.choice(_MANY_CHANNELS))
            x = activation(r, convolution(r, x, channels=hidden, keeps_size=True))
            x = r.layers.conv(r.name("back"), x, channels, 1)
        else:
            channels = int(r.rng.choice(_MANY_CHANNELS))
            x = convolution(r, x, channels=channels, keeps_size=True)
        if r.happens(0.3) and extent >= 2:
            halved = int(r.rng.choice(_MANY_CHANNELS))
            x = r.layers.conv(r.name("halve"), x, halved, 3, stride=2, padding=1)
        if r.happens(0.6):
            x = r.layers.batch_norm(r.name("norm"), x)
        if static_shape(x.ty) == static_shape(before.ty) and r.happens(0.7):
            x = r.layers.add(r.name("sum"), x, before)
        x = activation(r, x)
    x = r.layers.global_avg_pool("mean", x) if r.happens(0.7) else r.layers.flatten("flat", x)
    return r.layers.linear("head", x, r.between(2, 100))


def _each_channel(r: RandomLayers) -> relax.Expr:
    """Convolutions of single channels or small groups of them, and 1x1 between."""
    extent = r.extent()
    channels = 8 * r.between(1, 48)
    while channels > 16 and r.batch_size * channels * extent**2 > 4 * LARGEST_IMAGE:
        channels //= 2
    channels -= channels % 8
    x: relax.Expr = r.layers.input("x", (r.batch_size, channels, extent, extent))
    for _ in range(r.between(1, 3)):
        channels = static_shape(x.ty)[1]
        size = int(r.rng.choice((3, 3, 3, 5, 7)))
        x = r.layers.conv(
            r.name("each"),
            x,
            channels,
            size,
            stride=1 if static_shape(x.ty)[2] < 4 else r.between(1, 2),
            padding=size // 2,
            groups=channels if r.happens(0.75) else channels // int(r.rng.choice((2, 4, 8))),
            bias=r.happens(0.3),
        )
        if r.happens(0.8):
            x = r.layers.batch_norm(r.name("norm"), x)
        x = clipped(r, x) if r.happens(0.3) else activation(r, x)
        if r.happens(0.2):
            x = r.layers.dropout(r.name("dropout"), x, 0.2)
        if r.happens(0.5):
            x = r.layers.conv(r.name("mix"), x, 8 * r.between(1, 24), 1, bias=False)
    if r.happens(0.2):
        x = r.layers.dropout("last_dropout", x, 0.3)
    return r.layers.linear("head", r.layers.global_avg_pool("mean", x), r.between(2, 100))


def _wide_vectors(r: RandomLayers) -> relax.Expr:
    """Fully connected layers whose weights are larger than the caches, some than all of them."""
    widths = (768, 1000, 1024, 1536, 2048, 3072, 4096, 5000, 6144, 8192)
    width = int(r.rng.choice(widths))
    x: relax.Expr = r.layers.input("x", (r.batch_size, width))
    for _ in range(r.between(1, 2)):
        suited = [each for each in widths if each * width <= _LARGEST_WEIGHT]
        width = int(r.rng.choice(suited))
        x = r.layers.linear(r.name("fc"), x, width, bias=r.happens(0.8))
        x = activation(r, x)
        if r.happens(0.4):
            x = r.layers.dropout(r.name("dropout"), x, 0.5)
    return r.layers.linear("head", x, r.between(2, 1000))


def _large_tensors(r: RandomLayers) -> relax.Expr:
    """Little arithmetic on activations larger than the caches, of round sizes or odd ones."""
    batch = r.batch_size
    elements = 1 << r.between(19, 23)
    extent = int(r.rng.choice((1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)))
    channels = max(1, elements // (batch * extent**2))
    channels = min(channels, 2048) if r.happens(0.5) else min(channels, r.between(8, 600))
    x: relax.Expr = r.layers.input("x", (batch, channels, extent, extent))
    x = r.layers.batch_norm(r.name("norm"), x)
    for _ in range(r.between(1, 3)):
        y = light(r, x)
        x = r.layers.add(r.name("sum"), x, y) if r.happens(0.5) else y
        if r.happens(0.6):
            x = r.layers.relu(r.name("relu"), x)
    if r.happens(0.3) and extent >= 4:
        size = r.between(2, 3)
        x = (
            r.layers.max_pool(r.name("pool"), x, size, stride=2)
            if r.happens(0.5)
            else r.layers.emit(r.name("pool"), relax.op.nn.avg_pool2d(x, size, strides=2))
        )
    x = r.layers.batch_norm(r.name("norm"), x)
    return r.layers.linear("head", r.layers.global_avg_pool("mean", x), r.between(2, 100))


def _curves(r: RandomLayers) -> relax.Expr:
    """Elementwise functions of every kind, on small tensors and large ones, gates among them."""
    channels = 8 * r.between(1, 48)
    elements = 1 << r.between(9, 21)
    if r.happens(0.6):
        extent = min(64, max(1, int(sqrt(elements / (r.batch_size * channels)))))
        x: relax.Expr = r.layers.input("x", (r.batch_size, channels, extent, extent))
    else:
        length = min(256, max(1, elements // (r.batch_size * channels)))
        x = r.layers.input("x", (r.batch_size, channels, length))
    for _ in range(r.between(2, 4)):
        x = r.layers.batch_norm(r.name("norm"), x) if r.happens(0.7) else x
        x = curve(r, x)
        if r.happens(0.3):
            x = gated(r, x)
    axes = list(range(2, len(static_shape(x.ty))))
    return r.layers.linear("head", r.layers.emit("mean", relax.op.mean(x, axes)), r.between(2, 100))


def _smooth(r: RandomLayers) -> relax.Expr:
    """Functions without corners over images, with a norm, a sum or another factor."""
    channels = 8 * r.between(1, 64)
    elements = 1 << r.between(10, 21)
    extent = min(96, max(1, int(sqrt(elements / (r.batch_size * channels)))))
    width = extent if r.happens(0.7) else max(1, extent - r.between(0, 3))
    x: relax.Expr = r.layers.input("x", (r.batch_size, channels, extent, width))
    for _ in range(r.between(1, 3)):
        before = x
        if r.happens(0.5):
            x = r.layers.batch_norm(r.name("norm"), x)
        elif r.happens(0.5):
            shift = r.layers.weight(r.name("shift"), (1, channels, 1, 1))
            x = r.layers.add(r.name("shifted"), x, shift)
        x = (
            self_gated(r, x)
            if r.happens(0.7)
            else r.layers.emit(r.name("silu"), relax.op.nn.silu(x))
        )
        if r.happens(0.25):
            x = gated(r, x)
        if r.happens(0.25):
            x = r.layers.dropout(r.name("dropout"), x, 0.2)
        if r.happens(0.4):
            x = r.layers.add(r.name("sum"), x, before)
    return r.layers.linear("head", r.layers.global_avg_pool("mean", x), r.between(2, 100))


def _vectors(r: RandomLayers) -> relax.Expr:
    x: relax.Expr = r.layers.input("x", (r.batch_size, r.between(8, 800)))
    for _ in range(r.between(1, 4)):
        x = r.layers.linear(r.name("fc"), x, r.between(8, 600))
        if r.happens(0.3):
            x = r.layers.layer_norm(r.name("norm"), x)
        x = activation(r, x)
        if r.happens(0.2):
            x = r.layers.dropout(r.name("dropout"), x, 0.5)
    return r.layers.linear("head", x, r.between(2, 100))


def _tokens(r: RandomLayers) -> relax.Expr:
    """Blocks of a transformer over vectors or tokens, with one head or several."""
    length, heads = r.between(4, 64), int(r.rng.choice((1, 2, 3, 4)))
    width = heads * int(r.rng.choice((4, 8, 12, 16, 24, 32, 48, 64)))
    num_tokens = r.between(10, 200)
    if r.happens(0.5):
        tokens = r.layers.input("x", (r.batch_size, length), "int64")
        rows = r.layers.embedding("tokens", tokens, num_tokens, width)
        places = r.layers.weight("places", (length, width))
        x: relax.Expr = r.layers.add("embedded", rows, places)
    else:
        x = r.layers.input("x", (r.batch_size, length, width))
    for _ in range(r.between(1, 2)):
        normed = r.layers.layer_norm(r.name("norm"), x)
        x = r.layers.add(r.name("sum"), x, _attention(r, normed, heads))
        hidden = r.layers.linear(
            r.name("up"), r.layers.layer_norm(r.name("norm"), x), width * r.between(1, 4)
        )
        x = r.layers.add(
            r.name("sum"), x, r.layers.linear(r.name("down"), activation(r, hidden), width)
        )
    if r.happens(0.5):
        every = r.layers.linear("head", x, num_tokens, bias=r.happens(0.5))
        return r.layers.emit("rows", relax.op.reshape(every, (r.batch_size * length, num_tokens)))
    return r.layers.linear("head", r.layers.emit("pooled", relax.op.mean(x, 1)), num_tokens)


def _attention(r: RandomLayers, x: relax.Expr, heads: int) -> relax.Expr:
    batch, length, width = static_shape(x.ty)
    if r.happens(0.5):
        joint = r.layers.linear(r.name("joint"), x, 3 * width)
        parts = relax.op.split(joint, 3, axis=-1)
        fields: list[relax.Expr] = [relax.TupleGetItem(parts, k) for k in range(3)]
    else:
        fields = [r.layers.linear(r.name(part), x, width) for part in ("query", "key", "value")]
    apart = (batch, length, heads, width // heads)
    query, key, value = (
        r.layers.emit(
            r.name("turned"), relax.op.permute_dims(relax.op.reshape(field, apart), [0, 2, 1, 3])
        )
        for field in fields
    )
    scores = relax.op.matmul(query, relax.op.permute_dims(key, [0, 1, 3, 2]))
    scores = relax.op.multiply(scores, relax.const(1 / sqrt(width // heads), "float32"))
    if r.happens(0.5):
        hidden = np.where(np.tri(length) > 0, 0.0, -1e30).astype("float32")
        scores = relax.op.add(scores, relax.const(hidden))
    shares = r.layers.emit(r.name("shares"), relax.op.nn.softmax(scores, axis=-1))
    mixed = r.layers.emit(r.name("mixed"), relax.op.matmul(shares, value))
    joined = relax.op.reshape(relax.op.permute_dims(mixed, [0, 2, 1, 3]), (batch, length, width))
    return r.layers.linear(r.name("out"), r.layers.emit(r.name("joined"), joined), width)
