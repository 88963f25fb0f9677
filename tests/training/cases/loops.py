"""Operators that loop until their values say so; they have no gradients, their factors do."""

from collections.abc import Callable

import numpy as np
import torch
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase
from tvm_xengine.relax_ir.own_ops import POLYNOMIAL_OPS, loop_op


def _polynomial(name: str) -> DrawCase:
    family, kind = name.rsplit("_", 1)
    reference: Callable[..., torch.Tensor] = getattr(torch.special, f"{family}_polynomial_{kind}")

    def draw_case(draw: Draw) -> Case:
        count = draw.integer(1, 9)
        degrees = draw.indices(16, count) - 2
        x = draw.uniform(-1.5, 1.5, count)
        if draw.flag():
            x = np.round(x)  # the ends of the interval among them
        return Case(
            lambda x, n, w: relax.op.multiply(loop_op(name, x, n), w),
            lambda x, n, w: reference(x, n) * w,
            {"x": x, "n": degrees, "w": draw.normal(1)},
            fixed=("x",),
        )

    return draw_case


def _zeta(draw: Draw) -> Case:
    count = draw.integer(1, 9)
    return Case(
        lambda s, q, w: relax.op.multiply(loop_op("hurwitz_zeta", s, q), w),
        lambda s, q, w: torch.special.zeta(s, q) * w,
        {"s": draw.uniform(1.1, 9, count), "q": draw.uniform(0.1, 30, count), "w": draw.normal(1)},
        fixed=("s", "q"),
    )


def _gcd(draw: Draw) -> Case:
    count = draw.integer(1, 9)

    def operator(a: relax.Expr, b: relax.Expr, w: relax.Expr) -> relax.Expr:
        return relax.op.multiply(relax.op.astype(loop_op("gcd", a, b), "float64"), w)

    return Case(
        operator,
        lambda a, b, w: torch.gcd(a, b) * w,
        {
            "a": draw.indices(2000, count) - 1000,
            "b": draw.indices(60, count) - 30,
            "w": draw.normal(1),
        },
    )


CASES: dict[str, list[DrawCase]] = {
    "tvm_xengine.gcd": [_gcd],
    "tvm_xengine.hurwitz_zeta": [_zeta],
    **{f"tvm_xengine.{name}": [_polynomial(name)] for name in POLYNOMIAL_OPS},
}
