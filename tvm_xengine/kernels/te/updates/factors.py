"""Scalars that an optimizer computes once per step, for all parameters of a type."""

from __future__ import annotations

import math

import tvm
from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.pointwise.function import named


def at_least_single(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def step_count(step: te.Tensor, dtype: str) -> Expr:
    """The number of this step, from 1, in a type that does not round it."""
    return (step() + tvm.tirx.const(1, step.dtype)).astype(at_least_single(dtype))


def scalar(value: Expr, dtype: str, name: str) -> te.Tensor:
    return te.compute((), lambda: value.astype(dtype), name=name)


_SERIES_TERMS = {"float32": 9, "float64": 15}
"""Terms of the series of ``1 - exp(-y)`` whose rest, up to y = 0.5, is below the type's rounding:
``0.5^9 / 10! = 5e-10`` of the value, and ``0.5^15 / 16! = 1.5e-18``."""


def left_of_decay(beta: float, count: Expr) -> Expr:
    """``1 - beta^count``."""
    dtype = str(count.ty.dtype)
    if beta == 0:
        return tvm.tirx.const(1, dtype)
    return left_of_exponential(count * tvm.tirx.const(-math.log(beta), dtype))


def left_of_exponential(y: Expr) -> Expr:
    """``1 - exp(-y)``, by its series where the difference would cancel."""
    dtype = str(y.ty.dtype)
    one = tvm.tirx.const(1, dtype)

    def left(y: Expr) -> Expr:
        series = one
        for k in range(_SERIES_TERMS[dtype], 1, -1):
            series = one - y * tvm.tirx.const(1 / k, dtype) * series
        is_small = y < tvm.tirx.const(0.5, dtype)
        return tvm.tirx.Select(is_small, y * series, one - te.exp(-y))

    return named(y, left)
