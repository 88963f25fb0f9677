"""Clipping, padding, cutting and repeating."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.relax_ir.types import constant_value, static_shape


def clip(node: OnnxNode) -> relax.Expr:
    """min(max(x, low), high), either of which may be missing; attributes before version 11."""
    x, dtype = node.input(0), node.dtype()
    bounds = [_bound(node, 1, "min"), _bound(node, 2, "max")]
    values = [None if bound is None else constant_value(bound) for bound in bounds]
    known = all(b is None or v is not None for b, v in zip(bounds, values, strict=True))
    if not known or "float" not in dtype:
        low, high = bounds
        x = x if low is None else node.emit(relax.op.maximum(x, low))
        return x if high is None else node.emit(relax.op.minimum(x, high))
    limits = np.finfo(dtype)
    least, most = (
        fallback if value is None or np.isnan(value) else float(value.reshape(()))
        for value, fallback in zip(values, (float(limits.min), float(limits.max)), strict=True)
    )
    return node.emit(relax.op.clip(x, min(least, most), most))


def _bound(node: OnnxNode, position: int, name: str) -> relax.Expr | None:
    given = node.optional(position)
    if given is None and name in node.attributes:
        return literal(node.attributes[name], node.dtype())
    return given


def tile(node: OnnxNode) -> relax.Expr:
    """Repeats as often as constants say."""
    repeats = node.integers(1, "repeats")
    if repeats is None:
        raise UnsupportedModelError("the repeats are missing")
    return node.emit(relax.op.tile(node.input(0), tuple(repeats)))


def pad(node: OnnxNode) -> relax.Expr:
    """Borders of constant width (attributes before version 11), some of which may cut off."""
    x = node.input(0)
    rank = len(static_shape(x.ty))
    numbers = node.integers(1, "pads")
    if numbers is None:
        raise UnsupportedModelError("the widths of the borders are missing")
    chosen = node.integers(3, "axes")
    fill = node.value(2, "values")
    value = node.number("value", 0.0) if fill is None else float(fill.reshape(-1)[0])
    pairs = np.zeros((rank, 2), int)
    pairs[[axis % rank for axis in (range(rank) if chosen is None else chosen)]] = np.reshape(
        numbers, (2, -1)
    ).T
    if (pairs < 0).any():
        ends = [
            extent + min(0, int(b))
            for extent, (_, b) in zip(static_shape(x.ty), pairs, strict=True)
        ]
        begins = [max(0, -int(a)) for a, _ in pairs]
        x = node.emit(relax.op.strided_slice(x, list(range(rank)), begins, ends))
        pairs = np.maximum(pairs, 0)
    known = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    mode = node.text("mode", "constant")
    if mode not in known:
        raise UnsupportedModelError(f"mode {mode}; known are {list(known)}")
    widths = [int(width) for width in pairs.ravel()]
    return node.emit(relax.op.nn.pad(x, widths, known[mode], value))


def slice_of(node: OnnxNode) -> relax.Expr | None:
    """A part, with bounds in attributes as before version 10; TVM takes those in inputs."""
    if "starts" not in node.attributes:
        return None
    starts, ends = node.integers(1, "starts") or [], node.integers(2, "ends") or []
    axes = node.integers(3, "axes")
    axes = list(range(len(starts))) if axes is None else axes
    return node.emit(relax.op.strided_slice(node.input(0), axes, starts, ends))


def expand(node: OnnxNode) -> relax.Expr:
    """Repeats along axes of extent one, of the tensor or of a constant shape."""
    shape = np.broadcast_shapes(node.shape(), tuple(node.integers(1, "the shape") or ()))
    return node.emit(relax.op.broadcast_to(node.input(0), shape))


CONVERTERS: dict[str, Converter] = {
    "Clip": clip,
    "Expand": expand,
    "Pad": pad,
    "Slice": slice_of,
    "Tile": tile,
}
