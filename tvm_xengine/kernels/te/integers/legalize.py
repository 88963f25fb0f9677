"""Operators on int8 for TVM's ``LegalizeOps``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tvm import relax, te

from tvm_xengine.kernels.library.parts import name_attributes
from tvm_xengine.kernels.te.integers import products, rounding, windows
from tvm_xengine.kernels.te.integers.rounding import Rounding
from tvm_xengine.kernels.te.integers.windows import Window
from tvm_xengine.relax_ir import integer_ops as ops
from tvm_xengine.relax_ir.own_ops import options_of
from tvm_xengine.relax_ir.types import static_shape

Kernel = partial[te.Tensor]

_OPAQUE_PATTERN = 8
"""TVM's ``OpPatternKind.kOpaque``: int8 tensors stay apart, so that the plan may keep them instead of
what is made of them in float32."""


def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The kernel of a call."""
    kernel = _KERNELS[call.op.name](call)
    tensors = [one for one in call.args if isinstance(one.ty, relax.TensorType)]
    name = kernel.func.__name__
    attrs = {"op_pattern": _OPAQUE_PATTERN, **name_attributes(name)}
    return builder.call_te(kernel, *tensors, primfunc_name_hint=name, primfunc_attrs=attrs)


def _quantize(call: relax.Call) -> Kernel:
    scale, zero, *signed = options_of(call)
    is_signed = int(signed[0]) if signed else 1
    return partial(rounding.quantize, scale=scale, zero=int(zero), signed=is_signed)


def _dequantize(call: relax.Call) -> Kernel:
    scale, zero = options_of(call)
    return partial(rounding.dequantize, scale=scale, zero=int(zero))


def _dequantize_channels(call: relax.Call) -> Kernel:
    return partial(rounding.dequantize_channels, axis=ops.whole_options(call)[0])


def _rounding(numbers: Sequence[float]) -> Rounding:
    zero, lowest, highest = (int(number) for number in numbers[-3:])
    return Rounding(zero, lowest, highest)


def _convolution(call: relax.Call) -> Kernel:
    numbers = ops.whole_options(call)
    shape, extents = static_shape(call.ty), static_shape(call.args[1].ty)[2:]
    rank = len(extents)
    return partial(
        products.integer_convolution,
        window=_window(extents, numbers, outside=numbers[4 * rank + 1]),
        rounding=_rounding(numbers),
        output_shape=shape,
    )


def _window(extents: tuple[int, ...], moves: Sequence[int], outside: int) -> Window:
    """From strides, padding and dilation, one behind the other."""
    rank = len(extents)
    strides, padding = tuple(moves[:rank]), tuple(moves[rank : 3 * rank])
    return Window(extents, strides, padding, tuple(moves[3 * rank : 4 * rank]), outside)


def _dense(call: relax.Call) -> Kernel:
    return partial(products.integer_dense, rounding=_rounding(options_of(call)))


def _add(call: relax.Call) -> Kernel:
    left, right, left_factor, right_factor, *numbers = options_of(call)
    return partial(
        products.integer_sum,
        zeros=(int(left), int(right)),
        factors=(left_factor, right_factor),
        rounding=_rounding(numbers),
        output_shape=static_shape(call.ty),
    )


def _multiply(call: relax.Call) -> Kernel:
    left, right, factor, *numbers = options_of(call)
    return partial(
        products.integer_product,
        zeros=(int(left), int(right)),
        factor=factor,
        rounding=_rounding(numbers),
        output_shape=static_shape(call.ty),
    )


def _lookup(_call: relax.Call) -> Kernel:
    return partial(rounding.lookup)


def _max_pool(call: relax.Call) -> Kernel:
    shape, numbers = static_shape(call.ty), ops.whole_options(call)
    rank = len(shape) - 2
    extents, moves = numbers[rank : 2 * rank], numbers[2 * rank :]
    window = _window(extents, moves, outside=-128)
    return partial(windows.integer_max_pool, window=window, output_shape=shape)


def _mean_pool(call: relax.Call) -> Kernel:
    shape = static_shape(call.ty)
    rank = len(shape) - 2
    *numbers, data_zero, factor, zero = options_of(call)[rank:]
    whole = tuple(int(number) for number in numbers)
    return partial(
        windows.integer_mean_pool,
        window=_window(whole[:rank], (*whole[rank:], *(1,) * rank), outside=int(data_zero)),
        factor=factor,
        rounding=Rounding(int(zero)),
        output_shape=shape,
    )


_KERNELS: dict[str, Callable[[relax.Call], Kernel]] = {
    ops.QUANTIZE: _quantize,
    ops.DEQUANTIZE: _dequantize,
    ops.DEQUANTIZE_CHANNELS: _dequantize_channels,
    ops.CONVOLUTION: _convolution,
    ops.DENSE: _dense,
    ops.ADD: _add,
    ops.MULTIPLY: _multiply,
    ops.LOOKUP: _lookup,
    ops.MAX_POOL: _max_pool,
    ops.MEAN_POOL: _mean_pool,
}
