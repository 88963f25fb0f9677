"""Functions of single elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.own_ops import pointwise

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
"""Constants of Klambauer et al., Self-Normalizing Neural Networks (2017)."""


def unary(operator: Callable[[Expr], Expr], builder: Builder, x: Expr) -> Expr:
    """An operator of Relax."""
    return builder.emit(operator(x))


def own(name: str, builder: Builder, x: Expr, *options: float) -> Expr:
    """A pointwise operator of ours."""
    return builder.emit(pointwise(name, x, *options))


def of_floats(operator: Callable[[Expr], Expr], builder: Builder, x: Expr) -> Expr:
    """An operator that leaves whole numbers as they are."""
    return builder.emit(operator(x)) if "float" in str(x.ty.dtype) else x


def rounded(builder: Builder, x: Expr, decimals: int = 0) -> Expr:
    """Rounded to decimals, halves to even; before the point where `decimals` is negative."""
    if "float" not in str(x.ty.dtype):
        return x
    if decimals == 0:
        return builder.emit(relax.op.round(x))
    factor = scalar(10.0 ** abs(decimals), x)
    there, back = relax.op.multiply, relax.op.divide
    if decimals < 0:
        there, back = back, there
    return builder.emit(back(relax.op.round(there(x, factor)), factor))


def finite(test: Callable[[Expr], Expr], builder: Builder, x: Expr) -> Expr:
    """A test of infinity or NaN; whole numbers are finite."""
    if "float" in str(x.ty.dtype):
        return builder.emit(test(x))
    answer = "bool"
    return builder.emit(
        (relax.op.ones_like if test is relax.op.isfinite else relax.op.zeros_like)(x, answer)
    )


def infinite_of_sign(sign: float, builder: Builder, x: Expr) -> Expr:
    """Whether elements are infinity of one sign."""
    if "float" not in str(x.ty.dtype):
        return builder.emit(relax.op.zeros_like(x, "bool"))
    return builder.emit(relax.op.equal(x, scalar(sign * float("inf"), x)))


def signbit(builder: Builder, x: Expr) -> Expr:
    """Whether elements are below zero, minus zero included."""
    if "float" not in str(x.ty.dtype):
        return builder.emit(relax.op.less(x, scalar(0, x)))
    sign = pointwise("copysign", relax.op.grad.no_grad(relax.op.ones_like(x)), x)
    return builder.emit(relax.op.less(sign, scalar(0, x)))


def elu(builder: Builder, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    return own("elu", builder, x, alpha, scale, input_scale)


def celu(builder: Builder, x: Expr, alpha: float = 1.0) -> Expr:
    """x above zero, alpha * (exp(x / alpha) - 1) below."""
    return elu(builder, x, alpha, 1.0, 1 / alpha)


def selu(builder: Builder, x: Expr) -> Expr:
    """The self-normalising elu."""
    return elu(builder, x, SELU_ALPHA, SELU_SCALE, 1.0)


def hardtanh(builder: Builder, x: Expr, low: float = -1.0, high: float = 1.0) -> Expr:
    """Clipped to [low, high]; without gradient at the bounds, unlike clamp."""
    return own("hardtanh", builder, x, low, high)


def relu6(builder: Builder, x: Expr) -> Expr:
    """Clipped to [0, 6]."""
    return hardtanh(builder, x, 0.0, 6.0)


def leaky_relu(builder: Builder, x: Expr, slope: float) -> Expr:
    """x above zero, slope * x below."""
    return builder.emit(relax.op.nn.leakyrelu(x, slope))


def gelu(builder: Builder, x: Expr, approximate: str) -> Expr:
    """x times the normal distribution's function of x, or an approximation by tanh."""
    operator = relax.op.nn.gelu if approximate == "none" else relax.op.nn.gelu_tanh
    return builder.emit(operator(x))


def prelu(builder: Builder, x: Expr, weight: Expr) -> Expr:
    """x above zero, weight * x below; one weight, or one for each channel (axis 1)."""
    rank, (count,) = len(x.ty.shape), weight.ty.shape or (1,)
    column = (int(count), *(1,) * (rank - 2)) if rank >= 2 else ((int(count),) * min(rank, 1))
    return builder.emit(pointwise("prelu", x, relax.op.reshape(weight, column)))


def log_sigmoid(builder: Builder, x: Expr) -> list[Expr]:
    """(log of sigmoid, a buffer for PyTorch's backward pass, which has no readers)."""
    y = own("logsigmoid", builder, x)
    return [y, y]


def logit(builder: Builder, x: Expr, eps: float | None) -> Expr:
    """log(x / (1 - x)), x kept eps away from 0 and 1."""
    return own("logit", builder, x, -1.0 if eps is None else eps)


_LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}
"""The largest finite number of each type (IEEE 754)."""


def nan_to_num(
    builder: Builder, x: Expr, nan: float | None, positive: float | None, negative: float | None
) -> Expr:
    """Numbers for NaN and the infinities: 0 and the greatest ones where none are given."""
    dtype = str(x.ty.dtype)
    if "float" not in dtype:
        return x
    most = _LARGEST.get(dtype, 3.3895313892515355e38)  # the last one is bfloat16's
    high = most if positive is None else positive
    low = -most if negative is None else negative
    return own("nan_to_num", builder, x, 0.0 if nan is None else nan, high, low)


def detach(builder: Builder, x: Expr) -> Expr:
    """x, through which no gradient flows."""
    return builder.emit(relax.op.grad.no_grad(x))


