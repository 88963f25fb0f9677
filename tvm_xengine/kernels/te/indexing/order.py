"""Places of extremes, and sorting by counting, which every device can do in parallel."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.pointwise.function import isnan

_EXACT_IN_FLOAT32 = 1 << 24
"""Whole numbers up to it."""


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


def place_of_extreme(data: te.Tensor, *, axis: int, largest: bool, keepdims: bool) -> te.Tensor:
    """Where along an axis the first of the greatest (least) elements lies; NaN is beyond all numbers.

    The extreme first and then its place: passes that run in vectors, as a pair of both would not.
    """
    shape = [int(extent) for extent in data.shape]
    length, kept = shape[axis], [*shape[:axis], *shape[axis + 1 :]]
    dtype = "float32" if str(data.dtype) == "bfloat16" else str(data.dtype)
    is_float = "float" in dtype
    # Not in integers, which TVM would make as long as positions: half as many to a vector.
    counted = "float32" if length <= _EXACT_IN_FLOAT32 else "float64"
    behind = tvm.tirx.const(length, counted)

    def start(_: str) -> Expr:
        if is_float:
            return tvm.tirx.const(-inf if largest else inf, dtype)
        return tvm.tirx.min_value(dtype) if largest else tvm.tirx.max_value(dtype)

    beyond = tvm.tirx.max if largest else tvm.tirx.min
    extreme_of = te.comm_reducer(lambda a, b: beyond(a, b), start, name="extreme")

    def folded(element: Callable[..., Expr], fold: Callable[..., Expr], name: str) -> te.Tensor:
        j = te.reduce_axis((0, length), name="j")

        def of_line(*i: Var) -> Expr:
            value = data(*i[:axis], j, *i[axis:]).astype(dtype)
            return fold(element(value, j.var.astype(counted), i), axis=j)

        return te.compute(kept, of_line, name=name)

    extreme = folded(lambda value, *_: value, extreme_of, "extreme_value")
    first = folded(
        lambda value, j, i: tvm.tirx.Select(value == extreme(*i), j, behind), te.min, "first"
    )
    first_nan = folded(
        lambda value, j, _i: tvm.tirx.Select(isnan(value), j, behind), te.min, "first_nan"
    )

    def place(*i: Var) -> Expr:
        at = (*i[:axis], *i[axis + 1 :]) if keepdims else i
        number, nan = first(*at), first_nan(*at)
        found = tvm.tirx.Select(nan < behind, nan, number) if is_float else number
        return found.astype("int64")

    return te.compute([*shape[:axis], 1, *shape[axis + 1 :]] if keepdims else kept, place, "place")
