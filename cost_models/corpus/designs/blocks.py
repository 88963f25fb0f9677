"""Blocks that several designs share."""

from __future__ import annotations

from math import sqrt

from tvm import relax

from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.relax_ir.types import static_shape


def silu(d: Design, x: relax.Expr) -> relax.Expr:
    """x * sigmoid(x)."""
    return d.emit("silu", relax.op.nn.silu(x))


def gelu(d: Design, x: relax.Expr) -> relax.Expr:
    """x times the normal distribution's share below x."""
    return d.emit("gelu", relax.op.nn.gelu(x))


def sigmoid(d: Design, x: relax.Expr) -> relax.Expr:
    """1 / (1 + exp(-x))."""
    return d.emit("sigmoid", relax.op.sigmoid(x))


def tanh(d: Design, x: relax.Expr) -> relax.Expr:
    """The hyperbolic tangent."""
    return d.emit("tanh", relax.op.tanh(x))


def leaky_relu(d: Design, x: relax.Expr, slope: float) -> relax.Expr:
    """x above 0, and below it x times the slope."""
    return d.emit("leaky", relax.op.nn.leakyrelu(x, slope))


def hard_sigmoid(d: Design, x: relax.Expr) -> relax.Expr:
    """(x + 3) / 6, kept between 0 and 1."""
    shifted = relax.op.multiply(
        relax.op.add(x, relax.const(3.0, "float32")), relax.const(1 / 6, "float32")
    )
    return d.emit("hard", relax.op.clip(d.emit("sixth", shifted), 0.0, 1.0))


def hard_swish(d: Design, x: relax.Expr) -> relax.Expr:
    """x times its hard sigmoid (Howard et al. 2019)."""
    return d.emit("hard_swish", relax.op.multiply(x, hard_sigmoid(d, x)))


def weighted_channels(d: Design, x: relax.Expr, hidden: int, *, hard: bool = False) -> relax.Expr:
    """Squeeze and excitation (Hu et al. 2018)."""
    batch, channels = static_shape(x.ty)[:2]
    y = d.relu(d.linear(d.emit("squeezed", relax.op.mean(x, [2, 3])), hidden))
    y = d.linear(y, channels)
    y = hard_sigmoid(d, y) if hard else d.emit("gate", relax.op.sigmoid(y))
    return d.emit("weighted", relax.op.multiply(x, relax.op.reshape(y, (batch, channels, 1, 1))))


def halves(d: Design, x: relax.Expr, axis: int) -> tuple[relax.Expr, relax.Expr]:
    """Both halves of a tensor along an axis."""
    both = d.emit("split", relax.op.split(x, 2, axis))
    return relax.TupleGetItem(both, 0), relax.TupleGetItem(both, 1)


def channels_last(d: Design, x: relax.Expr) -> relax.Expr:
    """From (batch, channels, height, width) to (batch, height, width, channels)."""
    return d.emit("last", relax.op.permute_dims(x, [0, 2, 3, 1]))


def patches(d: Design, width: int) -> relax.Expr:
    """Squares of an image as vectors: (batch, places, width)."""
    x = d.layers.conv("patches", d.image(), width, 4, stride=4)
    batch, _, height, across = static_shape(x.ty)
    flat = relax.op.reshape(x, (batch, width, height * across))
    return d.emit("places", relax.op.permute_dims(flat, [0, 2, 1]))


def layer_norm(d: Design, x: relax.Expr) -> relax.Expr:
    """A norm over the last axis."""
    return d.layers.layer_norm(d.name("norm"), x)


def feed_forward(d: Design, x: relax.Expr, hidden: int) -> relax.Expr:
    """Two fully connected layers with a GELU between them."""
    width = static_shape(x.ty)[-1]
    return d.linear(gelu(d, d.linear(x, hidden)), width)


def transformer_block(d: Design, x: relax.Expr, heads: int) -> relax.Expr:
    """Attention and a feed-forward layer, each behind a norm."""
    x = d.add(x, attention(d, layer_norm(d, x), heads))
    return d.add(x, feed_forward(d, layer_norm(d, x), 4 * static_shape(x.ty)[-1]))


def attention(d: Design, x: relax.Expr, heads: int) -> relax.Expr:
    """Every place looks at every other one (Vaswani et al. 2017)."""
    batch, length, width = static_shape(x.ty)
    apart = (batch, length, heads, width // heads)
    query, key, value = (
        d.emit("turned", relax.op.permute_dims(relax.op.reshape(d.linear(x, width), apart), order))
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    return d.linear(attended(d, query, key, value), width)


def attended(
    d: Design,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    *,
    added: relax.Expr | None = None,
) -> relax.Expr:
    """Values mixed by softmax(query key), (batch, length, width).

    Parameters
    ----------
    query, value
        (batch, heads, length, width / heads).
    key
        (batch, heads, width / heads, length).
    added
        What the scores are shifted by.
    """
    batch, heads, length, each = static_shape(query.ty)
    scores = relax.op.multiply(relax.op.matmul(query, key), relax.const(1 / sqrt(each), "float32"))
    if added is not None:
        scores = relax.op.add(scores, added)
    shares = d.emit("shares", relax.op.nn.softmax(scores, axis=-1))
    joined = relax.op.permute_dims(relax.op.matmul(shares, value), [0, 2, 1, 3])
    return d.emit("joined", relax.op.reshape(joined, (batch, length, heads * each)))
