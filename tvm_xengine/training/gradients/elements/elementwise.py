"""Gradients of element-by-element ops with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from inspect import signature

import tvm
from tvm import relax, te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.elementwise import derivative_kernel, sum_to_shape
from tvm_xengine.kernels.te.pointwise.activations import finite
from tvm_xengine.kernels.te.pointwise.function import Formula, Pointwise, isnan
from tvm_xengine.kernels.te.pointwise.table import POINTWISE
from tvm_xengine.relax_ir.own_ops import PREFIX, options_of
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site, by_pullback

Options = Callable[[Site], dict[str, float]]

_LETTERS = frozenset("gyabc")
"""What a derivative reads, by the names of its parameters: see `Formula`."""


def elementwise_rule(
    name: str,
    *derivatives: Formula | None,
    formula: Formula | None = None,
    options: Options | None = None,
) -> Rule:
    """The rule of an op whose operands have these derivatives; None is without gradient.

    Parameters
    ----------
    formula
        What the op computes; without one its call stands in the step as it is.
    options
        The numbers that all formulas take; by default a derivative names attributes of the op.
    """
    forward = None if formula is None else derivative_kernel(name, formula)
    kernels = [
        None if derivative is None else derivative_kernel(f"{name}_{side}backward", derivative)
        for derivative, side in zip(derivatives, _sides(len(derivatives)), strict=True)
    ]

    def rule(emitter: Emitter, site: Site) -> Linearized:
        numbers = {} if options is None else options(site)
        if forward is None:
            (output,) = site.emit(emitter)
        else:
            output = emitter.call(forward, site.operands, site.name, shape=site.shape, **numbers)
        named = {"y": output, **dict(zip("abc", site.operands, strict=False))}

        def gradient(position: int, g: relax.Expr) -> relax.Expr | None:
            kernel, derivative = kernels[position], derivatives[position]
            if kernel is None or derivative is None or not site.needs[position]:
                return None
            shape, made = shape_of(site.operands[position]), site.grad_name(position)
            if derivative is _pass:
                return reduce_to(emitter, g, shape, made)
            names = list(signature(derivative).parameters)
            own = [] if options is not None else [key for key in names if key not in _LETTERS]
            given = numbers | {key: float(getattr(site.attrs, key)) for key in own}
            tensors = [g if key == "g" else named[key] for key in names if key in _LETTERS]
            return emitter.call(kernel, tensors, made, shape=shape, **given)

        def pullback(gradients: Gradients) -> Gradients:
            (g,) = gradients
            assert g is not None
            return tuple(gradient(position, g) for position in range(len(derivatives)))

        return Linearized((output,), pullback)

    return rule


def reduce_to(
    emitter: Emitter, gradient: relax.Expr, shape: tuple[int, ...], name: str
) -> relax.Expr:
    """The gradient summed over the axes along which `shape` was broadcast."""
    if shape_of(gradient) == shape:
        return gradient
    return emitter.call(sum_to_shape, [gradient], name, shape=shape)


def _sides(count: int) -> tuple[str, ...]:
    return (
        ("",)
        if count == 1
        else tuple(f"{letter}_" for letter in ("left", "right", "third"))[:count]
    )


def _like(value: Expr, number: float) -> Expr:
    return tvm.tirx.const(number, value.ty.dtype)


def _where(condition: Expr, value: Expr) -> Expr:
    return tvm.tirx.Select(condition, value, _like(value, 0))


def _pass(g: Expr) -> Expr:
    return g


_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715
"""Of the tanh approximation (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016)."""


_GELU_IS_IDENTITY = 10.0
"""Above it both forms of gelu are their argument: what is left out is less than 1e-20 of it, and the
formulas overflow on the way to infinity."""


def _gelu(g: Expr, a: Expr) -> Expr:
    normal = 0.5 * (1.0 + te.erf(a * _SQRT_HALF))
    density = te.exp(a * a * -0.5) * (0.5 * _SQRT_HALF * _TWO_OVER_SQRT_PI)
    return tvm.tirx.Select(
        a > _like(a, _GELU_IS_IDENTITY), finite(g, a), g * (normal + a * density)
    )


def _gelu_tanh(g: Expr, a: Expr) -> Expr:
    t = te.tanh((a + a * a * a * _GELU_CUBIC) * _SQRT_TWO_OVER_PI)
    slope = (1.0 + a * a * (3 * _GELU_CUBIC)) * _SQRT_TWO_OVER_PI
    inner = g * (0.5 * (1.0 + t) + 0.5 * a * (1.0 - t * t) * slope)
    return tvm.tirx.Select(a > _like(a, _GELU_IS_IDENTITY), finite(g, a), inner)


def _silu(g: Expr, a: Expr) -> Expr:
    s = te.sigmoid(a)
    return g * s * (1.0 + a * (1.0 - s))


def _abs(g: Expr, a: Expr) -> Expr:
    # The sign of NaN is zero in PyTorch; a product with zero keeps what is not finite in g.
    none = tvm.tirx.Select(isnan(a), _where(isnan(g), g), a * g)
    return tvm.tirx.Select(a < _like(a, 0), -g, tvm.tirx.Select(a > _like(a, 0), g, none))


def _softplus(g: Expr, a: Expr, *, beta: float, threshold: float) -> Expr:
    return tvm.tirx.Select(a * beta > _like(a, threshold), g, g * te.sigmoid(a * beta))


def _selected(g: Expr, a: Expr, b: Expr) -> Expr:
    """The gradient unless a < b, half of it where they are equal (as PyTorch)."""
    return tvm.tirx.Select(a < b, _like(g, 0), tvm.tirx.Select(a == b, g * 0.5, g))


_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772
"""Klambauer et al., Self-Normalizing Neural Networks (2017)."""

UNARY: dict[str, Formula] = {
    "abs": _abs,
    "acos": lambda g, a: -g / te.sqrt(1.0 - a * a),
    "acosh": lambda g, a: g / te.sqrt(a * a - 1.0),
    "asin": lambda g, a: g / te.sqrt(1.0 - a * a),
    "asinh": lambda g, a: g / te.sqrt(a * a + 1.0),
    "atan": lambda g, a: g / (a * a + 1.0),
    "atanh": lambda g, a: g / (1.0 - a * a),
    "cos": lambda g, a: -g * te.sin(a),
    "cosh": lambda g, a: g * te.sinh(a),
    "erf": lambda g, a: g * te.exp(-a * a) * _TWO_OVER_SQRT_PI,
    "exp": lambda g, y: g * y,
    "log": lambda g, a: g / a,
    "negative": lambda g: -g,
    "rsqrt": lambda g, y: g * y * y * y * -0.5,
    "sigmoid": lambda g, y: g * y * (1.0 - y),
    "sin": lambda g, a: g * te.cos(a),
    "sinh": lambda g, a: g * te.cosh(a),
    "sqrt": lambda g, y: g * 0.5 / y,
    "square": lambda g, a: g * a * 2.0,
    "tan": lambda g, y: g * (1.0 + y * y),
    "tanh": lambda g, y: g * (1.0 - y * y),
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_tanh,
    "nn.leakyrelu": lambda g, a, alpha: tvm.tirx.Select(a > _like(a, 0), g, g * alpha),
    "nn.relu": lambda g, y: tvm.tirx.Select(y <= _like(y, 0), _like(g, 0), g),
    "nn.selu": lambda g, a: (
        g * _SELU_SCALE * tvm.tirx.Select(a > _like(a, 0), _like(a, 1), te.exp(a) * _SELU_ALPHA)
    ),
    "nn.silu": _silu,
    "nn.softplus": _softplus,
}


def _over_square(value: Expr, a: Expr, b: Expr) -> Expr:
    """Divided by the square of the distance from the origin, where it is zero."""
    square = a * a + b * b
    origin = tvm.tirx.EQ(square, _like(square, 0))
    safe = tvm.tirx.Select(origin, _like(square, 1), square)
    return tvm.tirx.Select(origin, _like(value, 0), value / safe)


BINARY: dict[str, tuple[Formula, Formula]] = {
    "add": (_pass, _pass),
    "subtract": (_pass, lambda g: -g),
    "multiply": (lambda g, b: g * b, lambda g, a: g * a),
    "divide": (
        lambda g, b: g / b,
        lambda g, b, y: -g * y / b,
    ),
    "maximum": (
        _selected,
        lambda g, a, b: _selected(g, b, a),
    ),
    "minimum": (
        lambda g, a, b: _selected(g, b, a),
        _selected,
    ),
    "mod": (_pass, lambda g, a, b: -g * te.trunc(a / b)),
    "floor_mod": (_pass, lambda g, a, b: -g * te.floor(a / b)),
    "atan2": (
        lambda g, a, b: _over_square(g * b, a, b),
        lambda g, a, b: _over_square(-g * a, a, b),
    ),
}

_WHERE = (
    None,
    lambda g, a: _where(a, g),
    lambda g, a: tvm.tirx.Select(a, _like(g, 0), g),
)


def _bounds(site: Site) -> dict[str, float]:
    low, high = (float(bound.value) for bound in site.source.call.args[1:])
    return {"low": low, "high": high}


def _inside(g: Expr, a: Expr, low: float, high: float) -> Expr:
    return _where(tvm.tirx.all(a >= _like(a, low), a <= _like(a, high)), g)


@by_pullback
def _prelu(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    data, slope = site.operands
    axis = int(site.attrs.axis) % len(site.shape)
    column = [1] * len(site.shape)
    column[axis] = -1
    spread = tuple(shape_of(slope)[0] if extent == -1 else 1 for extent in column)
    pulled: list[relax.Expr | None] = [None, None]
    if site.needs[0]:
        wide = emitter.bind(relax.op.reshape(slope, spread), f"{site.name}_slope")
        tensors = [gradient, data, wide]
        pulled[0] = emitter.call(_PRELU_DATA, tensors, site.grad_name(0), shape=site.shape)
    if site.needs[1]:
        tensors = [gradient, data]
        summed = emitter.call(_PRELU_SLOPE, tensors, f"{site.name}_backward", shape=spread)
        pulled[1] = emitter.bind(relax.op.reshape(summed, shape_of(slope)), site.grad_name(1))
    return tuple(pulled)


_PRELU_DATA = derivative_kernel(
    "prelu_backward", lambda g, a, b: tvm.tirx.Select(a > _like(a, 0), g, g * b)
)
_PRELU_SLOPE = derivative_kernel(
    "prelu_slope_backward", lambda g, a: tvm.tirx.Select(a > _like(a, 0), _like(g, 0), g * a)
)


def _power(emitter: Emitter, site: Site) -> Linearized:
    """Small whole exponents by multiplication, which is exact for negative bases too."""
    exponent = _whole_exponent(site.operands[1])
    if exponent is None:
        return _GENERAL_POWER(emitter, site)
    base = site.operands[0]
    output = emitter.call(_WHOLE_POWER, [base], site.name, shape=shape_of(base), exponent=exponent)

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], base]
        name, shape = site.grad_name(0), shape_of(base)
        return (
            emitter.call(_WHOLE_POWER_BACKWARD, tensors, name, shape=shape, exponent=exponent),
            None,
        )

    return Linearized((output,), pullback)


def _whole_exponent(value: relax.Expr) -> int | None:
    if not isinstance(value, tvm.ir.GenericConst) or value.ty.ndim:
        return None
    exponent = float(value.value.numpy())
    return int(exponent) if exponent in (2.0, 3.0, 4.0) else None


def _product(value: Expr, count: int) -> Expr:
    result = value
    for _ in range(count - 1):
        result = result * value
    return result


_GENERAL_POWER = elementwise_rule("power", *POINTWISE["float_power"].derivatives)
_WHOLE_POWER = derivative_kernel("whole_power", lambda a, exponent: _product(a, exponent))
_WHOLE_POWER_BACKWARD = derivative_kernel(
    "whole_power_backward",
    lambda g, a, exponent: g * _product(a, exponent - 1) * float(exponent),
)


def _pointwise_rule(name: str, function: Pointwise) -> Rule:
    """The rule of an own operator, whose numbers go to its formulas."""
    derivatives = (one and _with_options(one) for one in function.derivatives)
    formula = _with_options(function.formula)
    return elementwise_rule(name, *derivatives, formula=formula, options=_numbers)


def _numbers(site: Site) -> dict[str, float]:
    return {f"option_{k}": number for k, number in enumerate(options_of(site.source.call))}


def _with_options(formula: Formula) -> Formula:
    """A formula whose numbers stand behind the elements, as one that takes them by name."""

    @wraps(formula)
    def by_name(*elements: Expr, **options: float) -> Expr:
        return formula(*elements, *options.values())

    return by_name


@by_pullback
def _cast(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    dtype = str(site.operands[0].ty.dtype)
    return (emitter.bind(relax.op.astype(gradient, dtype), site.grad_name(0)),)


RULES: dict[str, Rule] = {
    **{
        f"relax.{op}": elementwise_rule(op.removeprefix("nn."), derivative)
        for op, derivative in UNARY.items()
    },
    **{f"relax.{op}": elementwise_rule(op, *pair) for op, pair in BINARY.items()},
    "relax.where": elementwise_rule("where", *_WHERE),
    "relax.clip": elementwise_rule("clip", _inside, options=_bounds),
    "relax.nn.prelu": _prelu,
    "relax.power": _power,
    "relax.astype": _cast,
    **{PREFIX + name: _pointwise_rule(name, function) for name, function in POINTWISE.items()},
}
