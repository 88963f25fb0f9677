"""Sums of products that are accumulated in float32 when their terms have a short type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te
from tvm.tirx import Expr, IterVar

_SHORT = ("float16", "bfloat16")


def sum_dtype(dtype: str) -> str:
    """The type in which terms of a type are added up."""
    return "float32" if str(dtype) in _SHORT else str(dtype)


def summed(
    shape: Sequence[Expr],
    term: Callable[..., Expr],
    axes: Sequence[IterVar],
    dtype: str,
    name: str,
) -> te.Tensor:
    """The sum of ``term(*index)`` over the axes, added up in float32 where `dtype` is shorter."""
    if sum_dtype(dtype) == str(dtype):
        return te.compute(shape, lambda *i: te.sum(term(*i), axis=axes), name=name)
    total = te.compute(
        shape, lambda *i: te.sum(term(*i).astype("float32"), axis=axes), name=f"{name}_in_float32"
    )
    return te.compute(shape, lambda *i: total(*i).astype(dtype), name=name)
