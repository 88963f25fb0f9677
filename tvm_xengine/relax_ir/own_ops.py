"""Operators that Relax lacks, registered with TVM: one function of elements, one operator.

An activation of a framework that is one operator here has one kernel forwards and one backwards, with
the framework's values and derivatives at kinks, infinities and NaN. What they compute is said in
:mod:`tvm_xengine.kernels.te.pointwise`, from which passes take kernels and training takes gradients.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import tvm
from tvm import ir, relax
from tvm.ir.op import register_op_attr

from tvm_xengine.relax_ir.types import static_shape

PREFIX = "tvm_xengine."

POINTWISE_OPS = (
    *("abs_power", "bessel_j0", "bessel_j1", "bessel_k0", "bessel_k1", "bessel_y0", "bessel_y1"),
    *("binary_cross_entropy", "clamp", "clamp_max", "clamp_min", "clamp_to"),
    *(
        "copysign",
        "digamma",
        "elu",
        "entr",
        "erfc",
        "erfcx",
        "erfinv",
        "exp2",
        "expm1",
        "float_power",
    ),
    *("floor_divide", "fmax", "fmin", "fmod", "frexp_exponent", "frexp_mantissa"),
    *("hardshrink", "hardsigmoid", "hardswish"),
    *("hardtanh", "huber", "hypot", "i0", "i0e", "i1", "i1e", "leaky_relu", "lgamma", "log10"),
    *(
        "log1p",
        "log2",
        "log_ndtr",
        "logaddexp",
        "logaddexp2",
        "logit",
        "logsigmoid",
        "mish",
        "nan_to_num",
        "ndtri",
    ),
    *("place", "prelu", "reciprocal", "remainder", "root", "safe_sqrt", "scalar_power"),
    *("scaled_bessel_k0", "scaled_bessel_k1", "spherical_bessel_j0"),
    *(
        "sinc",
        "smooth_l1",
        "softplus",
        "softshrink",
        "softsign",
        "threshold",
        "trigamma",
        "trunc_divide",
    ),
    *("xlog1py", "xlogy"),
)
"""Functions of the elements of tensors that broadcast, with numbers as options behind them."""

PLACE = PREFIX + "place"
"""Indices, counted from the end where they are below 0, in an extent (int64); far below 0 outside of it."""

POLYNOMIAL_OPS = (
    *("chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he"),
    *("laguerre_l", "legendre_p"),
)
"""Orthogonal polynomials of an element, of the degree that stands in another tensor (int64)."""

LOOP_OPS = ("gcd", "hurwitz_zeta", *POLYNOMIAL_OPS)
"""Functions of elements whose loops end when the values say so, on flat tensors of equal length; their
kernels are in :mod:`tvm_xengine.kernels.te.loops`."""

RUNNING_EXTREME = "tvm_xengine.running_extreme_position"
"""Where the greatest (least) element so far lies, the last one of equal ones."""

RUNNING_LOG_SUM = "tvm_xengine.running_log_sum"
"""Logarithms of the running sums of exponentials along an axis."""


def pointwise(name: str, *operands: relax.Expr | float) -> relax.Call:
    """A call of a pointwise operator on tensors, then numbers."""
    if name not in POINTWISE_OPS:
        raise ValueError(f"there is no pointwise operator {name!r}")
    return relax.Call(ir.Op.get(PREFIX + name), [_argument(one) for one in operands])


def loop_op(name: str, *operands: relax.Expr) -> relax.Call:
    """A call of an operator of `LOOP_OPS`; the result is like the first operand."""
    return relax.Call(ir.Op.get(PREFIX + name), list(operands))


def running_extreme_position(x: relax.Expr, axis: int, *, largest: bool) -> relax.Call:
    """Positions along an axis, int64, of the greatest or least elements up to each one."""
    op = ir.Op.get(RUNNING_EXTREME)
    return relax.Call(op, [x, _argument(axis), _argument(int(largest))])


def running_log_sum(x: relax.Expr, axis: int) -> relax.Call:
    """log of the sum of exp(x) up to each element along an axis."""
    return relax.Call(ir.Op.get(RUNNING_LOG_SUM), [x, _argument(axis)])


def options_of(call: relax.Call) -> tuple[float, ...]:
    """The numbers of a call of an own operator."""
    return tuple(
        float(argument.value)
        for argument in call.args
        if isinstance(argument, tvm.tirx.FloatImm | tvm.tirx.IntImm)
    )


def _argument(value: relax.Expr | float) -> relax.Expr:
    if isinstance(value, ir.Expr):
        return value
    return relax.prim_value(tvm.tirx.FloatImm("float64", float(value)))


def _broadcast_type(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
    types = [one.ty for one in call.args if isinstance(one.ty, relax.TensorType)]
    shape = np.broadcast_shapes(*(static_shape(ty) for ty in types))
    return relax.TensorType(shape, types[0].dtype)


def _position_type(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
    return relax.TensorType(static_shape(call.args[0].ty), "int64")


def legalized_in(module: str) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    """What makes the kernel of a call, in a room above this one, which is loaded only when TVM lowers."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        made: relax.Expr = importlib.import_module(module).legalize(builder, call)
        return made

    return legalize


_legalize = legalized_in("tvm_xengine.kernels.te.pointwise.legalize")


# TVM looks operators up by name in one registry per process, so importing this module fills it.
for _name in POINTWISE_OPS:
    register_op_attr(PREFIX + _name, "FInferType", _broadcast_type)
    register_op_attr(PREFIX + _name, "FPurity", True)
    register_op_attr(PREFIX + _name, "FLegalize", _legalize)
register_op_attr(RUNNING_EXTREME, "FInferType", _position_type)
register_op_attr(RUNNING_EXTREME, "FPurity", True)
for _name in (*(PREFIX + name for name in LOOP_OPS), RUNNING_LOG_SUM):
    register_op_attr(_name, "FInferType", lambda call, _builder: call.args[0].ty)
    register_op_attr(_name, "FPurity", True)

_BEFORE_TVMS = 11
"""TVM registers its own functions at level 10; one of a higher level takes their place."""

# TVM's own writes to standard error that indices of several axes, and rows of values, are unusual.
register_op_attr(
    "relax.index_put", "FInferType", lambda call, _builder: call.args[0].ty, _BEFORE_TVMS
)
