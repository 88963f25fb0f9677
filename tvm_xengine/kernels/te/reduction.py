"""Gradients of reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.pointwise.function import isnan


def spread(
    output_gradient: te.Tensor, *, shape: tuple[int, ...], axes: tuple[int, ...], factor: float
) -> te.Tensor:
    """Each element gets the gradient of the sum it went into, times `factor`.

    `output_gradient` has no reduced axes, here and in the other kernels.
    """
    return te.compute(
        shape, lambda *i: output_gradient(*_kept(i, axes)) * factor, name="data_gradient"
    )


def variance_backward(
    output_gradient: te.Tensor, data: te.Tensor, *, axes: tuple[int, ...]
) -> te.Tensor:
    """dx = 2 / m * (x - mean) * dy, for the biased variance of m elements."""
    count = prod(int(data.shape[a]) for a in axes)
    total = _reduced(data, axes, lambda *i: data(*i), te.sum, "total")

    def data_gradient(*i: Var) -> Expr:
        kept = _kept(i, axes)
        return output_gradient(*kept) * (data(*i) - total(*kept) / count) * (2 / count)

    return te.compute(data.shape, data_gradient, name="data_gradient")


def extremum_backward(
    output_gradient: te.Tensor, data: te.Tensor, output: te.Tensor, *, axes: tuple[int, ...]
) -> te.Tensor:
    """The gradient goes in equal shares to the elements that equal the result."""

    def hit(*i: Expr) -> Expr:
        one, zero = tvm.tirx.const(1, data.dtype), tvm.tirx.const(0, data.dtype)
        return tvm.tirx.Select(data(*i) == output(*_kept(i, axes)), one, zero)

    hits = _reduced(data, axes, hit, te.sum, "hits")
    return te.compute(
        data.shape,
        lambda *i: output_gradient(*_kept(i, axes)) * hit(*i) / hits(*_kept(i, axes)),
        name="data_gradient",
    )


def product_backward(
    output_gradient: te.Tensor, data: te.Tensor, *, axes: tuple[int, ...]
) -> te.Tensor:
    """dy times the product of all other elements; zero times what is no finite number is NaN."""
    one, zero = tvm.tirx.const(1, data.dtype), tvm.tirx.const(0, data.dtype)
    others = te.comm_reducer(lambda a, b: a * b, lambda dtype: tvm.tirx.const(1, dtype), "product")
    nonzero = _reduced(
        data, axes, lambda *i: tvm.tirx.Select(data(*i) == zero, one, data(*i)), others, "nonzero"
    )
    zeros = _reduced(
        data, axes, lambda *i: tvm.tirx.Select(data(*i) == zero, one, zero), te.sum, "zeros"
    )

    def is_no_number(value: Expr) -> Expr:
        return tvm.tirx.any(isnan(value), te.abs(value) == inf)

    odd = _reduced(
        data, axes, lambda *i: tvm.tirx.Select(is_no_number(data(*i)), one, zero), te.sum, "odd"
    )

    def data_gradient(*i: Var) -> Expr:
        kept = _kept(i, axes)
        is_zero = data(*i) == zero
        safe = tvm.tirx.Select(is_zero, one, data(*i))
        own = tvm.tirx.Select(is_no_number(data(*i)), one, zero)
        nothing = tvm.tirx.Select(odd(*kept) > own, tvm.tirx.const(nan, data.dtype), zero)
        without_zeros = tvm.tirx.Select(zeros(*kept) == zero, nonzero(*kept) / safe, nothing)
        alone = tvm.tirx.Select(zeros(*kept) == one, nonzero(*kept), nothing)
        return output_gradient(*kept) * tvm.tirx.Select(is_zero, alone, without_zeros)

    return te.compute(data.shape, data_gradient, name="data_gradient")


def extreme(data: te.Tensor, *, axes: tuple[int, ...], keepdims: bool, largest: bool) -> te.Tensor:
    """The greatest (least) elements along axes; NaN where one of them is NaN."""

    def better(left: Expr, right: Expr) -> Expr:
        first = left > right if largest else left < right
        return tvm.tirx.Select(tvm.tirx.any(first, isnan(left)), left, right)

    reducer = te.comm_reducer(
        better, lambda dtype: _worst(str(dtype), largest=largest), name="extreme"
    )
    reduced = _reduced(data, axes, lambda *i: data(*i), reducer, "extreme")
    if not keepdims:
        return reduced
    shape = [1 if a in axes else extent for a, extent in enumerate(data.shape)]
    return te.compute(shape, lambda *i: reduced(*_kept(i, axes)), name="extreme_kept")


def extreme_position(
    data: te.Tensor, *, axis: int, keepdims: bool, largest: bool, dtype: str
) -> te.Tensor:
    """Where along an axis the first of the greatest (least) elements lies; NaN is beyond all."""

    def better(left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, Expr]:
        (i, a), (j, b) = left, right
        beyond = tvm.tirx.any(
            a > b if largest else a < b, tvm.tirx.all(isnan(a), tvm.tirx.Not(isnan(b)))
        )
        same = tvm.tirx.any(a == b, tvm.tirx.all(isnan(a), isnan(b)))
        first = tvm.tirx.any(beyond, tvm.tirx.all(same, i <= j))
        return tvm.tirx.Select(first, i, j), tvm.tirx.Select(first, a, b)

    def nothing(position_dtype: str, value_dtype: str) -> tuple[Expr, Expr]:
        behind = tvm.tirx.const(int(data.shape[axis]), position_dtype)
        return behind, _worst(str(value_dtype), largest=largest)

    reducer = te.comm_reducer(better, nothing, name="extreme_position")
    k = te.reduce_axis((0, data.shape[axis]), name="k")

    def pair(*i: Var) -> Expr:
        at = [*i[:axis], k, *i[axis + 1 :]] if keepdims else [*i[:axis], k, *i[axis:]]
        return reducer((k.var.astype(dtype), data(*at)), axis=k)

    shape = [*data.shape[:axis], *([1] if keepdims else []), *data.shape[axis + 1 :]]
    position, _ = te.compute(shape, pair, name="position")
    return position


def _worst(dtype: str, *, largest: bool) -> Expr:
    if "float" in dtype:
        return tvm.tirx.const(float("-inf" if largest else "inf"), dtype)
    if dtype == "bool":
        return tvm.tirx.const(not largest, dtype)
    return tvm.tirx.min_value(dtype) if largest else tvm.tirx.max_value(dtype)


def _reduced(
    data: te.Tensor,
    axes: tuple[int, ...],
    element: Callable[..., Expr],
    reducer: Callable[..., Expr],
    name: str,
) -> te.Tensor:
    over = {a: te.reduce_axis((0, data.shape[a]), name=f"k{a}") for a in axes}

    def value(*i: Var) -> Expr:
        remaining = iter(i)
        at = [over[a] if a in over else next(remaining) for a in range(len(data.shape))]
        return reducer(element(*at), axis=list(over.values()))

    return te.compute(_kept(data.shape, axes), value, name=name)


def _kept(values: Sequence[Expr], axes: tuple[int, ...]) -> list[Expr]:
    return [value for a, value in enumerate(values) if a not in axes]