def angle(builder: Builder, x: Expr) -> Expr:
    """pi below zero and 0 above, in the complex plane; NaN of NaN."""
    if "float" not in str(x.ty.dtype):
        x = builder.emit(relax.op.astype(x, "float32"))
    x = detach(builder, x)
    turned = relax.op.where(relax.op.less(x, scalar(0, x)), scalar(pi, x), scalar(0, x))
    return builder.emit(relax.op.where(relax.op.isnan(x), x, turned))


def frexp(builder: Builder, x: Expr) -> list[Expr]:
    """(the fraction of a number, its exponent of two)."""
    mantissa, exponent = (own(f"frexp_{part}", builder, x) for part in ("mantissa", "exponent"))
    return [mantissa, builder.emit(relax.op.astype(exponent, "int32"))]


def binary_cross_entropy(
    builder: Builder, x: Expr, target: Expr, weight: Expr | None, reduction: int
) -> Expr:
    """-(t log x + (1 - t) log(1 - x)), the logarithms at least -100."""
    losses = pointwise("binary_cross_entropy", x, target)
    if weight is not None:
        losses = relax.op.multiply(losses, weight)
    reduced = {0: lambda one: one, 1: relax.op.mean, 2: relax.op.sum}[reduction]
    return builder.emit(reduced(losses))


def loss_of_distance(
    name: str, builder: Builder, x: Expr, target: Expr, reduction: int, width: float
) -> Expr:
    """A loss that is a parabola near zero and linear beyond a width."""
    if not width >= 0:
        raise UnsupportedModelError(
            f"{name}_loss has a negative width {width}, which PyTorch refuses"
        )
    losses = pointwise(name, x, target, width)
    reduced = {0: lambda one: one, 1: relax.op.mean, 2: relax.op.sum}[reduction]
    return builder.emit(reduced(losses))


_RELAX = {
    **{name: getattr(relax.op, name) for name in ("abs", "acos", "acosh", "asin", "asinh", "atan")},
    **{name: getattr(relax.op, name) for name in ("atanh", "cos", "cosh", "erf", "exp", "log")},
    **{name: getattr(relax.op, name) for name in ("rsqrt", "sigmoid", "sign", "sin", "sinh")},
    **{name: getattr(relax.op, name) for name in ("sqrt", "square", "tan", "tanh")},
    "neg": relax.op.negative,
    "relu": relax.op.nn.relu,
    "silu": relax.op.nn.silu,
}
_OWN = (
    *("digamma", "erfc", "erfinv", "exp2", "expm1", "hardsigmoid", "hardswish", "lgamma"),
    *("log10", "log1p", "log2", "mish", "reciprocal", "sinc", "hardshrink", "softplus"),
    *("softshrink", "threshold"),
)

_SPECIAL = {
    "i0.default": "i0",
    **{f"special_bessel_{n}.default": f"bessel_{n}" for n in ("j0", "j1", "y0", "y1")},
    "special_entr.default": "entr",
    "special_erfcx.default": "erfcx",
    "special_i0e.default": "i0e",
    "special_i1.default": "i1",
    "special_i1e.default": "i1e",
    "special_modified_bessel_i0.default": "i0",
    "special_log_ndtr.default": "log_ndtr",
    "special_modified_bessel_i1.default": "i1",
    **{f"special_modified_bessel_k{n}.default": f"bessel_k{n}" for n in (0, 1)},
    "special_ndtri.default": "ndtri",
    **{f"special_scaled_modified_bessel_k{n}.default": f"scaled_bessel_k{n}" for n in (0, 1)},
    "special_spherical_bessel_j0.default": "spherical_bessel_j0",
}

CONVERTERS: dict[str, Converter] = {
    **{operator: partial(own, name) for operator, name in _SPECIAL.items()},
    **{f"{name}.default": partial(unary, operator) for name, operator in _RELAX.items()},
    **{f"{name}.default": partial(own, name) for name in _OWN},
    **{
        f"{name}.default": partial(of_floats, getattr(relax.op, name))
        for name in ("ceil", "floor", "trunc")
    },
    **{
        f"{name}.default": partial(finite, getattr(relax.op, name))
        for name in ("isfinite", "isinf", "isnan")
    },
    "binary_cross_entropy.default": binary_cross_entropy,
    "bitwise_not.default": lambda builder, x: builder.emit(
        (relax.op.logical_not if str(x.ty.dtype) == "bool" else relax.op.bitwise_not)(x)
    ),
    "angle.default": angle,
    "celu.default": celu,
    "detach.default": detach,
    "elu.default": elu,
    "frexp.Tensor": frexp,
    "gelu.default": gelu,
    "hardtanh.default": hardtanh,
    "huber_loss.default": partial(loss_of_distance, "huber"),
    "isneginf.default": partial(infinite_of_sign, -1.0),
    "isposinf.default": partial(infinite_of_sign, 1.0),
    "leaky_relu.default": leaky_relu,
    "log_sigmoid_forward.default": log_sigmoid,
    "logit.default": logit,
    "nan_to_num.default": nan_to_num,
    "prelu.default": prelu,
    "_prelu_kernel.default": lambda builder, x, weight: builder.emit(pointwise("prelu", x, weight)),
    "relu6.default": relu6,
    "round.decimals": rounded,
    "round.default": rounded,
    "selu.default": selu,
    "sgn.default": partial(unary, relax.op.sign),
    "signbit.default": signbit,
    "smooth_l1_loss.default": partial(loss_of_distance, "smooth_l1"),
}
