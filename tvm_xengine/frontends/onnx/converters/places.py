"""Masks, positions and the order of elements."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import helper
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.frontends.torch.aten import shapes as aten


def one_hot(node: OnnxNode) -> relax.Expr:
    """`values[1]` at the places, which may count from the end, and `values[0]` elsewhere."""
    depth = node.value(1, "the depth")
    values = node.value(2, "the values")
    if depth is None or values is None:
        raise UnsupportedModelError("the depth and the values must be given")
    count = int(depth.reshape(()))
    rank = len(node.shape()) + 1
    axis = node.integer("axis", -1) % rank
    at = relax.op.expand_dims(relax.op.astype(node.input(0), "int64"), axis)
    at = _counted_from_zero(node, at, count, "int64")
    places = np.arange(count, dtype="int64").reshape([-1 if k == axis else 1 for k in range(rank)])
    dtype = str(values.dtype)
    off, on = (literal(value, dtype) for value in values)
    return node.emit(relax.op.where(relax.op.equal(at, relax.const(places, "int64")), on, off))


def _counted_from_zero(node: OnnxNode, at: relax.Expr, extent: int, dtype: str) -> relax.Expr:
    """Places of which those below 0 count from the end."""
    wrapped = relax.op.add(at, literal(extent, dtype))
    return node.emit(relax.op.where(relax.op.less(at, literal(0, dtype)), wrapped, at))


def triangle(node: OnnxNode) -> relax.Expr:
    """What lies on one side of a diagonal of matrices, and zeros."""
    shift = node.value(1, "the diagonal")
    k = 0 if shift is None else int(shift.reshape(()))
    return aten.triangle(bool(node.integer("upper", 1)), node.builder, node.input(0), k)


def eye_like(node: OnnxNode) -> relax.Expr:
    """Ones on a diagonal."""
    code = node.integer("dtype", 0)
    dtype = str(helper.tensor_dtype_to_np_dtype(code)) if code else node.dtype()
    rows, columns = node.shape()
    return literal(np.eye(rows, columns, node.integer("k", 0)), dtype)


def reverse_sequence(node: OnnxNode) -> relax.Expr:
    """The first elements of each sequence in reverse order."""
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    return node.emit(relax.op.reverse_sequence(node.input(0), node.input(1), time, batch))


def tensor_scatter(node: OnnxNode) -> relax.Expr:
    """A cache with an update written at the places of each sequence."""
    cache, update = node.input(0), node.input(1)
    shape, cached = node.shape(1), node.shape(0)
    rank = len(shape)
    axis = node.integer("axis", -2) % rank
    steps = np.arange(shape[axis], dtype="int64")
    along = relax.const(steps.reshape([-1 if k == axis else 1 for k in range(rank)]), "int64")
    at: relax.Expr = along
    if node.has(2):
        begin = relax.op.reshape(node.input(2), [shape[0]] + [1] * (rank - 1))
        at = relax.op.add(along, begin)
    if node.text("mode", "linear") == "circular":
        at = relax.op.floor_mod(at, literal(cached[axis], "int64"))
    places = node.emit(relax.op.broadcast_to(at, shape))
    return node.emit(relax.op.scatter_elements(cache, places, update, axis))


def scatter_elements(node: OnnxNode) -> relax.Expr:
    """A tensor with elements written at places along an axis, which may count from the end."""
    data, at = node.input(0), node.input(1)
    axis = node.integer("axis", 0) % len(node.shape())
    if 0 in node.shape(1):
        return data
    places = _counted_from_zero(node, at, node.shape()[axis], node.dtype(1))
    how = node.text("reduction", "none").replace("none", "update")
    return node.emit(relax.op.scatter_elements(data, places, node.input(2), axis, how))


def depth_to_space(node: OnnxNode) -> relax.Expr:
    """Channels as places of blocks."""
    n, c, h, w = node.shape()
    b = node.integer("blocksize", 0)
    if node.text("mode", "DCR") == "DCR":
        parts, order = (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    split = node.emit(relax.op.reshape(node.input(0), parts))
    moved = node.emit(relax.op.permute_dims(split, order))
    return node.emit(relax.op.reshape(moved, (n, c // b**2, h * b, w * b)))


def space_to_depth(node: OnnxNode) -> relax.Expr:
    """Places of blocks as channels."""
    n, c, h, w = node.shape()
    b = node.integer("blocksize", 0)
    split = node.emit(relax.op.reshape(node.input(0), (n, c, h // b, b, w // b, b)))
    order = (0, 3, 5, 1, 2, 4) if node.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = node.emit(relax.op.permute_dims(split, order))
    return node.emit(relax.op.reshape(moved, (n, c * b**2, h // b, w // b)))


def compress(node: OnnxNode) -> relax.Expr:
    """The elements that a constant condition selects."""
    condition = node.value(1, "the condition, which decides the shape of the result,")
    if condition is None:
        raise UnsupportedModelError("the condition must be given")
    x = node.input(0)
    if "axis" in node.attributes:
        axis = node.integer("axis", 0) % len(node.shape())
    else:
        x, axis = node.emit(relax.op.reshape(x, (prod(node.shape()),))), 0
    chosen = np.flatnonzero(condition.reshape(-1)).astype("int64")
    return node.emit(relax.op.take(x, relax.const(chosen, "int64"), axis=axis))


def unsqueeze(node: OnnxNode) -> relax.Expr:
    """The same elements with more axes of extent one."""
    axes = node.integers(1, "axes")
    if axes is None:
        raise UnsupportedModelError("the axes must be given")
    return node.emit(relax.op.expand_dims(node.input(0), axes))


def align_rois(node: OnnxNode) -> relax.Expr | None:
    """Averages over parts of regions; the maxima of ONNX are left out."""
    if node.text("mode", "avg") != "avg":
        raise UnsupportedModelError(
            "the mode max, which ONNX takes over weighted corners and TVM over sampled points; "
            "the mode avg is known"
        )
    return None


def split(node: OnnxNode) -> relax.Expr | None:
    """Parts along an axis, some of which are empty; TVM makes all others."""
    sizes = node.integers(1, "split")
    if sizes is None or all(sizes):
        return None
    axis = node.integer("axis", 0) % len(node.shape())
    ends = [int(end) for end in np.cumsum(sizes)]
    return relax.Tuple(
        [
            node.emit(relax.op.strided_slice(node.input(0), [axis], [end - size], [end]))
            for size, end in zip(sizes, ends, strict=True)
        ]
    )


def greatest(node: OnnxNode) -> relax.Expr | None:
    """The greatest elements in order, as version 10 defines it; TVM has the others."""
    if node.opset != _COUNT_IN_INPUT:
        return None
    count = node.integers(1, "the number of elements") or []
    axis = node.integer("axis", -1)
    return node.emit(relax.op.topk(node.input(0), count[0], axis, ret_type="both", dtype="int64"))


_COUNT_IN_INPUT = 10
"""The version of TopK that has the number of elements as an input, and no order to choose."""


CONVERTERS: dict[str, Converter] = {
    "Compress": compress,
    "DepthToSpace": depth_to_space,
    "EyeLike": eye_like,
    "OneHot": one_hot,
    "RoiAlign": align_rois,
    "ReverseSequence": reverse_sequence,
    "ScatterElements": scatter_elements,
    "SpaceToDepth": space_to_depth,
    "TensorScatter": tensor_scatter,
    "Split": split,
    "TopK": greatest,
    "Trilu": triangle,
    "Unsqueeze": unsqueeze,
}
