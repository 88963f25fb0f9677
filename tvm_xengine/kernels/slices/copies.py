"""Kernels that take a slice out of a tensor, and join slices to a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx, topi


def slice_kernel(
    shape: Sequence[int], dtype: str, dimension: int, parts: int, number: int
) -> tirx.PrimFunc:
    """Copies slice `number` of `parts` along a dimension."""
    whole = te.placeholder(shape, dtype, name="whole")
    extent = shape[dimension] // parts
    smaller = [*shape[:dimension], extent, *shape[dimension + 1 :]]

    def element(*i: tirx.Var) -> tirx.Expr:
        return whole(*i[:dimension], i[dimension] + number * extent, *i[dimension + 1 :])

    return _kernel([whole, te.compute(smaller, element, name="slice")])


def join_kernel(shape: Sequence[int], dtype: str, dimension: int, parts: int) -> tirx.PrimFunc:
    """Copies slices of the given shape, one behind the other along a dimension."""
    slices = [te.placeholder(shape, dtype, name=f"slice_{k}") for k in range(parts)]
    return _kernel([*slices, topi.concatenate(slices, axis=dimension)])


def _kernel(tensors: Sequence[te.Tensor]) -> tirx.PrimFunc:
    func = te.create_prim_func(list(tensors), index_dtype_override="int64")
    return func.without_attr("global_symbol")
