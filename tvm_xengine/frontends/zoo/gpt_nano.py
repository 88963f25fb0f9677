"""The smallest GPT of minGPT (Karpathy 2020): the layers of GPT-2 with 3 blocks, 3 heads, width 48."""

from __future__ import annotations

from math import sqrt

import numpy as np
from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape

_NUM_BLOCKS = 3
_NUM_HEADS = 3
_WIDTH = 48
"""As minGPT's configuration ``gpt-nano``."""


def gpt_nano(layers: Layers, tokens: relax.Expr, num_tokens: int) -> relax.Expr:
    """The logits of the next token, shape (batch * length, tokens)."""
    batch, length = static_shape(tokens.ty)
    rows = layers.embedding("tokens", tokens, num_tokens, _WIDTH)
    positions = layers.weight("positions_weight", (length, _WIDTH))
    x = layers.add("embedded", rows, positions)
    for block in range(_NUM_BLOCKS):
        name = f"block{block}"
        y = layers.layer_norm(f"{name}_norm1", x)
        x = layers.add(f"{name}_add1", x, _attention(layers, f"{name}_attention", y))
        y = layers.linear(f"{name}_fc1", layers.layer_norm(f"{name}_norm2", x), 4 * _WIDTH)
        y = layers.linear(
            f"{name}_fc2", layers.emit(f"{name}_gelu", relax.op.nn.gelu_tanh(y)), _WIDTH
        )
        x = layers.add(f"{name}_add2", x, y)
    x = layers.linear("head", layers.layer_norm("norm", x), num_tokens, bias=False)
    return layers.emit("rows", relax.op.reshape(x, (batch * length, num_tokens)))


def _attention(layers: Layers, name: str, x: relax.Expr) -> relax.Expr:
    """softmax(q k^T / sqrt(width), masked) v for every head; a token sees those before it."""
    batch, length, width = static_shape(x.ty)
    per_head = (batch, length, _NUM_HEADS, width // _NUM_HEADS)
    joint = layers.linear(f"{name}_in", x, 3 * width)
    fields = layers.emit(f"{name}_fields", relax.op.split(joint, 3, axis=-1))
    query, key, value = (
        layers.emit(
            f"{name}_{part}",
            relax.op.permute_dims(relax.op.reshape(field, per_head), [0, 2, 1, 3]),
        )
        for part, field in zip(
            ("query", "key", "value"),
            (relax.TupleGetItem(fields, k) for k in range(3)),
            strict=True,
        )
    )
    scores = relax.op.matmul(query, relax.op.permute_dims(key, [0, 1, 3, 2]))
    scaled = relax.op.multiply(scores, relax.const(1 / sqrt(width // _NUM_HEADS), "float32"))
    hidden = np.where(np.tri(length) > 0, 0.0, -1e30).astype("float32")
    masked = layers.emit(f"{name}_scores", relax.op.add(scaled, relax.const(hidden)))
    shares = layers.emit(f"{name}_shares", relax.op.nn.softmax(masked, axis=-1))
    heads = layers.emit(name, relax.op.matmul(shares, value))
    joined = relax.op.reshape(relax.op.permute_dims(heads, [0, 2, 1, 3]), (batch, length, width))
    return layers.linear(f"{name}_out", layers.emit(f"{name}_joined", joined), width)
