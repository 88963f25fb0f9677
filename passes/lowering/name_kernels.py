"""Legalizations that record what a kernel computes, so that a device's library may replace it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import ir, relax, te, tirx, topi

from tvm_xengine.kernels.library.parts import name_attributes
from tvm_xengine.kernels.te.convolution import conv_data_gradient
from tvm_xengine.kernels.te.elementwise import broadcast_shape, read
from tvm_xengine.kernels.te.indexing.movement import slice_scatter
from tvm_xengine.kernels.te.linear import batch_matmul
from tvm_xengine.kernels.te.pointwise.function import (
    both,
    clipped,
    const,
    greater,
    isnan,
    lesser,
    select,
    zero,
)
from tvm_xengine.kernels.te.pooling import adaptive_avg_pool
from tvm_xengine.kernels.te.reduction import extreme, extreme_position

Legalization = Callable[[relax.BlockBuilder, ir.Call], relax.Expr]

Compute = Callable[..., te.Tensor]


def _gelu(x: te.Tensor) -> te.Tensor:
    half = tirx.const(0.5, x.dtype)
    return x * (half + half * topi.erf(x * tirx.const(0.5**0.5, x.dtype)))


def _gelu_tanh(x: te.Tensor) -> te.Tensor:
    inner = (x + x * x * x * tirx.const(0.044715, x.dtype)) * tirx.const(
        math.sqrt(2 / math.pi), x.dtype
    )
    return x * tirx.const(0.5, x.dtype) * (tirx.const(1, x.dtype) + topi.tanh(inner))


_ELEMENTWISE: dict[str, tuple[Compute, str, tuple[str, ...]]] = {
    "nn.relu": (lambda x: te.compute(x.shape, lambda *i: clipped(x(*i))), "relu", ()),
    "nn.leakyrelu": (topi.nn.leaky_relu, "leaky_relu", ("alpha",)),
    "nn.softplus": (topi.nn.softplus, "softplus", ("beta", "threshold")),
    "nn.gelu": (_gelu, "gelu", ()),
    "nn.gelu_tanh": (_gelu_tanh, "gelu_tanh", ()),
    "nn.silu": (lambda x: topi.multiply(x, topi.sigmoid(x)), "silu", ()),
    "tanh": (topi.tanh, "tir_tanh", ()),
    "sigmoid": (topi.sigmoid, "tir_sigmoid", ()),
    "exp": (topi.exp, "tir_exp", ()),
    "sqrt": (topi.sqrt, "tir_sqrt", ()),
    "log": (topi.log, "tir_log", ()),
    "abs": (topi.abs, "tir_abs", ()),
    "square": (lambda x: x * x, "tir_square", ()),
}
"""How an operator is computed, what its kernel is called, and which options it has."""


def _is_number(a: tirx.Expr) -> tirx.Expr:
    return tirx.Not(isnan(a))


def _is_finite(a: tirx.Expr) -> tirx.Expr:
    return te.abs(a) < const(float("inf"), a)


_OF_ITSELF: dict[str, Callable[[tirx.Expr], tirx.Expr]] = {
    "equal": _is_number,
    "greater_equal": _is_number,
    "less_equal": _is_number,
    "not_equal": isnan,
    "subtract": lambda a: select(_is_finite(a), 0.0, const(float("nan"), a)),
    "divide": lambda a: select(
        both(_is_finite(a), te.abs(a) > zero(a)),
        1.0,
        const(float("nan"), a),
    ),
}
"""Operators of a number and itself, which TVM simplifies as if there were neither NaN nor infinity."""

_LAYOUTS = {"NCW": "OIW", "NCHW": "OIHW", "NCDHW": "OIDHW"}
_TRANSPOSED_LAYOUTS = {"NCW": "IOW", "NCHW": "IOHW", "NCDHW": "IODHW"}


def named_legalizations() -> dict[str, Legalization]:
    """For ``relax.transform.LegalizeOps``: as its own, and the kernels carry name and options."""
    convolutions = dict.fromkeys(
        ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"), _convolution
    )
    transposed = dict.fromkeys(
        (
            "relax.nn.conv1d_transpose",
            "relax.nn.conv2d_transpose",
            "relax.nn.conv3d_transpose",
        ),
        _transposed_convolution,
    )
    return {
        **convolutions,
        **transposed,
        **{f"relax.nn.avg_pool{rank}d": _avg_pool for rank in (1, 2, 3)},
        **{f"relax.nn.adaptive_avg_pool{rank}d": _adaptive_avg_pool for rank in (1, 2, 3)},
        **{f"relax.{op}": _elementwise for op in _ELEMENTWISE},
        "relax.matmul": _matmul,
        "relax.add": _add,
        "relax.nn.softmax": _softmax,
        "relax.clip": _clip,
        **{f"relax.{op}": _of_itself for op in _OF_ITSELF},
        "relax.divide": _divide,
        "relax.maximum": _of_two,
        "relax.minimum": _of_two,
        "relax.max": _extreme,
        "relax.min": _extreme,
        "relax.argmax": _extreme_position,
        "relax.argmin": _extreme_position,
        "relax.slice_scatter": _slice_scatter,
    }


def _convolution(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    attrs = call.attrs
    if _LAYOUTS.get(attrs.data_layout) != attrs.kernel_layout or _wants_other_type(call):
        return _default(builder, call)
    strides, padding, dilation = map(_ints, (attrs.strides, attrs.padding, attrs.dilation))
    groups = int(attrs.groups)
    return builder.call_te(
        topi.nn.conv,
        call.args[0],
        call.args[1],
        stride=list(strides),
        padding=list(padding),
        dilation=list(dilation),
        groups=groups,
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        primfunc_name_hint=call.op.name.rpartition(".")[2],
        primfunc_attrs=name_attributes(
            "convolution", strides=strides, padding=padding, dilation=dilation, groups=groups
        ),
    )


def _transposed_convolution(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """The gradient of a convolution's data."""
    attrs, shape = call.attrs, _shape(call)
    if shape is None or _wants_other_type(call):
        return _default(builder, call)
    if _TRANSPOSED_LAYOUTS.get(attrs.data_layout) != attrs.kernel_layout:
        return _default(builder, call)
    options: dict[str, int | tuple[int, ...]] = {
        "data_shape": shape,
        "strides": _ints(attrs.strides),
        "padding": _ints(attrs.padding),
        "dilation": _ints(attrs.dilation),
        "groups": int(attrs.groups),
    }
    return builder.call_te(
        conv_data_gradient,
        *call.args,
        **options,
        primfunc_name_hint=call.op.name.rpartition(".")[2],
        primfunc_attrs=name_attributes(conv_data_gradient.__name__, **options),
    )


