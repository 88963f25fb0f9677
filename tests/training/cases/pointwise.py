"""Own operators: functions of elements as PyTorch has them, at their kinks too."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from scipy import special
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase
from tvm_xengine.relax_ir.own_ops import RUNNING_EXTREME, pointwise, running_extreme_position

Reference = Callable[..., torch.Tensor]


def _unary(
    name: str, reference: Reference, *options: float, low: float = -4.0, high: float = 4.0
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        at_kinks = draw.flag()
        x = draw.uniform(low, high, *draw.shape())
        if at_kinks:  # kinks of activations are at halves
            x = np.asarray(np.clip(np.round(2 * x) / 2, low, high))
        return Case(
            lambda x: pointwise(name, x, *options),
            lambda x: reference(x, *options),
            {"x": x},
            smooth=not at_kinks,
        )

    return draw_case


def _frexp_mantissa(draw: Draw) -> Case:
    """Powers of two, where the mantissa jumps, are among the kinks, and far from other numbers."""
    case = _unary("frexp_mantissa", lambda x: torch.frexp(x)[0])(draw)
    if not case.smooth:
        return case
    mantissa, exponent = np.frexp(case.operands["x"])
    inside = np.copysign(np.clip(np.abs(mantissa), 0.55, 0.95), mantissa)
    return replace(case, operands={"x": np.ldexp(inside, np.maximum(exponent, -3))})


def _several(
    name: str, reference: Reference, count: int = 2, low: float = -4.0, high: float = 4.0
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        ties = draw.flag() and low < 0
        shapes = draw.permutation(draw.broadcastable(count))
        tensors = [draw.uniform(low, high, *shape) for shape in shapes]
        if ties:
            tensors = [np.asarray(np.round(one)) for one in tensors]
        operands = dict(zip("abc", tensors, strict=False))
        return Case(
            lambda *tensors: pointwise(name, *tensors), reference, operands, smooth=not ties
        )

    return draw_case


def _clamp(*tensors: torch.Tensor) -> torch.Tensor:
    """PyTorch's own gradient fails where the bounds have different shapes and more axes than `x`."""
    return torch.clamp(*torch.broadcast_tensors(*tensors))


def _running_extreme(draw: Draw) -> Case:
    shape = (2, draw.integer(1, 4), 3)
    axis, largest = draw.axis(len(shape)), draw.flag()
    x = np.round(draw.normal(*shape))
    function = torch.cummax if largest else torch.cummin
    return Case(
        lambda x: pointwise_product(x, axis, largest),
        lambda x: x * function(x, axis)[1],
        {"x": x},
        smooth=False,
    )


def pointwise_product(x: relax.Expr, axis: int, largest: bool) -> relax.Expr:
    """The element times the place of the extreme so far, which has a gradient."""
    place = running_extreme_position(x, axis, largest=largest)
    return relax.op.multiply(x, relax.op.astype(place, "float64"))


