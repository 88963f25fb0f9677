"""Sorting, selection, and where values lie among others."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import ir, relax

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


def searchsorted(
    builder: Builder,
    boundaries: Expr,
    values: Expr | float,
    out_int32: bool,
    right: bool,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    """How many boundaries lie before each value (or at it, on the right side)."""
    if sorter is not None:
        boundaries = builder.emit(relax.op.gather_elements(boundaries, sorter, axis=-1))
    if not isinstance(values, ir.Expr):
        values = scalar(values, boundaries)
    at_right = right or side == "right"
    row = boundaries
    if len(static_shape(row.ty)) > 1:
        row = builder.emit(relax.op.expand_dims(row, -2))
    column = builder.emit(relax.op.expand_dims(values, -1))
    # NaN lies behind all numbers.
    missing = relax.op.isnan(column) if "float" in str(column.ty.dtype) else None
    before = (relax.op.less_equal if at_right else relax.op.less)(row, column)
    if missing is not None and at_right:
        before = relax.op.logical_or(before, missing)
    elif missing is not None:
        known = relax.op.logical_not(relax.op.isnan(row))
        before = relax.op.logical_or(before, relax.op.logical_and(missing, known))
    dtype = "int32" if out_int32 else "int64"
    return builder.emit(relax.op.sum(relax.op.astype(before, dtype), -1))


def bucketize(
    builder: Builder, values: Expr | float, boundaries: Expr, out_int32: bool, right: bool
) -> Expr:
    """The same with the operands exchanged."""
    return searchsorted(builder, boundaries, values, out_int32, right)


def histogram(builder: Builder, x: Expr, bins: int, low: float, high: float) -> Expr:
    """How many elements lie in each of so many equal parts of a range; of all of them by default."""
    count = prod(static_shape(x.ty))
    flat = builder.emit(relax.op.grad.no_grad(relax.op.reshape(x, (count,))))
    first, last = scalar(low, x), scalar(high, x)
    if low == high:
        first, last = builder.emit(relax.op.min(flat)), builder.emit(relax.op.max(flat))
        same = builder.emit(relax.op.equal(first, last))
        first, last = (
            builder.emit(relax.op.where(same, relax.op.add(one, scalar(by, x)), one))
            for one, by in ((first, -1), (last, 1))
        )
    share = relax.op.divide(relax.op.subtract(flat, first), relax.op.subtract(last, first))
    place = relax.op.floor(relax.op.multiply(share, scalar(bins, x)))
    place = builder.emit(relax.op.minimum(place, scalar(bins - 1, x)))
    inside = relax.op.logical_and(
        relax.op.greater_equal(flat, first), relax.op.less_equal(flat, last)
    )
    number = relax.const(np.arange(bins, dtype=str(x.ty.dtype)), str(x.ty.dtype))
    hit = relax.op.equal(relax.op.expand_dims(place, 1), number)
    counted = relax.op.logical_and(hit, relax.op.expand_dims(builder.emit(inside), 1))
    return builder.emit(relax.op.sum(relax.op.astype(counted, str(x.ty.dtype)), [0]))


def isin(
    builder: Builder, elements: Expr, tests: Expr | float, _assume_unique: bool, invert: bool
) -> Expr:
    """Whether elements are among others."""
    if not isinstance(tests, ir.Expr):
        tests = scalar(tests, elements)
    row = builder.emit(relax.op.reshape(tests, (prod(static_shape(tests.ty)),)))
    hit = relax.op.equal(relax.op.expand_dims(elements, -1), row)
    found = relax.op.sum(relax.op.astype(hit, "int32"), -1)
    compare = relax.op.equal if invert else relax.op.greater
    return builder.emit(compare(found, relax.const(0, "int32")))


CONVERTERS: dict[str, Converter] = {
    "argsort.default": argsort_default,
    "argsort.stable": argsort,
    "bucketize.Scalar": bucketize,
    "bucketize.Tensor": bucketize,
    "histc.default": histogram,
    "isin.Tensor_Scalar": isin,
    "isin.Tensor_Tensor": isin,
    "kthvalue.default": kthvalue,
    "median.default": _of_all(median),
    "median.dim": median,
    "mode.default": mode,
    "nanmedian.default": _of_all(nanmedian),
    "nanmedian.dim": nanmedian,
    "searchsorted.Scalar": searchsorted,
    "searchsorted.Tensor": searchsorted,
    "sort.default": sort_default,
    "sort.stable": sort,
    "topk.default": top,
}
