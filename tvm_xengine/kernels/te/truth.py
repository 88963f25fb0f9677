"""Operators on truth values whose negation TVM does not draw into a comparison.

TVM takes not (a < b) for a >= b, and a != b for a comparison that NaN fails; both are wrong where a
number is NaN. What is said of the bits of a truth value it leaves alone.
"""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.elementwise import broadcast_shape, read


def logical_not(data: te.Tensor) -> te.Tensor:
    """Whether elements are false."""
    return te.compute(data.shape, lambda *i: negated(data(*i)), name="negated")


def not_equal(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    """Whether numbers differ; NaN differs from all, itself included."""

    def differs(*i: Var) -> Expr:
        a, b = read(left, i), read(right, i)
        if str(left.dtype) == "bfloat16":
            a, b = a.astype("float32"), b.astype("float32")
        return negated(tvm.tirx.EQ(a, b)) if "float" in str(left.dtype) else tvm.tirx.NE(a, b)

    return te.compute(broadcast_shape(left.shape, right.shape), differs, name="differs")


def logical_xor(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    """Whether one of two truth values holds and the other does not."""

    def differs(*i: Var) -> Expr:
        return tvm.tirx.NE(_bits(read(left, i)), _bits(read(right, i)))

    return te.compute(broadcast_shape(left.shape, right.shape), differs, name="differs")


def negated(condition: Expr) -> Expr:
    """Whether a condition does not hold, as a statement on its bits."""
    return tvm.tirx.EQ(_bits(condition), tvm.tirx.const(0, "int8"))


def _bits(condition: Expr) -> Expr:
    return condition.astype("int8")
