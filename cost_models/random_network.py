"""Networks that nobody designed, for kernels of unusual shapes."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.frontends.model import ForwardModel, static_shape
from tvm_xengine.frontends.zoo.layers import Layers, build_network

_WIDTHS = (3, 5, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


def random_network(seed: int, batch_size: int) -> ForwardModel:
    """A network of random layers; equal arguments give equal networks."""
    rng = np.random.default_rng(seed)
    body = (_images, _vectors, _tokens)[int(rng.choice(3, p=(0.5, 0.25, 0.25)))]
    return build_network(f"random{seed}", seed, lambda layers: body(layers, rng, batch_size))


def _images(layers: Layers, rng: np.random.Generator, batch_size: int) -> relax.Expr:
    height, width = (int(extent) for extent in rng.integers(9, 49, 2))
    x: relax.Expr = layers.input("x", (batch_size, int(rng.integers(1, 5)), height, width))
    for number in range(int(rng.integers(2, 6))):
        x = _convolution(layers, rng, f"conv{number}", x)
        if rng.random() < 0.5:
            x = layers.batch_norm(f"norm{number}", x)
        x = _activation(layers, rng, f"act{number}", x)
        if rng.random() < 0.3 and min(static_shape(x.ty)[2:]) >= 4:
            x = layers.max_pool(f"pool{number}", x, int(rng.integers(2, 4)))
    x = layers.global_avg_pool("pool", x) if rng.random() < 0.5 else layers.flatten("flat", x)
    return layers.linear("head", x, int(rng.integers(2, 100)))


def _convolution(layers: Layers, rng: np.random.Generator, name: str, x: relax.Expr) -> relax.Expr:
    channels = static_shape(x.ty)[1]
    smallest = min(static_shape(x.ty)[2:])
    kernel = min(int(rng.choice((1, 3, 3, 5, 7))), smallest)
    is_depthwise = rng.random() < 0.25
    return layers.conv(
        name,
        x,
        channels if is_depthwise else int(rng.choice(_WIDTHS)),
        kernel,
        stride=int(rng.choice((1, 1, 2))),
        padding=int(rng.integers(0, kernel // 2 + 1)),
        groups=channels if is_depthwise else 1,
        bias=bool(rng.random() < 0.5),
    )


def _vectors(layers: Layers, rng: np.random.Generator, batch_size: int) -> relax.Expr:
    x: relax.Expr = layers.input("x", (batch_size, int(rng.integers(8, 800))))
    for number in range(int(rng.integers(1, 5))):
        x = layers.linear(f"fc{number}", x, int(rng.integers(8, 600)))
        if rng.random() < 0.3:
            x = layers.layer_norm(f"norm{number}", x)
        x = _activation(layers, rng, f"act{number}", x)
    return layers.linear("head", x, int(rng.integers(2, 100)))


def _tokens(layers: Layers, rng: np.random.Generator, batch_size: int) -> relax.Expr:
    length, width = int(rng.integers(4, 65)), int(rng.choice(_WIDTHS))
    x: relax.Expr = layers.input("x", (batch_size, length, width))
    for number in range(int(rng.integers(1, 3))):
        normed = layers.layer_norm(f"norm{number}", x)
        query, key, value = (
            layers.linear(f"{part}{number}", normed, width) for part in ("query", "key", "value")
        )
        turned = layers.emit(f"key_turned{number}", relax.op.permute_dims(key, [0, 2, 1]))
        scores = layers.emit(f"scores{number}", relax.op.matmul(query, turned))
        weights = layers.emit(f"weights{number}", relax.op.nn.softmax(scores))
        mixed = layers.emit(f"mixed{number}", relax.op.matmul(weights, value))
        x = layers.add(f"sum{number}", x, mixed)
        hidden = layers.linear(f"up{number}", x, width * int(rng.integers(1, 5)))
        hidden = _activation(layers, rng, f"act{number}", hidden)
        x = layers.add(f"out{number}", x, layers.linear(f"down{number}", hidden, width))
    pooled = layers.emit("pooled", relax.op.mean(x, 1))
    return layers.linear("head", pooled, int(rng.integers(2, 100)))


def _activation(layers: Layers, rng: np.random.Generator, name: str, x: relax.Expr) -> relax.Expr:
    ops = (relax.op.nn.relu, relax.op.nn.gelu, relax.op.nn.silu, relax.op.tanh, relax.op.sigmoid)
    return layers.emit(name, ops[int(rng.choice(len(ops), p=(0.6, 0.1, 0.1, 0.1, 0.1)))](x))
