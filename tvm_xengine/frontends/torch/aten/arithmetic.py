"""Functions of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tvm import ir, relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, filled, scalar
from tvm_xengine.relax_ir.own_ops import pointwise

Operand: TypeAlias = "Expr | float"
Operator = Callable[[Expr, Expr], Expr]

_OF_BOOLEANS: dict[Operator, Operator] = {
    relax.op.add: relax.op.logical_or,
    relax.op.multiply: relax.op.logical_and,
    relax.op.maximum: relax.op.logical_or,
    relax.op.minimum: relax.op.logical_and,
}
"""What arithmetic is on truth values, of which TVM has none."""


def pair(x: Operand, y: Operand) -> tuple[Expr, Expr]:
    """Both operands as tensors of one type; a number takes that of the tensor."""
    if isinstance(x, ir.Expr) and isinstance(y, ir.Expr):
        return x, y
    if isinstance(x, ir.Expr):
        return x, scalar(y, x)
    if isinstance(y, ir.Expr):
        return scalar(x, y), y
    raise UnsupportedModelError("an operator of two numbers, which only the run knows")


def binary(operator: Operator, builder: Builder, x: Operand, y: Operand) -> Expr:
    """An operator of Relax on both operands."""
    left, right = pair(x, y)
    if operator is relax.op.multiply and "float" in str(left.ty.dtype):
        for one, other in ((x, right), (y, left)):
            if not isinstance(one, ir.Expr) and one == 0:
                # TVM takes a product with the number zero for zero; that of NaN is NaN.
                zero = filled([1] * max(1, len(other.ty.shape)), 0, other)
                product = relax.op.multiply(other, zero)
                return builder.emit(relax.op.reshape(product, other.ty.shape))
    if str(left.ty.dtype) == "bool":
        operator = _OF_BOOLEANS.get(operator, operator)
    return builder.emit(operator(left, right))


def own(name: str, builder: Builder, x: Operand, y: Operand) -> Expr:
    """A pointwise operator of ours on both operands."""
    return builder.emit(pointwise(name, *pair(x, y)))


def add(builder: Builder, x: Operand, other: Operand, alpha: float) -> Expr:
    """x + alpha * other."""
    return binary(relax.op.add, builder, x, _times(other, alpha))


def subtract(builder: Builder, x: Operand, other: Operand, alpha: float) -> Expr:
    """x - alpha * other."""
    return binary(relax.op.subtract, builder, x, _times(other, alpha))


def rsub(builder: Builder, x: Operand, other: Operand, alpha: float) -> Expr:
    """other - alpha * x."""
    return binary(relax.op.subtract, builder, other, _times(x, alpha))


def _times(x: Operand, factor: float) -> Operand:
    if not isinstance(x, ir.Expr):
        return x * factor
    return x if factor == 1 else binary(relax.op.multiply, _Nested(), x, factor)


class _Nested:
    """Stands for a builder where the outer call binds what is inside it."""

    def emit(self, value: Expr) -> Expr:
        """The value as it is."""
        return value


def divide(builder: Builder, x: Operand, other: Operand, rounding_mode: str | None = None) -> Expr:
    """x / other, as it is, rounded down or towards zero."""
    if rounding_mode is None:
        return binary(relax.op.divide, builder, x, other)
    name = {"floor": "floor_divide", "trunc": "trunc_divide"}[rounding_mode]
    return own(name, builder, x, other)


def power(builder: Builder, x: Operand, exponent: Operand) -> Expr:
    """x to the power of the exponent; of whole numbers by way of float64."""
    left, right = pair(x, exponent)
    dtype = str(left.ty.dtype)
    if "float" in dtype:
        return builder.emit(relax.op.power(left, right))
    wide = relax.op.power(relax.op.astype(left, "float64"), relax.op.astype(right, "float64"))
    return builder.emit(relax.op.astype(relax.op.round(wide), dtype))


def power_of_number(builder: Builder, x: Expr, exponent: float) -> Expr:
    """x to the power of a number: powers of 2, 3 and 4 are products."""
    if "float" not in str(x.ty.dtype) or exponent in (2, 3, 4):
        return power(builder, x, exponent)
    if exponent == 1:
        return x
    if exponent == 0.5:
        return builder.emit(relax.op.sqrt(x))
    return builder.emit(pointwise("scalar_power", x, exponent))


def logical(operator: Operator, builder: Builder, x: Expr, y: Expr) -> Expr:
    """An operator on what is not zero."""
    return builder.emit(operator(truth(x), truth(y)))


def truth(x: Expr) -> Expr:
    """Whether elements differ from zero; NaN does."""
    return x if str(x.ty.dtype) == "bool" else relax.op.not_equal(x, scalar(0, x))


def logical_not(builder: Builder, x: Expr) -> Expr:
    """Whether elements are zero."""
    return builder.emit(relax.op.logical_not(truth(x)))


def bitwise(
    operator: Operator, of_booleans: Operator, builder: Builder, x: Operand, y: Operand
) -> Expr:
    """An operator on bits, on truth values the logical one."""
    left, right = pair(x, y)
    chosen = of_booleans if str(left.ty.dtype) == "bool" else operator
    return builder.emit(chosen(left, right))


def shift(operator: Operator, builder: Builder, x: Operand, y: Operand) -> Expr:
    """Bits moved to the left or to the right; all of them moved out where y is the width or more."""
    left, right = pair(x, y)
    width = int("".join(c for c in str(left.ty.dtype) if c.isdigit()))
    inside = relax.op.logical_and(
        relax.op.greater_equal(right, scalar(0, right)), relax.op.less(right, scalar(width, right))
    )
    moved = operator(left, relax.op.where(inside, right, scalar(0, right)))
    gone = scalar(0, left)
    if operator is relax.op.right_shift and str(left.ty.dtype).startswith("int"):
        gone = relax.op.where(relax.op.less(left, scalar(0, left)), scalar(-1, left), gone)
    return builder.emit(relax.op.where(inside, moved, gone))


def clamp(
    builder: Builder, x: Expr, low: Operand | None = None, high: Operand | None = None
) -> Expr:
    """min(max(x, low), high); either bound may be missing."""
    numbers = not any(isinstance(one, ir.Expr) for one in (low, high))
    if "float" in str(x.ty.dtype):
        if numbers:
            lowest = -float("inf") if low is None else low
            highest = float("inf") if high is None else high
            return builder.emit(pointwise("clamp", x, lowest, highest))
        if low is not None and high is not None:
            return builder.emit(pointwise("clamp_to", x, pair(x, low)[1], pair(x, high)[1]))
        if low is not None:
            return own("clamp_min", builder, x, low)
        return own("clamp_max", builder, x, high)
    for operator, bound in ((relax.op.maximum, low), (relax.op.minimum, high)):
        if bound is not None:
            x = binary(operator, builder, x, bound)
    return x


def _max_only(builder: Builder, x: Expr, high: Operand) -> Expr:
    return clamp(builder, x, None, high)


def heaviside(builder: Builder, x: Expr, values: Expr) -> Expr:
    """0 below zero, 1 above it, the given values at it."""
    step = relax.op.astype(relax.op.greater(x, scalar(0, x)), str(x.ty.dtype))
    step = relax.op.where(relax.op.equal(x, scalar(0, x)), values, step)
    return builder.emit(relax.op.grad.no_grad(builder.emit(step)))


def where(builder: Builder, condition: Expr, x: Operand, y: Operand) -> Expr:
    """x where the condition holds, else y."""
    left, right = pair(x, y)
    return builder.emit(relax.op.where(truth(condition), left, right))


def masked_fill(builder: Builder, x: Expr, mask: Expr, value: Operand) -> Expr:
    """x with a number where the mask holds."""
    return where(builder, mask, value, x)


_COMPARISONS: dict[str, Operator] = {
    "eq": relax.op.equal,
    "ge": relax.op.greater_equal,
    "gt": relax.op.greater,
    "le": relax.op.less_equal,
    "lt": relax.op.less,
    "ne": relax.op.not_equal,
}
_BITS: dict[str, tuple[Operator, Operator]] = {
    "and": (relax.op.bitwise_and, relax.op.logical_and),
    "or": (relax.op.bitwise_or, relax.op.logical_or),
    "xor": (relax.op.bitwise_xor, relax.op.logical_xor),
}

CONVERTERS: dict[str, Converter] = {
    **{
        f"{name}.{form}": partial(binary, operator)
        for name, operator in _COMPARISONS.items()
        for form in ("Scalar", "Tensor")
    },
    **{
        f"bitwise_{name}.{form}": partial(bitwise, *operators)
        for name, operators in _BITS.items()
        for form in ("Scalar", "Tensor", "Scalar_Tensor")
    },
    **{
        f"__{name}__.{form}": partial(bitwise, *operators)
        for name, operators in _BITS.items()
        for form in ("Scalar", "Tensor")
    },
    **{
        f"{name}.{form}": partial(shift, operator)
        for names, operator in (
            (("bitwise_left_shift", "__lshift__"), relax.op.left_shift),
            (("bitwise_right_shift", "__rshift__"), relax.op.right_shift),
        )
        for name in names
        for form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor", "Scalar")
    },
    **{
        f"logical_{name}.default": partial(logical, operators[1])
        for name, operators in _BITS.items()
    },
    **{f"add.{form}": add for form in ("Tensor", "Scalar")},
    **{f"sub.{form}": subtract for form in ("Tensor", "Scalar")},
    **{f"rsub.{form}": rsub for form in ("Tensor", "Scalar")},
    **{f"mul.{form}": partial(binary, relax.op.multiply) for form in ("Tensor", "Scalar")},
    **{f"div.{form}": divide for form in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"fmod.{form}": partial(own, "fmod") for form in ("Tensor", "Scalar")},
    **{
        f"remainder.{form}": partial(own, "remainder")
        for form in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{
        f"xlogy.{form}": partial(own, "xlogy") for form in ("Tensor", "Scalar_Self", "Scalar_Other")
    },
    **{
        f"special_xlog1py.{form}": partial(own, "xlog1py")
        for form in ("default", "self_scalar", "other_scalar")
    },
    **{f"copysign.{form}": partial(own, "copysign") for form in ("Tensor", "Scalar")},
    **{f"floor_divide.{form}": partial(own, "floor_divide") for form in ("default", "Scalar")},
    **{
        f"{name}.default": partial(own, name)
        for name in ("fmax", "fmin", "hypot", "logaddexp", "logaddexp2")
    },
    "atan2.default": partial(binary, relax.op.atan2),
    "clamp.default": clamp,
    "clamp.Tensor": clamp,
    "clamp_max.default": _max_only,
    "clamp_max.Tensor": _max_only,
    "clamp_min.default": clamp,
    "clamp_min.Tensor": clamp,
    "heaviside.default": heaviside,
    "logical_not.default": logical_not,
    "masked_fill.Scalar": masked_fill,
    "masked_fill.Tensor": masked_fill,
    "max.other": partial(binary, relax.op.maximum),
    "maximum.default": partial(binary, relax.op.maximum),
    "min.other": partial(binary, relax.op.minimum),
    "minimum.default": partial(binary, relax.op.minimum),
    "pow.Scalar": power,
    "pow.Tensor_Scalar": power_of_number,
    "pow.Tensor_Tensor": power,
    "where.self": where,
}
