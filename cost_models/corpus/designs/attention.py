"""Designs of attention, and of fully connected layers in its place."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.cost_models.corpus.designs.blocks import (
    attended,
    attention,
    channels_last,
    feed_forward,
    gelu,
    halves,
    layer_norm,
    patches,
    sigmoid,
    silu,
    transformer_block,
)
from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.relax_ir.types import static_shape


def mixer(d: Design) -> relax.Expr:
    """MLP-Mixer (Tolstikhin et al. 2021): fully connected over places, then over channels."""
    x = patches(d, d.width(256))
    _, places, width = static_shape(x.ty)
    for _ in range(2):
        y = d.emit("turned", relax.op.permute_dims(layer_norm(d, x), [0, 2, 1]))
        y = d.linear(gelu(d, d.linear(y, d.width(128))), places)
        x = d.add(x, relax.op.permute_dims(y, [0, 2, 1]))
        x = d.add(x, feed_forward(d, layer_norm(d, x), 4 * width))
    return d.linear(d.emit("pooled", relax.op.mean(layer_norm(d, x), 1)), d.classes)


def vit(d: Design) -> relax.Expr:
    """Vision transformer (Dosovitskiy et al. 2021)."""
    x = patches(d, d.width(192))
    _, places, width = static_shape(x.ty)
    x = d.add(x, d.layers.weight("places", (places, width)))
    for _ in range(2):
        x = transformer_block(d, x, 4)
    return d.linear(d.emit("pooled", relax.op.mean(layer_norm(d, x), 1)), d.classes)


def bert(d: Design) -> relax.Expr:
    """BERT (Devlin et al. 2019): an encoder that guesses the word at every place."""
    words = max(d.classes, 50)
    tokens = d.layers.input("x", (d.batch_size, d.length), "int64")
    x = d.layers.embedding("tokens", tokens, words, d.width(256))
    x = d.add(x, d.layers.weight("places", (d.length, static_shape(x.ty)[-1])))
    x = d.dropout(layer_norm(d, x), 0.1)
    for _ in range(2):
        y = d.dropout(attention(d, x, 4), 0.1)
        x = layer_norm(d, d.add(x, y))
        y = d.dropout(feed_forward(d, x, 4 * static_shape(x.ty)[-1]), 0.1)
        x = layer_norm(d, d.add(x, y))
    logits = d.linear(x, words)
    return d.emit("rows", relax.op.reshape(logits, (d.batch_size * d.length, words)))


def llama(d: Design) -> relax.Expr:
    """LLaMA (Touvron et al. 2023): root-mean-square norms, turned pairs, gated by SiLU."""
    words = max(d.classes, 50)
    tokens = d.layers.input("x", (d.batch_size, d.length), "int64")
    x = d.layers.embedding("tokens", tokens, words, d.width(256))
    width = static_shape(x.ty)[-1]
    for _ in range(2):
        x = d.add(x, _causal_attention(d, _root_norm(d, x), 4))
        y = _root_norm(d, x)
        gate = silu(d, _map(d, y, 8 * width // 3 // 8 * 8))
        y = d.emit("gated", relax.op.multiply(gate, _map(d, y, static_shape(gate.ty)[-1])))
        x = d.add(x, _map(d, y, width))
    logits = _map(d, _root_norm(d, x), words)
    return d.emit("rows", relax.op.reshape(logits, (d.batch_size * d.length, words)))


def _map(d: Design, x: relax.Expr, width: int) -> relax.Expr:
    """A fully connected layer without bias."""
    return d.layers.linear(d.name("map"), x, width, bias=False)


def _root_norm(d: Design, x: relax.Expr) -> relax.Expr:
    """x over the root of its mean square."""
    name = d.name("norm")
    scale = d.layers.parameter(f"{name}_weight", np.ones(static_shape(x.ty)[-1], "float32"))
    return d.emit(name, relax.op.nn.rms_norm(x, scale, axes=[-1]))


def _causal_attention(d: Design, x: relax.Expr, heads: int) -> relax.Expr:
    """Places look at earlier ones; queries and keys are turned by where they are."""
    batch, length, width = static_shape(x.ty)
    apart = (batch, length, heads, width // heads)

    def field() -> relax.Expr:
        split = relax.op.reshape(_map(d, x, width), apart)
        return d.emit("turned", relax.op.permute_dims(split, [0, 2, 1, 3]))

    query, key, value = _by_place(d, field()), _by_place(d, field()), field()
    key = d.emit("keys", relax.op.permute_dims(key, [0, 1, 3, 2]))
    later = relax.const(np.where(np.tri(length) > 0, 0.0, -1e30).astype("float32"))
    return _map(d, attended(d, query, key, value, added=later), width)


def _by_place(d: Design, x: relax.Expr) -> relax.Expr:
    """Rotary embedding (Su et al. 2021): pairs of numbers turned by an angle that grows."""
    length, each = static_shape(x.ty)[2:]
    angles = np.outer(np.arange(length), 1e4 ** (-np.arange(each // 2) / (each // 2)))
    cosines, sines = (
        relax.const(np.concatenate([turn(angles)] * 2, axis=1).astype("float32"))
        for turn in (np.cos, np.sin)
    )
    first, second = halves(d, x, 3)
    swapped = d.layers.concat(d.name("swapped"), [relax.op.negative(second), first], axis=3)
    return d.add(relax.op.multiply(x, cosines), relax.op.multiply(swapped, sines))


def swin(d: Design) -> relax.Expr:
    """Swin transformer (Liu et al. 2021): attention in windows, which move in every other block."""
    batch = d.batch_size
    x = channels_last(d, d.layers.conv("patches", d.image(), d.width(96), 4, stride=4))
    for stage in range(2):
        _, height, width, channels = static_shape(x.ty)
        window = next(size for size in (7, 5, 4, 3, 2, 1) if height % size == 0)
        for block in range(2):
            move = window // 2 if block else 0
            y = _moved(d, layer_norm(d, x), move)
            grid = (batch, height // window, window, width // window, window, channels)
            y = relax.op.permute_dims(relax.op.reshape(y, grid), [0, 1, 3, 2, 4, 5])
            many = batch * (height // window) * (width // window)
            y = d.emit("windows", relax.op.reshape(y, (many, window * window, channels)))
            y = relax.op.reshape(
                attention(d, y, 4),
                (batch, height // window, width // window, window, window, channels),
            )
            y = relax.op.reshape(relax.op.permute_dims(y, [0, 1, 3, 2, 4, 5]), static_shape(x.ty))
            x = d.add(x, _moved(d, d.emit("image", y), -move))
            x = d.add(x, feed_forward(d, layer_norm(d, x), 4 * channels))
        if stage == 0 and height % 2 == 0:
            grid = (batch, height // 2, 2, width // 2, 2, channels)
            y = relax.op.permute_dims(relax.op.reshape(x, grid), [0, 1, 3, 2, 4, 5])
            merged = (batch, height // 2, width // 2, 4 * channels)
            y = d.emit("merged", relax.op.reshape(y, merged))
            x = d.layers.linear("merge", layer_norm(d, y), 2 * channels, bias=False)
    return d.linear(d.emit("pooled", relax.op.mean(layer_norm(d, x), [1, 2])), d.classes)


def _moved(d: Design, x: relax.Expr, places: int) -> relax.Expr:
    """Rows and columns moved up and left by so many places, around the border."""
    for axis in (1, 2):
        if places:
            extent = static_shape(x.ty)[axis]
            both = d.emit("cut", relax.op.split(x, [places % extent], axis))
            parts = [relax.TupleGetItem(both, 1), relax.TupleGetItem(both, 0)]
            x = d.layers.concat(d.name("moved"), parts, axis=axis)
    return x


def conformer(d: Design) -> relax.Expr:
    """Conformer (Gulati et al. 2020): attention, and convolutions of single channels, for speech."""
    x: relax.Expr = d.layers.input("x", (d.batch_size, d.length, 80))
    x = d.linear(x, d.width(144) // 8 * 8)
    width = static_shape(x.ty)[-1]
    for _ in range(2):
        x = d.add(x, _half_step(d, x, 4 * width))
        x = d.add(x, d.dropout(attention(d, layer_norm(d, x), 4), 0.1))
        x = d.add(x, _mixed_in_time(d, layer_norm(d, x)))
        x = layer_norm(d, d.add(x, _half_step(d, x, 4 * width)))
    return d.linear(d.emit("pooled", relax.op.mean(x, 1)), d.classes)


def _half_step(d: Design, x: relax.Expr, hidden: int) -> relax.Expr:
    """Half of a feed-forward layer with SiLU and dropout."""
    width = static_shape(x.ty)[-1]
    y = d.dropout(silu(d, d.linear(layer_norm(d, x), hidden)), 0.1)
    y = d.dropout(d.linear(y, width), 0.1)
    return d.emit("half", relax.op.multiply(y, relax.const(0.5, "float32")))


def _mixed_in_time(d: Design, x: relax.Expr) -> relax.Expr:
    """Gated, each channel along time, and 1x1; (batch, length, channels)."""
    width = static_shape(x.ty)[-1]
    value, gate = halves(d, d.linear(x, 2 * width), 2)
    y = d.emit("gated", relax.op.multiply(value, sigmoid(d, gate)))
    y = d.emit("turned", relax.op.permute_dims(y, [0, 2, 1]))
    weight = d.layers.weight(d.name("each_weight"), (width, 1, 15))
    y = d.emit("each", relax.op.nn.conv1d(y, weight, padding=7, groups=width))
    y = silu(d, d.norm(y))
    return d.linear(d.emit("turned", relax.op.permute_dims(y, [0, 2, 1])), width)
