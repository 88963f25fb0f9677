"""Quantized numbers and products of them."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from onnx import helper
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.converters.casts import rounded
from tvm_xengine.frontends.onnx.graphs.quantized import JOINED
from tvm_xengine.frontends.onnx.narrow_types import NARROW, numpy_type
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.relax_ir.integer_ops import DEQUANTIZE, QUANTIZE, integer_call
from tvm_xengine.relax_ir.matrix_ops import value_and_change
from tvm_xengine.relax_ir.types import constant_value, static_shape

_BYTES = ("int8", "uint8")
_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}


def quantize(node: OnnxNode) -> relax.Expr:
    """saturate(round(x / scale) + zero point), by tensor, by axis or by block."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    dtype = _named_type(node, "output_dtype") or ("uint8" if zero is None else node.dtype(2))
    narrow = node.text(NARROW, "")
    plain = None if narrow or dtype not in _BYTES else _numbers(node, scale, zero)
    if plain is not None and node.dtype() == "float32":
        return integer_call(QUANTIZE, [x], *plain, *(() if dtype == "int8" else (0,)))
    computed_in = str(scale.ty.dtype)
    x = x if node.dtype() == computed_in else relax.op.astype(x, computed_in)
    scaled = relax.op.divide(x, _along(node, scale, node.shape()))
    points = None if zero is None else _along(node, zero, node.shape())
    if narrow.startswith("FLOAT"):
        if points is not None:
            scaled = relax.op.add(scaled, relax.op.astype(points, computed_in))
        saturate = bool(node.integer("saturate", 1))
        return rounded(node, node.emit(scaled), narrow, saturate=saturate)
    limits = ml_dtypes.iinfo(numpy_type(narrow) if narrow else dtype)  # type: ignore[no-untyped-call]
    bounds = int(limits.min), int(limits.max)
    return _saturated(node, relax.op.round(scaled), points, dtype, bounds)


def _saturated(
    node: OnnxNode,
    whole: relax.Expr,
    zero: relax.Expr | None,
    dtype: str,
    bounds: tuple[int, int] | None = None,
) -> relax.Expr:
    """Whole numbers plus a zero point, kept within the range of an integer type."""
    least, most = bounds or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    wide = relax.op.astype(relax.op.clip(whole, -(2.0**30), 2.0**30), "int32")
    if zero is not None:
        wide = relax.op.add(wide, relax.op.astype(zero, "int32"))
    lowest, highest = literal(least, "int32"), literal(most, "int32")
    kept = relax.op.minimum(relax.op.maximum(wide, lowest), highest)
    return node.emit(relax.op.astype(kept, dtype))


def dequantize(node: OnnxNode) -> relax.Expr:
    """(x - zero point) * scale, by tensor, by axis or by block.

    Of a number that was quantized before (the input that `join_pairs` adds) the gradient is 1 unless
    it was saturated.
    """
    made = node.emit(_dequantized(node))
    real = node.optional(JOINED)
    if real is None or node.dtype() not in _BYTES or str(real.ty.dtype) != str(made.ty.dtype):
        return made
    shape = node.shape()
    scaled = relax.op.round(relax.op.divide(real, _along(node, node.input(1), shape)))
    zero = node.optional(2)
    if zero is not None:
        point = relax.op.astype(_along(node, zero, shape), str(real.ty.dtype))
        scaled = relax.op.add(scaled, point)
    limits = np.iinfo(node.dtype())
    fixed = node.emit(relax.op.grad.no_grad(node.emit(scaled)))
    inside = relax.op.logical_and(
        relax.op.greater_equal(fixed, literal(limits.min, str(real.ty.dtype))),
        relax.op.less_equal(fixed, literal(limits.max, str(real.ty.dtype))),
    )
    change = relax.op.where(node.emit(inside), real, literal(0, str(real.ty.dtype)))
    return node.emit(value_and_change(made, node.emit(change)))


def _dequantized(node: OnnxNode) -> relax.Expr:
    scale, zero = node.input(1), node.optional(2)
    dtype = _named_type(node, "output_dtype") or str(scale.ty.dtype)
    plain = None if node.dtype() not in _BYTES else _numbers(node, scale, zero)
    if plain is not None and dtype == "float32" and not node.text(NARROW, ""):
        return integer_call(DEQUANTIZE, [node.input(0)], *plain)
    exact = str(scale.ty.dtype) if "float" in node.dtype() else "int32"
    x = relax.op.astype(node.input(0), exact)
    if zero is not None:
        x = relax.op.subtract(x, relax.op.astype(_along(node, zero, node.shape()), exact))
    factor = _along(node, scale, node.shape())
    made = relax.op.multiply(relax.op.astype(x, str(scale.ty.dtype)), factor)
    return node.emit(made if dtype == str(scale.ty.dtype) else relax.op.astype(made, dtype))


def _numbers(
    node: OnnxNode, scale: relax.Expr, zero: relax.Expr | None
) -> tuple[float, int] | None:
    """Scale and zero point of a whole tensor, where the file says them; None of others."""
    factor = constant_value(scale)
    point = np.zeros(1, "int8") if zero is None else constant_value(zero)
    if factor is None or point is None or factor.size != 1 or factor.dtype != np.float32:
        return None
    if not factor.item() > 0:
        return None
    return factor.item(), int(point.item())


