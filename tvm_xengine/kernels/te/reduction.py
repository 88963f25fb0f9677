"""Gradients of reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var


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
    """dy times the product of all other elements, right also where some are zero."""
    one, zero = tvm.tirx.const(1, data.dtype), tvm.tirx.const(0, data.dtype)
    others = te.comm_reducer(lambda a, b: a * b, lambda dtype: tvm.tirx.const(1, dtype), "product")
    nonzero = _reduced(
        data, axes, lambda *i: tvm.tirx.Select(data(*i) == zero, one, data(*i)), others, "nonzero"
    )
    zeros = _reduced(
        data, axes, lambda *i: tvm.tirx.Select(data(*i) == zero, one, zero), te.sum, "zeros"
    )

    def data_gradient(*i: Var) -> Expr:
        kept = _kept(i, axes)
        is_zero = data(*i) == zero
        safe = tvm.tirx.Select(is_zero, one, data(*i))
        without_zeros = tvm.tirx.Select(zeros(*kept) == zero, nonzero(*kept) / safe, zero)
        alone = tvm.tirx.Select(zeros(*kept) == one, nonzero(*kept), zero)
        return output_gradient(*kept) * tvm.tirx.Select(is_zero, alone, without_zeros)

    return te.compute(data.shape, data_gradient, name="data_gradient")


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
