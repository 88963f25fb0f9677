"""Random networks whose layers have little to do: few pixels, rows without pixels, short products."""

from __future__ import annotations

import math

from tvm import relax

from tvm_xengine.cost_models.corpus.random_elementwise import curve
from tvm_xengine.cost_models.corpus.random_layers import RandomLayers, activation
from tvm_xengine.relax_ir.types import static_shape

_MOST_ROW_ELEMENTS = 1 << 21
"""Of a tensor: 8 MiB of float32, beyond the second level cache."""

_MOST_PRODUCT_FLOPS = 1 << 25
"""Of a product, so that it is measured in some 10 ms."""


def tiny_maps(r: RandomLayers) -> relax.Expr:
    """Convolutions, mostly 1x1, between any numbers of channels on maps of one to nine pixels."""
    height = r.between(1, 3)
    width = height if r.happens(0.8) else r.between(1, 3)
    x: relax.Expr = r.layers.input("x", (r.batch_size, _channels(r), height, width))
    for _ in range(r.between(2, 4)):
        before = static_shape(x.ty)[1]
        if r.happens(0.25):
            size = int(r.rng.choice((3, 5)))
            bias = r.happens(0.3)
            x = r.layers.conv(
                r.name("each"), x, before, size, padding=size // 2, groups=before, bias=bias
            )
        else:
            size = 3 if r.happens(0.15) else 1
            x = r.layers.conv(
                r.name("mix"), x, _channels(r), size, padding=size // 2, bias=r.happens(0.3)
            )
        if r.happens(0.5):
            x = r.layers.batch_norm(r.name("norm"), x)
        if r.happens(0.7):
            x = activation(r, x)
    x = r.layers.global_avg_pool("mean", x) if r.happens(0.5) else r.layers.flatten("flat", x)
    return r.layers.linear("head", x, r.between(2, 100))


def normed_rows(r: RandomLayers) -> relax.Expr:
    """Rows, a few or thousands, with a batch norm over all of them behind fully connected layers."""
    width = _features(r)
    rows = r.batch_size * (1 << r.between(0, 9))
    rows = max(2, min(rows + r.between(0, rows // 2), _MOST_ROW_ELEMENTS // width))
    x: relax.Expr = r.layers.input("x", (rows, width))
    for _ in range(r.between(1, 3)):
        wider = _features(r)
        if rows * width * wider <= 2 * _MOST_PRODUCT_FLOPS and rows * wider <= _MOST_ROW_ELEMENTS:
            x = r.layers.linear(r.name("fc"), x, wider, bias=r.happens(0.4))
            width = wider
        x = r.layers.batch_norm(r.name("norm"), x)
        if r.happens(0.8):
            x = activation(r, x)
        if r.happens(0.2):
            x = r.layers.dropout(r.name("dropout"), x, 0.3)
    return r.layers.linear("head", x, r.between(2, 100))


def shared_products(r: RandomLayers) -> relax.Expr:
    """Weights that meet a state again and again, so that their gradients are sums of products."""
    inputs, width = _features(r), _features(r)
    rows = r.batch_size * (1 if r.happens(0.7) else r.between(2, 8))
    while rows * width * max(width, inputs) > _MOST_PRODUCT_FLOPS and rows > 1:
        rows //= 2
    x: relax.Expr = r.layers.input("x", (rows, inputs))
    parts = r.between(1, 4)
    enters = r.layers.weight("enters", (inputs, parts * width))
    again = r.layers.weight("again", (width, parts * width))
    shift = r.layers.weight("shift", (parts * width,)) if r.happens(0.6) else None
    state: relax.Expr | None = None
    for _ in range(r.between(2, 4)):
        y: relax.Expr = relax.op.matmul(x, enters)
        if state is not None:
            y = r.layers.add(r.name("sum"), y, relax.op.matmul(state, again))
        y = y if shift is None else r.layers.add(r.name("shifted"), y, shift)
        state = _joined(r, r.layers.emit(r.name("fields"), y), parts)
    assert state is not None
    return r.layers.linear("head", state, r.between(2, 100))


def _joined(r: RandomLayers, y: relax.Expr, parts: int) -> relax.Expr:
    """The product of what becomes of each part of a row."""
    if parts == 1:
        return activation(r, y)
    fields = r.layers.emit(r.name("parts"), relax.op.split(y, parts, 1))
    product = curve(r, relax.TupleGetItem(fields, 0))
    for k in range(1, parts):
        product = relax.op.multiply(product, curve(r, relax.TupleGetItem(fields, k)))
    return r.layers.emit(r.name("state"), product)


def _channels(r: RandomLayers) -> int:
    """8 to 1,600, small numbers as often as large ones."""
    return 8 * round(math.pow(200.0, r.rng.random()))


def _features(r: RandomLayers) -> int:
    """16 to 1,024, mostly a multiple of 16."""
    features = round(16 * math.pow(64.0, r.rng.random()))
    return features if r.happens(0.25) else features - features % 16