def _matmul(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    left, right = (_shape(argument) for argument in call.args)
    output = _shape(call)
    if left is None or right is None or output is None or _wants_other_type(call):
        return _default(builder, call)
    if min(len(left), len(right)) < 2:
        return _default(builder, call)
    options: dict[str, bool | tuple[int, ...]] = {
        "transpose_left": False,
        "transpose_right": False,
        "output_batch": output[:-2],
    }
    return builder.call_te(
        batch_matmul,
        *call.args,
        **options,
        primfunc_name_hint="matmul",
        primfunc_attrs=name_attributes(batch_matmul.__name__, **options),
    )


def _add(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    if not all(isinstance(argument, relax.Var) for argument in call.args):
        return _default(builder, call)
    return builder.call_te(
        topi.add, *call.args, primfunc_name_hint="add", primfunc_attrs=name_attributes("add")
    )


def _elementwise(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    if str(call.ty.dtype) not in ("float32", "float64"):
        return _default(builder, call)
    op = call.op.name.removeprefix("relax.")
    compute, hint, names = _ELEMENTWISE[op]
    options = {name: float(getattr(call.attrs, name)) for name in names}
    return builder.call_te(
        compute,
        call.args[0],
        *options.values(),
        primfunc_name_hint=hint,
        primfunc_attrs=name_attributes(op.removeprefix("nn."), **options),
    )


def _avg_pool(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    attrs = call.attrs
    if attrs.layout not in _LAYOUTS or attrs.out_layout != attrs.layout:
        return _default(builder, call)
    size, strides, padding, dilation = map(
        _ints, (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation)
    )
    counts_padding = bool(attrs.count_include_pad)
    return builder.call_te(
        (topi.nn.pool1d, topi.nn.pool2d, topi.nn.pool3d)[len(size) - 1],
        call.args[0],
        kernel=list(size),
        stride=list(strides),
        dilation=list(dilation),
        padding=list(padding),
        pool_type="avg",
        ceil_mode=bool(attrs.ceil_mode),
        layout=str(attrs.layout),
        count_include_pad=counts_padding,
        primfunc_name_hint=f"avg_pool{len(size)}d",
        primfunc_attrs=name_attributes(
            "avg_pool",
            pool_size=size,
            strides=strides,
            padding=padding,
            dilation=dilation,
            count_include_pad=counts_padding,
        ),
    )


def _adaptive_avg_pool(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    attrs, shape = call.attrs, _shape(call)
    if shape is None or attrs.layout not in _LAYOUTS or attrs.out_layout != attrs.layout:
        return _default(builder, call)
    space = shape[2:]
    name, attributes = f"adaptive_avg_pool{len(space)}d", name_attributes("adaptive_avg_pool")
    size = _shape(call.args[0])
    if size and any(extent % part for extent, part in zip(size[2:], space, strict=True)):
        return builder.call_te(
            adaptive_avg_pool,
            call.args[0],
            output_size=space,
            primfunc_name_hint=name,
            primfunc_attrs=attributes,
        )
    pools = topi.nn.adaptive_pool1d, topi.nn.adaptive_pool, topi.nn.adaptive_pool3d
    return builder.call_te(
        pools[len(space) - 1],
        call.args[0],
        space,
        "avg",
        str(attrs.layout),
        primfunc_name_hint=name,
        primfunc_attrs=attributes,
    )


def _softmax(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    axis = int(call.attrs.axis) % int(call.args[0].ty.ndim)
    return builder.call_te(
        topi.nn.softmax,
        call.args[0],
        axis,
        primfunc_name_hint="softmax",
        primfunc_attrs=name_attributes("softmax", axis=axis),
    )


def _clip(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """Bounds that let NaN through."""
    low, high = (bound.value for bound in call.args[1:])

    def clipped(x: te.Tensor) -> te.Tensor:
        def element(*i: tirx.Var) -> tirx.Expr:
            value = x(*i)
            return lesser(greater(value, const(low, value)), const(high, value))

        return te.compute(x.shape, element, name="clip")

    if "float" not in str(call.ty.dtype):
        return _default(builder, call)
    return builder.call_te(clipped, call.args[0], primfunc_name_hint="clip")


def _of_itself(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """A comparison, difference or quotient, with NaN where two equal operands give it."""
    first, second = call.args
    is_float = str(first.ty.dtype) in ("float16", "float32", "float64")
    if not (is_float and first.same_as(second)):
        return _default(builder, call)
    name = call.op.name.rpartition(".")[2]

    def made(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: _OF_ITSELF[name](x(*i)), name=name)

    return builder.call_te(made, first, primfunc_name_hint=name)


def _divide(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """A quotient; TVM refuses a zero that it knows, by which PyTorch gives infinities and NaN."""
    x, divisor = call.args
    is_float = str(x.ty.dtype) in ("float16", "float32", "float64")
    is_scalar = isinstance(divisor, ir.GenericConst) and not divisor.ty.ndim
    if not (is_float and is_scalar and float(divisor.value.numpy()) == 0):
        return _of_itself(builder, call)
    infinity = math.copysign(math.inf, float(divisor.value.numpy()))

    def divided(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i) * const(infinity, x(*i)), name="divide")

    return builder.call_te(divided, x, primfunc_name_hint="divide")


def _of_two(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """The greater or lesser of two numbers; NaN where one of them is."""
    if "float" not in str(call.ty.dtype) or _wants_other_type(call):
        return _default(builder, call)
    name = call.op.name.rpartition(".")[2]
    choose = greater if name == "maximum" else lesser
    if any(_shape(argument) is None for argument in call.args):
        return _default(builder, call)

    def chosen(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        shape = broadcast_shape(a.shape, b.shape)
        return te.compute(shape, lambda *i: choose(read(a, i), read(b, i)), name=name)

    return builder.call_te(chosen, *call.args, primfunc_name_hint=name)


def _extreme(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """The greatest or least elements along axes; NaN where one of them is."""
    shape = _shape(call.args[0])
    if shape is None or not shape:
        return _default(builder, call)
    axes = range(len(shape)) if call.attrs.axis is None else _ints(call.attrs.axis)
    name = call.op.name.rpartition(".")[2]
    return builder.call_te(
        extreme,
        call.args[0],
        axes=tuple(sorted(axis % len(shape) for axis in axes)),
        keepdims=bool(call.attrs.keepdims),
        largest=name == "max",
        primfunc_name_hint=name,
    )


def _extreme_position(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """Where they are."""
    shape = _shape(call.args[0])
    if shape is None or not shape or call.attrs.axis is None:
        return _default(builder, call)
    name = call.op.name.rpartition(".")[2]
    return builder.call_te(
        extreme_position,
        call.args[0],
        axis=int(call.attrs.axis) % len(shape),
        keepdims=bool(call.attrs.keepdims),
        largest=name == "argmax",
        dtype=str(call.ty.dtype),
        primfunc_name_hint=name,
    )


def _slice_scatter(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    """TVM's kernel reads outside the slice, and warns of that on standard error."""
    data, part, *numbers = call.args
    shape, extents = _shape(data), _shape(part)
    if shape is None or extents is None or 0 in extents:
        return _default(builder, call)
    axis = int(call.attrs.axis) % len(shape)
    begin, _, step = slice(*map(int, numbers)).indices(shape[axis])
    if step < 1:
        return _default(builder, call)
    return builder.call_te(
        slice_scatter,
        *(data, part),
        axis=axis,
        begin=begin,
        step=step,
        primfunc_name_hint="slice_scatter",
    )


def _default(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    return call.op.get_attr("FLegalize")(builder, call)


def _wants_other_type(call: ir.Call) -> bool:
    """Whether the result has another type than an operand."""
    types = {str(value.ty.dtype) for value in (*call.args, call)}
    return len(types) > 1


def _shape(value: relax.Expr) -> tuple[int, ...] | None:
    """The shape, None where it is symbolic."""
    shape = value.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return None
    if not all(isinstance(extent, tirx.IntImm) for extent in shape.values):
        return None
    return _ints(shape.values)


def _ints(values: Sequence[tirx.IntImm]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
