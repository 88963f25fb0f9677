"""Kernels that take a slice out of a tensor, join slices to a tensor, and add what shares have made."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx, topi


def slice_kernel(
    shape: Sequence[int], dtype: str, dimension: int, first: int, extent: int
) -> tirx.PrimFunc:
    """Copies what lies in a range along a dimension."""
    whole = te.placeholder(shape, dtype, name="whole")
    smaller = [*shape[:dimension], extent, *shape[dimension + 1 :]]

    def element(*i: tirx.Var) -> tirx.Expr:
        return whole(*i[:dimension], i[dimension] + first, *i[dimension + 1 :])

    return _kernel([whole, te.compute(smaller, element, name="slice")])


def join_kernel(shapes: Sequence[Sequence[int]], dtype: str, dimension: int) -> tirx.PrimFunc:
    """Copies slices of the given shapes, one behind the other along a dimension."""
    slices = [te.placeholder(shape, dtype, name=f"slice_{k}") for k, shape in enumerate(shapes)]
    return _kernel([*slices, topi.concatenate(slices, axis=dimension)])


def sum_kernel(shape: Sequence[int], dtype: str, shares: int) -> tirx.PrimFunc:
    """Adds so many tensors, the first two first."""
    parts = [te.placeholder(shape, dtype, name=f"part_{k}") for k in range(shares)]

    def element(*i: tirx.Var) -> tirx.Expr:
        total = parts[0](*i)
        for part in parts[1:]:
            total = total + part(*i)
        return total

    return _kernel([*parts, te.compute(shape, element, name="sum")])


def _kernel(tensors: Sequence[te.Tensor]) -> tirx.PrimFunc:
    func = te.create_prim_func(list(tensors), index_dtype_override="int64")
    return func.without_attr("global_symbol")
