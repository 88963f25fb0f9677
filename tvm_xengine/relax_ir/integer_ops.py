"""Operators on tensors of int8 that stand for real numbers, registered with TVM.

A tensor ``q`` with scale ``s`` and zero point ``z`` stands for ``s * (q - z)``. Sums of products are exact in
int32; one multiplication in float32 brings them to the scale of the result, rounded half to even, as ONNX
Runtime does. What they compute is said in :mod:`tvm_xengine.kernels.te.integers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import ir, relax, tirx
from tvm.ir.op import register_op_attr

from tvm_xengine.relax_ir.own_ops import PREFIX, legalized_in, options_of
from tvm_xengine.relax_ir.types import static_shape

QUANTIZE = PREFIX + "quantize"
DEQUANTIZE = PREFIX + "dequantize"
DEQUANTIZE_CHANNELS = PREFIX + "dequantize_channels"
CONVOLUTION = PREFIX + "integer_convolution"
DENSE = PREFIX + "integer_dense"
ADD = PREFIX + "integer_add"
MULTIPLY = PREFIX + "integer_multiply"
LOOKUP = PREFIX + "integer_lookup"
MAX_POOL = PREFIX + "integer_max_pool"
MEAN_POOL = PREFIX + "integer_mean_pool"

Number = int | float


def integer_call(op: str, tensors: Sequence[relax.Expr], *numbers: Number) -> relax.Call:
    """A call of one of the operators on tensors, with numbers behind them."""
    return relax.Call(ir.Op.get(op), [*tensors, *(_prim(number) for number in numbers)])


def _prim(value: Number) -> relax.Expr:
    if isinstance(value, int):
        return relax.prim_value(tirx.IntImm("int64", value))
    return relax.prim_value(tirx.FloatImm("float64", float(value)))


def whole_options(call: relax.Call) -> tuple[int, ...]:
    """The numbers of a call whose numbers are whole."""
    return tuple(int(number) for number in options_of(call))


def _quantized_type(call: relax.Call) -> relax.TensorType:
    signed = options_of(call)[2:] != (0.0,)
    return relax.TensorType(static_shape(call.args[0].ty), "int8" if signed else "uint8")


def _real_type(call: relax.Call) -> relax.TensorType:
    return relax.TensorType(static_shape(call.args[0].ty), "float32")


def _same_type(call: relax.Call) -> relax.TensorType:
    return relax.TensorType(static_shape(call.args[0].ty), "int8")


def _broadcast_type(call: relax.Call) -> relax.TensorType:
    shape = np.broadcast_shapes(*(static_shape(operand.ty) for operand in call.args[:2]))
    return relax.TensorType(shape, "int8")


def _dense_type(call: relax.Call) -> relax.TensorType:
    data, weight = (static_shape(operand.ty) for operand in call.args[:2])
    return relax.TensorType((*data[:-1], weight[0]), "int8")


def _convolution_type(call: relax.Call) -> relax.TensorType:
    data, weight = (static_shape(operand.ty) for operand in call.args[:2])
    rank = len(data) - 2
    numbers = whole_options(call)
    strides, padding = numbers[:rank], numbers[rank : 3 * rank]
    dilation = numbers[3 * rank : 4 * rank]
    space = tuple(
        (data[2 + a] + padding[a] + padding[a + rank] - dilation[a] * (weight[2 + a] - 1) - 1)
        // strides[a]
        + 1
        for a in range(rank)
    )
    return relax.TensorType((data[0], weight[0], *space), "int8")


def _pool_type(call: relax.Call) -> relax.TensorType:
    data = static_shape(call.args[0].ty)
    space = whole_options(call)[: len(data) - 2]  # the extents of the result come first
    return relax.TensorType((*data[:2], *space), "int8")


_TYPES: dict[str, Callable[[relax.Call], relax.TensorType]] = {
    QUANTIZE: _quantized_type,
    DEQUANTIZE: _real_type,
    DEQUANTIZE_CHANNELS: _real_type,
    CONVOLUTION: _convolution_type,
    DENSE: _dense_type,
    ADD: _broadcast_type,
    MULTIPLY: _broadcast_type,
    LOOKUP: _same_type,
    MAX_POOL: _pool_type,
    MEAN_POOL: _pool_type,
}
INTEGER_OPS = tuple(_TYPES)


def _infer(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
    return _TYPES[call.op.name](call)


# TVM looks operators up by name in one registry per process, so importing this module fills it.
for _name in INTEGER_OPS:
    register_op_attr(_name, "FInferType", _infer)
    register_op_attr(_name, "FPurity", True)
    register_op_attr(_name, "FLegalize", legalized_in("tvm_xengine.kernels.te.integers.legalize"))