def _named_type(node: OnnxNode, name: str) -> str:
    """The type that an attribute names; empty where none does."""
    code = node.integer(name, 0)
    return str(np.dtype(helper.tensor_dtype_to_np_dtype(code))) if code else ""


def _along(node: OnnxNode, value: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """One number for all, or one for each place along the axis, or one for each block of it."""
    own = static_shape(value.ty)
    if not own or own == (1,):
        return node.emit(relax.op.reshape(value, ())) if own else value
    axis = node.integer("axis", 1) % len(shape)
    block = node.integer("block_size", 0)
    if len(own) == 1 and not block:
        return node.emit(
            relax.op.reshape(value, [own[0] if k == axis else 1 for k in range(len(shape))])
        )
    if block:
        value = node.emit(relax.op.repeat(value, block, axis))
        if static_shape(value.ty)[axis] > shape[axis]:
            value = node.emit(relax.op.strided_slice(value, [axis], [0], [shape[axis]]))
    return value


def quantized_product(node: OnnxNode) -> relax.Expr:
    """The product of quantized matrices, quantized."""
    left = _centred(node, 0, 2, row=True)
    right = _centred(node, 3, 5, row=False)
    made = relax.op.matmul(left, right)
    scales = relax.op.multiply(_scale(node, 1, row=True), _scale(node, 4, row=False))
    return _requantized(node, made, relax.op.divide(scales, _scale(node, 6, row=True)), 7)


def _scale(node: OnnxNode, position: int, *, row: bool) -> relax.Expr:
    value = relax.op.astype(node.input(position), "float32")
    return _beside(node, value, node.shape(position), row=row)


def _centred(node: OnnxNode, position: int, zero: int, *, row: bool) -> relax.Expr:
    x = relax.op.astype(node.input(position), "int32")
    if not node.has(zero):
        return node.emit(x)
    point = relax.op.astype(node.input(zero), "int32")
    return node.emit(relax.op.subtract(x, _beside(node, point, node.shape(zero), row=row)))


def _beside(node: OnnxNode, value: relax.Expr, shape: tuple[int, ...], *, row: bool) -> relax.Expr:
    """One number for each row (or column) of a matrix as a column (or row)."""
    if len(shape) == 1:
        shape = (shape[0], 1) if row and shape[0] > 1 else (1, shape[0])
        value = relax.op.reshape(value, () if shape == (1, 1) else shape)
    return node.emit(value)


def _requantized(node: OnnxNode, sums: relax.Expr, factor: relax.Expr, zero: int) -> relax.Expr:
    scaled = relax.op.multiply(relax.op.astype(sums, "float32"), factor)
    return _saturated(node, relax.op.round(scaled), node.input(zero), node.dtype(zero))


def integer_convolution(node: OnnxNode) -> relax.Expr:
    """The convolution of integers after subtracting their zero points."""
    x = _centred(node, 0, 2, row=True)
    return _convolved(node, x, _centred_filters(node, 1, 3, len(node.shape())))


def _centred_filters(node: OnnxNode, position: int, zero: int, rank: int) -> relax.Expr:
    """Filters without their zero points, of which there may be one for each."""
    filters = relax.op.astype(node.input(position), "int32")
    if not node.has(zero):
        return node.emit(filters)
    points = relax.op.astype(node.input(zero), "int32")
    points = _by_channel(node, points, node.shape(zero), rank, 0)
    return node.emit(relax.op.subtract(filters, points))


def quantized_convolution(node: OnnxNode) -> relax.Expr:
    """The convolution of quantized images, quantized."""
    rank = len(node.shape())
    x = _centred(node, 0, 2, row=True)
    sums = _convolved(node, x, _centred_filters(node, 3, 5, rank))
    if node.has(8):
        sums = relax.op.add(sums, _by_channel(node, node.input(8), node.shape(8), rank, 1))
    by_filter = relax.op.astype(node.input(4), "float32")
    scales = relax.op.multiply(
        _scale(node, 1, row=True), _by_channel(node, by_filter, node.shape(4), rank, 1)
    )
    return _requantized(node, sums, relax.op.divide(scales, _scale(node, 6, row=True)), 7)


def _by_channel(
    node: OnnxNode, value: relax.Expr, shape: tuple[int, ...], rank: int, axis: int
) -> relax.Expr:
    count = shape[0] if shape else 1
    return node.emit(relax.op.reshape(value, [count if k == axis else 1 for k in range(rank)]))


def _convolved(node: OnnxNode, x: relax.Expr, weight: relax.Expr) -> relax.Expr:
    rank = len(static_shape(x.ty)) - 2
    if rank not in _CONVOLUTIONS:
        raise UnsupportedModelError(f"a convolution over {rank} axes")
    return node.emit(
        _CONVOLUTIONS[rank](
            x,
            weight,
            list(node.attributes.get("strides", [1] * rank)),  # type: ignore[call-overload]
            list(node.attributes.get("pads", [0] * 2 * rank)),  # type: ignore[call-overload]
            list(node.attributes.get("dilations", [1] * rank)),  # type: ignore[call-overload]
            node.integer("group", 1),
        )
    )


CONVERTERS: dict[str, Converter] = {
    "ConvInteger": integer_convolution,
    "DequantizeLinear": dequantize,
    "QLinearConv": quantized_convolution,
    "QLinearMatMul": quantized_product,
    "QuantizeLinear": quantize,
}
