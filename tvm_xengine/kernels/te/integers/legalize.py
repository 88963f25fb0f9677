"""Operators on int8 for TVM's ``LegalizeOps``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import relax, te

from tvm_xengine.kernels.library.parts import name_attributes
from tvm_xengine.kernels.te.integers import products, rounding, windows
from tvm_xengine.relax_ir import integer_ops as ops
from tvm_xengine.relax_ir.own_ops import options_of
from tvm_xengine.relax_ir.types import static_shape

Kernel = Callable[..., te.Tensor]
Options = dict[str, int | float | tuple[int, ...] | tuple[float, ...]]

_OPAQUE_PATTERN = 8
"""TVM's ``OpPatternKind.kOpaque``: int8 tensors stay apart, so that the plan may keep them instead of
what is made of them in float32."""


def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The kernel of a call."""
    kernel, options = _OPTIONS[call.op.name](call)
    tensors = [one for one in call.args if isinstance(one.ty, relax.TensorType)]
    name = kernel.__name__
    attrs = {"op_pattern": _OPAQUE_PATTERN, **name_attributes(name, **options)}
    return builder.call_te(
        partial(kernel, **options), *tensors, primfunc_name_hint=name, primfunc_attrs=attrs
    )


def _quantize(call: relax.Call) -> tuple[Kernel, Options]:
    scale, zero, *signed = options_of(call)
    return rounding.quantize, {
        "scale": scale,
        "zero": int(zero),
        "signed": int(signed[0]) if signed else 1,
    }


def _dequantize(call: relax.Call) -> tuple[Kernel, Options]:
    scale, zero = options_of(call)
    return rounding.dequantize, {"scale": scale, "zero": int(zero)}


def _dequantize_channels(call: relax.Call) -> tuple[Kernel, Options]:
    return rounding.dequantize_channels, {"axis": ops.whole_options(call)[0]}


def _bounds(numbers: tuple[int, ...]) -> Options:
    return dict(zip(("zero", "lowest", "highest"), numbers[-3:], strict=True))


def _convolution(call: relax.Call) -> tuple[Kernel, Options]:
    numbers = ops.whole_options(call)
    shape = static_shape(call.ty)
    rank = len(shape) - 2
    return products.integer_convolution, {
        "strides": numbers[:rank],
        "padding": numbers[rank : 3 * rank],
        "dilation": numbers[3 * rank : 4 * rank],
        "groups": numbers[4 * rank],
        "outside": numbers[4 * rank + 1],
        **_bounds(numbers),
        "output_shape": shape,
    }


def _dense(call: relax.Call) -> tuple[Kernel, Options]:
    return products.integer_dense, _bounds(ops.whole_options(call))


def _add(call: relax.Call) -> tuple[Kernel, Options]:
    left, right, left_factor, right_factor, *bounds = options_of(call)
    return products.integer_sum, {
        "zeros": (int(left), int(right)),
        "factors": (left_factor, right_factor),
        **_bounds(tuple(int(bound) for bound in bounds)),
        "output_shape": static_shape(call.ty),
    }


def _multiply(call: relax.Call) -> tuple[Kernel, Options]:
    left, right, factor, *bounds = options_of(call)
    return products.integer_product, {
        "zeros": (int(left), int(right)),
        "factor": factor,
        **_bounds(tuple(int(bound) for bound in bounds)),
        "output_shape": static_shape(call.ty),
    }


def _lookup(_call: relax.Call) -> tuple[Kernel, Options]:
    return rounding.lookup, {}


def _max_pool(call: relax.Call) -> tuple[Kernel, Options]:
    shape = static_shape(call.ty)
    rank = len(shape) - 2
    numbers = ops.whole_options(call)[rank:]
    return windows.integer_max_pool, {
        "window": numbers[:rank],
        "strides": numbers[rank : 2 * rank],
        "padding": numbers[2 * rank : 4 * rank],
        "dilation": numbers[4 * rank : 5 * rank],
        "output_shape": shape,
    }


def _mean_pool(call: relax.Call) -> tuple[Kernel, Options]:
    shape = static_shape(call.ty)
    rank = len(shape) - 2
    *numbers, data_zero, factor, zero = options_of(call)[rank:]
    whole = tuple(int(number) for number in numbers)
    return windows.integer_mean_pool, {
        "window": whole[:rank],
        "strides": whole[rank : 2 * rank],
        "padding": whole[2 * rank : 4 * rank],
        "data_zero": int(data_zero),
        "factor": factor,
        "zero": int(zero),
        "output_shape": shape,
    }


_OPTIONS: dict[str, Callable[[relax.Call], tuple[Kernel, Options]]] = {
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
