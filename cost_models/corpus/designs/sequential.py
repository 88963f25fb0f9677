"""Designs for sequences that keep a state, or look a fixed time back."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.cost_models.corpus.designs.blocks import halves, sigmoid, tanh
from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.relax_ir.types import static_shape

_STEPS = 6
"""All steps of a layer have the same kernels."""


def lstm(d: Design) -> relax.Expr:
    """Two layers of long short-term memory (Hochreiter and Schmidhuber 1997)."""
    steps = _steps(d)
    for layer in range(2):
        width = d.width(256)
        wide = d.layers.weight(f"in{layer}", (static_shape(steps[0].ty)[1], 4 * width))
        back = d.layers.weight(f"back{layer}", (width, 4 * width))
        shift = d.layers.weight(f"shift{layer}", (4 * width, 1))
        shift = d.emit("shift", relax.op.reshape(shift, (1, 4 * width)))
        hidden: relax.Expr | None = None
        memory: relax.Expr | None = None
        outputs = []
        for x in steps:
            y = d.add(relax.op.matmul(x, wide), shift)
            y = y if hidden is None else d.add(y, relax.op.matmul(hidden, back))
            fields = d.emit("fields", relax.op.split(y, 4, 1))
            enters, stays, leaves = (sigmoid(d, relax.TupleGetItem(fields, k)) for k in range(3))
            news = relax.op.multiply(enters, tanh(d, relax.TupleGetItem(fields, 3)))
            memory = (
                d.emit("memory", news)
                if memory is None
                else d.add(relax.op.multiply(stays, memory), news)
            )
            hidden = d.emit("hidden", relax.op.multiply(leaves, tanh(d, memory)))
            outputs.append(hidden)
        steps = outputs
    return d.linear(d.dropout(steps[-1], 0.2), d.classes)


def gru(d: Design) -> relax.Expr:
    """A layer of gated recurrent units (Cho et al. 2014)."""
    steps = _steps(d)
    width = d.width(320)
    shape = (static_shape(steps[0].ty)[1], 2 * width)
    gates_in = d.layers.weight("gates", shape)
    news_in = d.layers.weight("news", (shape[0], width))
    gates_back = d.layers.weight("gates_back", (width, 2 * width))
    news_back = d.layers.weight("news_back", (width, width))
    hidden = tanh(d, relax.op.matmul(steps[0], news_in))
    one = relax.const(1.0, "float32")
    for x in steps[1:]:
        y = d.add(relax.op.matmul(x, gates_in), relax.op.matmul(hidden, gates_back))
        reset, update = halves(d, sigmoid(d, y), 1)
        y = relax.op.multiply(reset, relax.op.matmul(hidden, news_back))
        news = tanh(d, d.add(relax.op.matmul(x, news_in), y))
        kept = relax.op.multiply(update, hidden)
        hidden = d.add(kept, relax.op.multiply(relax.op.subtract(one, update), news))
    return d.linear(hidden, d.classes)


def _steps(d: Design) -> list[relax.Expr]:
    """Words as vectors, one (batch, width) for each step."""
    tokens = d.layers.input("x", (d.batch_size, _STEPS), "int64")
    rows = d.layers.embedding("tokens", tokens, 50 + 10 * d.length, d.width(192))
    parts = d.emit("steps", relax.op.split(rows, _STEPS, 1))
    shape = (d.batch_size, static_shape(rows.ty)[-1])
    return [
        d.emit("step", relax.op.reshape(relax.TupleGetItem(parts, k), shape)) for k in range(_STEPS)
    ]


def wavenet(d: Design) -> relax.Expr:
    """WaveNet (van den Oord et al. 2016): gated convolutions that look ever further back."""
    x: relax.Expr = d.layers.input("x", (d.batch_size, 1, 8 * d.length))
    channels = d.width(64)
    x = _causal(d, x, channels, 2, 1)
    y = _gated(d, x, 1)
    skipped: relax.Expr = _causal(d, y, 2 * channels, 1, 1)
    for dilation in (2, 4, 8):
        x = d.add(x, _causal(d, y, channels, 1, 1))
        y = _gated(d, x, dilation)
        skipped = d.add(skipped, _causal(d, y, 2 * channels, 1, 1))
    y = d.relu(_causal(d, d.relu(skipped), 2 * channels, 1, 1))
    return d.linear(d.emit("mean", relax.op.mean(y, [2])), d.classes)


def _gated(d: Design, x: relax.Expr, dilation: int) -> relax.Expr:
    value, gate = halves(d, _causal(d, x, 2 * static_shape(x.ty)[1], 2, dilation), 1)
    return d.emit("gated", relax.op.multiply(tanh(d, value), sigmoid(d, gate)))


def _causal(d: Design, x: relax.Expr, channels: int, kernel: int, dilation: int) -> relax.Expr:
    """A convolution over time that sees nothing later."""
    weight = d.layers.weight(d.name("causal_weight"), (channels, static_shape(x.ty)[1], kernel))
    padding = [(kernel - 1) * dilation, 0]
    value = relax.op.nn.conv1d(x, weight, padding=padding, dilation=dilation)
    return d.emit(d.name("causal"), value)
