"""Legalizations that tell what a kernel computes, so that a device's library may replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import ir, relax, tirx, topi

from tvm_xengine.libraries.parts import name_attributes
from tvm_xengine.training.kernels.convolution import conv_data_gradient
from tvm_xengine.training.kernels.linear import batch_matmul

Legalization = Callable[[relax.BlockBuilder, ir.Call], relax.Expr]

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
        "relax.matmul": _matmul,
        "relax.add": _add,
        "relax.nn.relu": _relu,
        "relax.nn.softmax": _softmax,
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


def _relu(builder: relax.BlockBuilder, call: ir.Call) -> relax.Expr:
    return builder.call_te(
        topi.nn.relu, *call.args, primfunc_name_hint="relu", primfunc_attrs=name_attributes("relu")
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
