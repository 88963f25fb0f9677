"""Sorting by counting, which every device can do in parallel."""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.pointwise.function import isnan


def ranked(
    data: te.Tensor, *, axis: int, first: int, count: int, descending: bool, dtype: str
) -> te.Tensor:
    """Positions along an axis of the elements that come at places first, ..., first + count - 1.

    The place of an element is the number of those before it: smaller ones (larger ones where
    `descending`), and equal ones at lower positions. The work is quadratic in the length.
    """
    length = int(data.shape[axis])
    j = te.reduce_axis((0, length), name="j")

    def place(*i: Var) -> Expr:
        own, other = data(*i), data(*i[:axis], j, *i[axis + 1 :])
        before = other > own if descending else other < own
        last, first = (own, other) if not descending else (other, own)
        # NaN is greater than all numbers.
        before = tvm.tirx.any(before, tvm.tirx.all(isnan(last), tvm.tirx.Not(isnan(first))))
        same = tvm.tirx.any(other == own, tvm.tirx.all(isnan(other), isnan(own)))
        earlier = tvm.tirx.all(same, j < i[axis])
        return te.sum(tvm.tirx.any(before, earlier).astype("int32"), axis=j)

    places = te.compute(data.shape, place, name="places")
    k = te.reduce_axis((0, length), name="k")

    def position(*i: Var) -> Expr:
        here = places(*i[:axis], k, *i[axis + 1 :]) == i[axis] + first
        return te.sum(tvm.tirx.Select(here, k.var, 0).astype(dtype), axis=k)

    shape = [*data.shape[:axis], count, *data.shape[axis + 1 :]]
    return te.compute(shape, position, name="positions")
