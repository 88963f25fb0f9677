"""Sorting and selection."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.frontends.torch.aten.reductions import picked, squeezed
from tvm_xengine.relax_ir.matrix_ops import value_and_change
from tvm_xengine.relax_ir.types import static_shape


def sort(
    builder: Builder, x: Expr, _stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Expr]:
    """(elements in order, their positions); equal ones stay in the order they had."""
    if not static_shape(x.ty):
        return [x, relax.const(0, "int64")]
    order = argsort(builder, x, _stable, dim, descending)
    return [builder.emit(relax.op.gather_elements(x, order, axis=dim)), order]


def argsort(
    builder: Builder, x: Expr, _stable: bool | None, dim: int = -1, descending: bool = False
) -> Expr:
    """The positions of the elements in order."""
    if not static_shape(x.ty):
        return relax.const(0, "int64")
    if str(x.ty.dtype) == "bool":
        x = builder.emit(relax.op.astype(x, "int8"))
    return builder.emit(relax.op.argsort(x, dim, descending, dtype="int64"))


def sort_default(builder: Builder, x: Expr, dim: int, descending: bool) -> list[Expr]:
    """Sorted without a promise about equal ones, which stay in their order as well."""
    return sort(builder, x, True, dim, descending)


def argsort_default(builder: Builder, x: Expr, dim: int, descending: bool) -> Expr:
    """The positions alone."""
    return argsort(builder, x, True, dim, descending)


def top(builder: Builder, x: Expr, k: int, dim: int, largest: bool, _sorted: bool) -> list[Expr]:
    """(the k greatest or least elements, their positions), always in order."""
    if not static_shape(x.ty):
        return [x, relax.const(0, "int64")]
    order = argsort(builder, x, True, dim, largest)
    axis = dim % len(static_shape(x.ty))
    places = builder.emit(relax.op.strided_slice(order, [axis], [0], [k]))
    return [builder.emit(relax.op.gather_elements(x, places, axis=axis)), places]


def kthvalue(builder: Builder, x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> list[Expr]:
    """(the k-th smallest element along an axis, its position)."""
    if not static_shape(x.ty):
        return [x, relax.const(0, "int64")]
    axis = dim % len(static_shape(x.ty))
    order = argsort(builder, x, True, axis)
    place = builder.emit(relax.op.strided_slice(order, [axis], [k - 1], [k]))
    return [picked(builder, x, place, axis, keepdim), squeezed(builder, place, axis, keepdim)]


def median(builder: Builder, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """(the lower of the middle elements, its position); the first NaN where there is one."""
    shape = static_shape(x.ty)
    if not shape:
        return [x, relax.const(0, "int64")]
    axis = dim % len(shape)
    order = argsort(builder, x, True, axis)
    middle = (shape[axis] - 1) // 2
    place = builder.emit(relax.op.strided_slice(order, [axis], [middle], [middle + 1]))
    if "float" in str(x.ty.dtype):
        missing = builder.emit(relax.op.astype(relax.op.isnan(x), "int8"))
        first = relax.op.argmax(missing, axis, keepdims=True)
        any_missing = relax.op.greater(
            relax.op.max(missing, [axis], keepdims=True), relax.const(0, "int8")
        )
        place = builder.emit(relax.op.where(any_missing, first, place))
    return [picked(builder, x, place, axis, keepdim), squeezed(builder, place, axis, keepdim)]


def nanmedian(builder: Builder, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """(the lower of the middle elements that are no NaN, its position)."""
    shape = static_shape(x.ty)
    if not shape:
        return [x, relax.const(0, "int64")]
    axis = dim % len(shape)
    order = argsort(builder, x, True, axis)
    if "float" not in str(x.ty.dtype):
        return median(builder, x, dim, keepdim)
    known = relax.op.astype(relax.op.logical_not(relax.op.isnan(x)), "int64")
    count = relax.op.sum(builder.emit(known), [axis], keepdims=True)
    below = relax.op.subtract(count, relax.const(1, "int64"))
    middle = relax.op.right_shift(
        relax.op.maximum(below, relax.const(0, "int64")), relax.const(1, "int64")
    )
    place = builder.emit(relax.op.gather_elements(order, builder.emit(middle), axis=axis))
    return [picked(builder, x, place, axis, keepdim), squeezed(builder, place, axis, keepdim)]


def _of_all(along: Converter) -> Converter:
    """The median of all elements, of which those that equal it share the gradient."""

    def converted(builder: Builder, x: Expr) -> Expr:
        flat = builder.emit(relax.op.reshape(x, (prod(static_shape(x.ty)),)))
        made: Expr = along(builder, flat, 0, False)[0]
        if "float" not in str(x.ty.dtype):
            return made
        both_missing = relax.op.logical_and(relax.op.isnan(made), relax.op.isnan(flat))
        same = builder.emit(relax.op.logical_or(relax.op.equal(flat, made), both_missing))
        count = builder.emit(relax.op.sum(relax.op.astype(same, str(x.ty.dtype))))
        shared = relax.op.sum(relax.op.where(same, flat, scalar(0, flat)))
        change = builder.emit(relax.op.divide(builder.emit(shared), count))
        return builder.emit(value_and_change(made, change))

    return converted


def mode(builder: Builder, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """(the least of the most frequent elements, the last position of it); NaN equals nothing.

    Of nothing but NaN the first one is taken.
    """
    shape = static_shape(x.ty)
    if not shape:
        return [x, relax.const(0, "int64")]
    axis = dim % len(shape)
    same = relax.op.equal(relax.op.expand_dims(x, axis), relax.op.expand_dims(x, axis + 1))
    count = builder.emit(relax.op.sum(relax.op.astype(same, "int64"), [axis + 1]))
    most = relax.op.max(count, [axis], keepdims=True)
    is_most = builder.emit(relax.op.equal(count, most))
    high = np.iinfo(str(x.ty.dtype)).max if "int" in str(x.ty.dtype) else float("inf")
    fixed = builder.emit(relax.op.grad.no_grad(x))
    least = relax.op.min(relax.op.where(is_most, fixed, scalar(high, x)), [axis], keepdims=True)
    chosen = builder.emit(relax.op.logical_and(is_most, relax.op.equal(fixed, least)))
    numbers = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    last = relax.op.where(chosen, relax.const(numbers, "int64"), relax.const(0, "int64"))
    place = builder.emit(relax.op.max(last, [axis], keepdims=True))
    return [picked(builder, x, place, axis, keepdim), squeezed(builder, place, axis, keepdim)]


CONVERTERS: dict[str, Converter] = {
    "argsort.default": argsort_default,
    "argsort.stable": argsort,
    "kthvalue.default": kthvalue,
    "median.default": _of_all(median),
    "median.dim": median,
    "mode.default": mode,
    "nanmedian.default": _of_all(nanmedian),
    "nanmedian.dim": nanmedian,
    "sort.default": sort_default,
    "sort.stable": sort,
    "topk.default": top,
}
