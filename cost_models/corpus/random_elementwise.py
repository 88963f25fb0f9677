"""Layers of random networks that pass over a tensor and keep its shape."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from tvm_xengine.cost_models.corpus.random_layers import RandomLayers, activation
from tvm_xengine.relax_ir.types import static_shape


def curve(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """One elementwise function, of x alone or added to x."""
    op, nn = relax.op, relax.op.nn
    one = relax.const(1.0, "float32")
    curves: tuple[Callable[[relax.Expr], relax.Expr], ...] = (
        *(nn.silu, op.sigmoid, op.tanh, nn.gelu, nn.gelu_tanh, nn.relu, nn.softplus, nn.selu),
        *(nn.leakyrelu, op.exp, op.erf, op.sin, op.cos, op.square, op.abs, op.atan),
        lambda y: op.multiply(y, op.clip(op.add(y, one), 0.0, 1.0)),
        lambda y: op.rsqrt(op.add(op.square(y), one)),
        lambda y: op.log(op.add(op.square(y), one)),
        lambda y: op.divide(y, op.add(op.abs(y), one)),
    )
    # Those that networks are made of come more often.
    chosen = curves[r.between(0, 7) if r.happens(0.6) else r.between(0, len(curves) - 1)]
    y = r.layers.emit(r.name("curve"), chosen(x))
    return r.layers.add(r.name("sum"), x, y) if r.happens(0.25) else y


def gated(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """Each channel times what a small network makes of all of them, or times another curve."""
    if r.happens(0.5):
        return r.layers.emit(r.name("gated"), relax.op.multiply(x, curve(r, x)))
    batch, channels, *places = static_shape(x.ty)
    mean = r.layers.emit(r.name("mean"), relax.op.mean(x, list(range(2, 2 + len(places)))))
    hidden = activation(r, r.layers.linear(r.name("narrow"), mean, max(4, channels // 4)))
    gate = relax.op.sigmoid(r.layers.linear(r.name("gate"), hidden, channels))
    shape = (batch, channels, *(1 for _ in places))
    return r.layers.emit(r.name("gated"), relax.op.multiply(x, relax.op.reshape(gate, shape)))


def self_gated(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """x times a step without corners of a multiple of x: SiLU and its kin."""
    op = relax.op
    half, one = (relax.const(value, "float32") for value in (0.5, 1.0))
    steps: tuple[Callable[[relax.Expr], relax.Expr], ...] = (
        *(op.sigmoid, op.sigmoid, op.tanh, op.erf, op.atan),
        lambda y: op.tanh(op.nn.softplus(y)),
        lambda y: op.multiply(half, op.add(one, op.tanh(y))),
        lambda y: op.divide(y, op.add(op.abs(y), one)),
        lambda y: op.divide(one, op.add(one, op.exp(op.negative(y)))),
    )
    slope = relax.const(float(r.rng.choice((0.5, 1.702, 2.0))), "float32")
    y = x if r.happens(0.6) else op.multiply(slope, x)
    y = op.multiply(x, steps[r.between(0, len(steps) - 1)](y))
    return r.layers.emit(r.name("self_gated"), y)


def light(r: RandomLayers, x: relax.Expr) -> relax.Expr:
    """Something that passes over a tensor a few times and keeps its shape."""
    batch, channels, height, width = static_shape(x.ty)
    kind = r.between(0, 6)
    if kind == 0:
        return r.layers.batch_norm(r.name("norm"), x)
    if kind == 1:
        return r.layers.dropout(r.name("dropout"), x, 0.2)
    if kind == 2:
        return activation(r, x)
    if kind == 3:
        parts = relax.op.split(x, [max(1, channels // 3)], axis=1) if channels > 1 else None
        halves = [relax.TupleGetItem(parts, k) for k in (1, 0)] if parts is not None else [x]
        return r.layers.concat(r.name("concat"), halves, axis=1)
    if kind == 4:
        rows = relax.op.reshape(x, (batch, channels, height * width))
        turned = r.layers.emit(r.name("turned"), relax.op.permute_dims(rows, [0, 2, 1]))
        normed = r.layers.layer_norm(r.name("norm"), turned)
        back = relax.op.permute_dims(normed, [0, 2, 1])
        return r.layers.emit(
            r.name("back"), relax.op.reshape(back, (batch, channels, height, width))
        )
    if kind == 5:
        gate = r.layers.weight(r.name("gate"), (1, channels, 1, 1))
        return r.layers.emit(r.name("gated"), relax.op.multiply(x, gate))
    return r.layers.emit(r.name("shares"), relax.op.nn.softmax(x, axis=int(r.rng.choice((1, 3)))))
