"""Discrete Fourier transforms as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode
from tvm_xengine.frontends.torch.aten.shapes import product_along
from tvm_xengine.relax_ir.types import static_shape

_LARGEST_POINTS = 1 << 14
"""A transform of n points is a product with an n x n matrix: beyond this it holds over 1 GB."""


def transform(node: OnnxNode) -> relax.Expr:
    """The transform along an axis, its parts (real, imaginary) along the last one."""
    rank = len(node.shape())
    chosen = node.value(2, "the axis")
    axis = node.integer("axis", 1) if node.opset < 20 else -2
    axis = (axis if chosen is None else int(chosen.reshape(()))) % rank
    inverse, one_sided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    extent = node.shape()[axis]
    length = node.value(1, "the length")
    points = 2 * (extent - 1) if inverse and one_sided else extent
    points = points if length is None else int(length.reshape(()))
    parts = _parts(node, node.input(0))
    return _transformed(node, parts, axis, points, inverse=inverse, one_sided=one_sided)


def short_transform(node: OnnxNode) -> relax.Expr:
    """Transforms of windows over a signal (batch, length, parts)."""
    signal = node.input(0)
    step = node.value(1, "the distances of the windows")
    if step is None:
        raise UnsupportedModelError("the distance of the windows must be given")
    length = node.value(3, "the lengths of the windows")
    size = int(length.reshape(())) if length is not None else node.shape(2)[0]
    begins = np.arange(0, node.shape()[1] - size + 1, int(step.reshape(())))
    places = relax.const(begins[:, None] + np.arange(size), "int64")
    frames = node.emit(relax.op.take(signal, places, axis=1))
    parts = _parts(node, frames)
    if node.has(2):
        parts = [
            None if part is None else node.emit(relax.op.multiply(part, node.input(2)))
            for part in parts
        ]
    one_sided = bool(node.integer("onesided", 1))
    return _transformed(node, parts, 2, size, inverse=False, one_sided=one_sided)


def _parts(node: OnnxNode, x: relax.Expr) -> list[relax.Expr | None]:
    """The real part, and the imaginary one of what is complex, without their axis."""
    *lead, count = static_shape(x.ty)
    if count == 1:
        return [node.emit(relax.op.reshape(x, lead)), None]
    pair = node.emit(relax.op.split(x, 2, axis=-1))
    return [
        node.emit(relax.op.reshape(node.emit(relax.TupleGetItem(pair, k)), lead)) for k in (0, 1)
    ]


def _transformed(
    node: OnnxNode,
    parts: list[relax.Expr | None],
    axis: int,
    points: int,
    *,
    inverse: bool,
    one_sided: bool,
) -> relax.Expr:
    real, imaginary = parts
    assert real is not None
    if points > _LARGEST_POINTS:
        raise UnsupportedModelError(f"a transform of {points} points; {_LARGEST_POINTS} at most")
    extent = static_shape(real.ty)[axis]
    cosines, sines = _matrices(extent, points, inverse=inverse, one_sided=one_sided)
    seen = [product_along(node.builder, real, axis, one) for one in (cosines, sines)]
    if imaginary is not None:
        less, more = (product_along(node.builder, imaginary, axis, m) for m in (sines, cosines))
        seen[0] = node.emit(relax.op.subtract(seen[0], less))
        seen[1] = node.emit(relax.op.add(seen[1], more))
    if inverse and one_sided:
        return node.emit(relax.op.expand_dims(seen[0], -1))
    return node.emit(relax.op.stack(seen, axis=-1))


def _matrices(
    extent: int, points: int, *, inverse: bool, one_sided: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary parts of exp(-+ 2 pi i n k / points), shape (extent, bins).

    What lies behind `points` does not count; what is missing is zero.
    """
    half = points // 2 + 1
    bins = half if one_sided and not inverse else points
    n, k = np.arange(extent)[:, None], np.arange(bins)
    # The product modulo `points` keeps the angles small, and so exact.
    angle = 2 * np.pi * ((n * k) % points) / points * (1 if inverse else -1)
    weight = (n < points).astype(np.float64)
    if inverse:
        weight /= points
        if one_sided:
            # The other half is the conjugate: all but the first and the middle one count twice.
            single = (n == 0) | ((points % 2 == 0) & (n == points // 2))
            weight *= np.where(single, 1, 2) * (n < half)
    return np.cos(angle) * weight, np.sin(angle) * weight


CONVERTERS: dict[str, Converter] = {"DFT": transform, "STFT": short_transform}
