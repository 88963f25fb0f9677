"""Definitions of pointwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.tirx import Expr

Formula = Callable[..., Expr]
"""From elements, then numbers, to an element.

The gradient of an operand is one whose parameters say by their names what it reads: ``g`` the gradient of
the result, ``y`` the result, ``a``, ``b``, ``c`` the operands. What is not named need not be kept.
"""


@dataclass(frozen=True)
class Pointwise:
    """A function of elements of one or more tensors, and of numbers.

    Attributes
    ----------
    formula
        From the operands to the result.
    derivatives
        The gradient of each tensor; None where it is zero.
    """

    formula: Formula
    derivatives: tuple[Formula | None, ...]


def const(value: float | Expr, like: Expr) -> Expr:
    """A number in the type of an expression; one of `numbers_for` has it already."""
    return value if isinstance(value, tvm.ir.Expr) else tvm.tirx.const(value, like.ty.dtype)


def numbers_for(dtype: str, values: Iterable[float]) -> list[Any]:
    """Numbers for a formula of elements of a type.

    In a formula TVM takes every number for a float32, and refuses those beyond it. Here they become
    numbers of float64 where the elements are; PyTorch refuses them in shorter types, too.
    """
    most = float(np.finfo("float32").max)
    return [
        tvm.tirx.const(value, dtype)
        if dtype == "float64" and most < abs(value) < math.inf
        else value
        for value in values
    ]


def zero(like: Expr) -> Expr:
    """0 in the type of an expression."""
    return const(0, like)


def select(condition: Expr, yes: Expr | float, no: Expr | float) -> Expr:
    """`yes` where the condition holds, else `no`; one of them may be a number."""
    if not isinstance(yes, tvm.ir.Expr):
        yes = const(yes, no)
    elif not isinstance(no, tvm.ir.Expr):
        no = const(no, yes)
    return tvm.tirx.Select(condition, yes, no)


def isnan(a: Expr) -> Expr:
    """Whether a number is NaN; integers never are."""
    if "float" not in str(a.ty.dtype):
        return tvm.tirx.const(False, "bool")
    wide = a.astype("float32") if str(a.ty.dtype) == "bfloat16" else a  # TVM knows no other
    return tvm.tirx.isnan(wide)


def in_single(function: Callable[[Expr], Expr], a: Expr) -> Expr:
    """A function of a number, which one of two bytes is widened for."""
    dtype = str(a.ty.dtype)
    if dtype in ("float32", "float64"):
        return function(a)
    return function(a.astype("float32")).astype(dtype)


def library(name: str, *values: Expr) -> Expr:
    """A function of the C library, which LLVM and CUDA call by its name."""
    dtype = str(values[0].ty.dtype)
    suffix = "" if dtype == "float64" else "f"
    return tvm.tirx.call_pure_extern(dtype, f"{name}{suffix}", *values)


def named(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """What is made of a value that is computed once, however often it is read."""
    var = tvm.ir.Var("v", str(value.ty.dtype))
    return tvm.tirx.Let(var, value, body(var))


def with_sign(a: Expr, b: Expr) -> Expr:
    """The size of the first with the sign of the second."""
    return tvm.tirx.copysign(a, b)


def zero_times(a: Expr) -> Expr:
    """0 * a, NaN where `a` is not finite; TVM makes the product itself 0."""
    return select(te.abs(a) < float("inf"), zero(a), const(float("nan"), a))


def either(*conditions: Expr) -> Expr:
    """Whether any condition holds."""
    return tvm.tirx.any(*conditions)


def both(*conditions: Expr) -> Expr:
    """Whether all conditions hold."""
    return tvm.tirx.all(*conditions)


def clipped(a: Expr) -> Expr:
    """Zero instead of what is negative; NaN stays, which the maximum of TIR makes zero."""
    return select(a < zero(a), zero(a), a)


def greater(a: Expr, b: Expr) -> Expr:
    """The greater of two numbers, NaN if one of them is."""
    return select(either(a > b, isnan(a)), a, b)


def lesser(a: Expr, b: Expr) -> Expr:
    """The lesser of two numbers, NaN if one of them is."""
    return select(either(a < b, isnan(a)), a, b)