def _logit(x: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.logit(x, eps if eps >= 0 else None)


def _hardsigmoid(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own has one sixth in float32 in its derivative."""
    inside = (x > -3) & (x < 3)
    return torch.where(inside, x / 6 + 0.5, (x >= 3).double())


def _elu(x: torch.Tensor, alpha: float, scale: float, input_scale: float) -> torch.Tensor:
    return torch.ops.aten.elu(x, alpha, scale, input_scale)


def _of_scipy(
    name: str, reference: Callable[..., object], slope: Callable[..., object]
) -> DrawCase:
    """A function of which PyTorch has no gradient, or whose values are less exact there."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.as_tensor(reference(x.detach().numpy()))

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.as_tensor(slope(ctx.saved_tensors[0].numpy()))

    def draw_case(draw: Draw) -> Case:
        x = draw.uniform(0.3, draw.one_of([3.0, 60.0]), *draw.shape())
        return Case(lambda x: pointwise(name, x), Function.apply, {"x": x})

    return draw_case


_BESSEL = {
    "bessel_j0": (special.j0, lambda x: -special.j1(x)),
    "bessel_j1": (special.j1, lambda x: special.jvp(1, x)),
    "bessel_k0": (special.k0, lambda x: -special.k1(x)),
    "bessel_k1": (special.k1, lambda x: special.kvp(1, x)),
    "bessel_y0": (special.y0, lambda x: -special.y1(x)),
    "bessel_y1": (special.y1, lambda x: special.yvp(1, x)),
    "scaled_bessel_k0": (special.k0e, lambda x: special.k0e(x) - special.k1e(x)),
    "scaled_bessel_k1": (
        special.k1e,
        lambda x: special.k1e(x) - special.k0e(x) - special.k1e(x) / x,
    ),
    "spherical_bessel_j0": (
        lambda x: special.spherical_jn(0, x),
        lambda x: special.spherical_jn(0, x, derivative=True),
    ),
}


def _two(name: str, reference: Reference, low: float = -4.0, high: float = 4.0) -> list[DrawCase]:
    return [_several(name, reference, 2, low, high)]


def _two_with(name: str, loss: Callable[..., torch.Tensor], width: float) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        shape = draw.shape()
        return Case(
            lambda a, b: pointwise(name, a, b, width),
            lambda a, b: loss(a, b, reduction="none", **{_WIDTHS[name]: width}),
            {"a": draw.uniform(-4, 4, *shape), "b": draw.uniform(-4, 4, *shape)},
        )

    return draw_case


_WIDTHS = {"huber": "delta", "smooth_l1": "beta"}


_SIMPLE: dict[str, list[DrawCase]] = {
    "abs_power": [_unary("abs_power", lambda x, p: x.abs() ** p, 3.5, low=0.5)],
    **{name: [_of_scipy(name, *pair)] for name, pair in _BESSEL.items()},
    "binary_cross_entropy": _two(
        "binary_cross_entropy",
        lambda a, b: F.binary_cross_entropy(*torch.broadcast_tensors(a, b), reduction="none"),
        0.1,
        0.9,
    ),
    "clamp": [_unary("clamp", torch.clamp, -1.0, 1.5), _unary("clamp", torch.clamp, 2.0, -1.0)],
    "clamp_max": _two("clamp_max", torch.clamp_max),
    "clamp_min": _two("clamp_min", torch.clamp_min),
    "clamp_to": [_several("clamp_to", _clamp, 3)],
    "copysign": _two("copysign", torch.copysign),
    "digamma": [_unary("digamma", torch.digamma, low=0.5)],
    "elu": [_unary("elu", _elu, 1.5, 1.25, 0.5)],
    "entr": [_unary("entr", torch.special.entr, low=0.3)],
    "erfc": [_unary("erfc", torch.erfc)],
    "erfcx": [_unary("erfcx", torch.special.erfcx)],
    "i0": [_unary("i0", torch.i0)],
    "i0e": [_unary("i0e", torch.special.i0e)],
    "i1": [_unary("i1", torch.special.i1)],
    "i1e": [_unary("i1e", torch.special.i1e)],
    "erfinv": [_unary("erfinv", torch.erfinv, low=-0.9, high=0.9)],
    "exp2": [_unary("exp2", torch.exp2)],
    "expm1": [_unary("expm1", torch.expm1)],
    "float_power": _two("float_power", torch.pow, 0.5, 2),
    "fmax": _two("fmax", torch.fmax),
    "fmin": _two("fmin", torch.fmin),
    "fmod": _two("fmod", torch.fmod, 0.3, 3),
    "frexp_mantissa": [_frexp_mantissa],
    "hardshrink": [_unary("hardshrink", F.hardshrink, 1.5)],
    "hardsigmoid": [_unary("hardsigmoid", _hardsigmoid)],
    "hardswish": [_unary("hardswish", F.hardswish)],
    "hardtanh": [_unary("hardtanh", F.hardtanh, -1.0, 2.0)],
    "huber": [_two_with("huber", F.huber_loss, 1.5)],
    "hypot": _two("hypot", torch.hypot, 0.3, 3),
    "leaky_relu": [_unary("leaky_relu", F.leaky_relu, 0.25)],
    "lgamma": [_unary("lgamma", torch.lgamma, low=0.5)],
    "log10": [_unary("log10", torch.log10, low=0.2)],
    "log1p": [_unary("log1p", torch.log1p, low=-0.7)],
    "log2": [_unary("log2", torch.log2, low=0.2)],
    "log_ndtr": [_unary("log_ndtr", torch.special.log_ndtr, low=-30.0, high=9.0)],
    "logaddexp": _two("logaddexp", torch.logaddexp),
    "logaddexp2": _two("logaddexp2", torch.logaddexp2),
    "logit": [_unary("logit", _logit, 0.25, low=0.1, high=0.9)],
    "logsigmoid": [_unary("logsigmoid", F.logsigmoid)],
    "mish": [_unary("mish", F.mish)],
    "nan_to_num": [_unary("nan_to_num", torch.nan_to_num, 1.0, 2.0, 3.0)],
    "ndtri": [_unary("ndtri", torch.special.ndtri, low=0.01, high=0.99)],
    "prelu": _two("prelu", lambda a, b: torch.where(a > 0, a, b * a)),
    "reciprocal": [_unary("reciprocal", torch.reciprocal, low=0.3)],
    "remainder": _two("remainder", torch.remainder, 0.3, 3),
    "root": [_unary("root", lambda x, p: x ** (1 / p), 3.0, low=0.3)],
    "safe_sqrt": [_unary("safe_sqrt", torch.sqrt, low=0.3)],
    "scalar_power": [_unary("scalar_power", torch.pow, 2.5, low=0.3)],
    "sinc": [_unary("sinc", torch.sinc)],
    "smooth_l1": [_two_with("smooth_l1", F.smooth_l1_loss, 0.5)],
    "softplus": [_unary("softplus", F.softplus, 1.5, 2.0)],
    "softshrink": [_unary("softshrink", F.softshrink, 0.5)],
    "softsign": [_unary("softsign", F.softsign)],
    "threshold": [_unary("threshold", F.threshold, 0.5, -2.0)],
    "trigamma": [
        _unary("trigamma", lambda x: torch.polygamma(1, x), low=0.5),
    ],
    "xlog1py": _two("xlog1py", torch.special.xlog1py, 0.3, 3),
    "xlogy": _two("xlogy", torch.xlogy, 0.3, 3),
}

CASES: dict[str, list[DrawCase]] = {
    **{f"tvm_xengine.{name}": cases for name, cases in _SIMPLE.items()},
    RUNNING_EXTREME: [_running_extreme],
}
