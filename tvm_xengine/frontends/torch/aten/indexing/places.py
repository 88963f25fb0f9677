"""Elements and slices read or written by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from math import prod

import numpy as np
from tvm import ir, relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.own_ops import pointwise
from tvm_xengine.relax_ir.types import static_shape


def at_least_1d(builder: Builder, x: Expr) -> Expr:
    """A scalar as one element."""
    return x if static_shape(x.ty) else builder.emit(relax.op.reshape(x, (1,)))


def like(builder: Builder, made: Expr, x: Expr) -> Expr:
    """A result in the shape of x, which may be a scalar."""
    shape = static_shape(x.ty)
    return made if static_shape(made.ty) == shape else builder.emit(relax.op.reshape(made, shape))


def writes(convert: Callable[..., Expr]) -> Callable[..., Expr]:
    """A converter that writes into its first tensor, which stays as it is where nothing is written.

    Of an index or a source without elements TVM's kernels divide by zero.
    """

    @wraps(convert)
    def converted(*arguments: object) -> Expr:
        given = [part for one in arguments for part in (one if isinstance(one, list) else [one])]
        x, *others = (
            one
            for one in given
            if isinstance(one, ir.Expr) and isinstance(one.ty, relax.TensorType)
        )
        is_empty = any(prod(static_shape(one.ty)) == 0 for one in others)
        return x if is_empty else convert(*arguments)

    return converted


@writes
def scatter(
    reduction: str, builder: Builder, x: Expr, dim: int, index: Expr, source: Expr | float
) -> Expr:
    """x with the leading part of `source`, shaped like `index`, written or added at its places."""
    data, places = at_least_1d(builder, x), at_least_1d(builder, index)
    values = _leading_part(builder, source, places, x)
    axis = dim % len(static_shape(data.ty))
    made = builder.emit(relax.op.scatter_elements(data, places, values, axis, reduction))
    return like(builder, made, x)


def _leading_part(builder: Builder, source: Expr | float, index: Expr, x: Expr) -> Expr:
    shape = static_shape(index.ty)
    if not isinstance(source, ir.Expr):
        return builder.emit(relax.op.broadcast_to(scalar(source, x), shape))
    source = at_least_1d(builder, source)
    if shape == static_shape(source.ty):
        return source
    axes = list(range(len(shape)))
    return builder.emit(relax.op.strided_slice(source, axes, [0] * len(axes), list(shape)))


def gather(builder: Builder, x: Expr, dim: int, index: Expr, _sparse: bool) -> Expr:
    """The elements at places along an axis."""
    data, places = at_least_1d(builder, x), at_least_1d(builder, index)
    axis = dim % len(static_shape(data.ty))
    return like(builder, builder.emit(relax.op.gather_elements(data, places, axis=axis)), index)


def index_select(builder: Builder, x: Expr, dim: int, index: Expr) -> Expr:
    """Slices by number."""
    data, places = at_least_1d(builder, x), at_least_1d(builder, index)
    axis = dim % len(static_shape(data.ty))
    made = builder.emit(relax.op.take(data, places, axis=axis))
    return made if static_shape(x.ty) else like(builder, made, x)


@writes
def scatter_with(
    builder: Builder,
    x: Expr,
    dim: int,
    index: Expr,
    source: Expr | float,
    reduction: str,
    include_self: bool = True,
) -> Expr:
    """x with values added, multiplied, averaged or compared at places; equal ones share gradients."""
    data, places = at_least_1d(builder, x), at_least_1d(builder, index)
    values = _leading_part(builder, source, places, x)
    axis = dim % len(static_shape(data.ty))
    made = _REDUCTIONS[reduction](builder, data, places, values, axis, include_self)
    return like(builder, made, x)


def _added(
    builder: Builder, x: Expr, index: Expr, values: Expr, axis: int, include_self: bool
) -> Expr:
    start = x if include_self else _emptied(builder, x, index, axis, 0.0)
    return builder.emit(relax.op.scatter_elements(start, index, values, axis, "add"))


def _emptied(builder: Builder, x: Expr, index: Expr, axis: int, value: float) -> Expr:
    """x with a number wherever something is written."""
    numbers = builder.emit(relax.op.broadcast_to(scalar(value, x), static_shape(index.ty)))
    return builder.emit(relax.op.scatter_elements(x, index, numbers, axis, "update"))


def _counted(builder: Builder, x: Expr, index: Expr, axis: int, include_self: bool) -> Expr:
    """How many elements go to each place, at least one."""
    ones = builder.emit(relax.op.broadcast_to(scalar(1, x), static_shape(index.ty)))
    first = scalar(1 if include_self else 0, x)
    start = builder.emit(relax.op.broadcast_to(first, static_shape(x.ty)))
    count = builder.emit(relax.op.scatter_elements(start, index, ones, axis, "add"))
    return builder.emit(relax.op.maximum(count, scalar(1, x)))


def _averaged(
    builder: Builder, x: Expr, index: Expr, values: Expr, axis: int, include_self: bool
) -> Expr:
    summed = _added(builder, x, index, values, axis, include_self)
    count = _counted(builder, x, index, axis, include_self)
    if "float" in str(x.ty.dtype):
        return builder.emit(relax.op.divide(summed, count))
    return builder.emit(pointwise("floor_divide", summed, count))


def _compared(
    largest: bool,
    builder: Builder,
    x: Expr,
    index: Expr,
    values: Expr,
    axis: int,
    include_self: bool,
) -> Expr:
    """The value as a mean of the elements that equal it, so that these share the gradient."""
    fixed, given = (builder.emit(relax.op.grad.no_grad(one)) for one in (x, values))
    is_float = "float" in str(x.ty.dtype)
    worst = float("-inf" if largest else "inf") if is_float else _worst(str(x.ty.dtype), largest)
    start = fixed if include_self else _emptied(builder, fixed, index, axis, worst)
    pick = "max" if largest else "min"
    best = builder.emit(relax.op.scatter_elements(start, index, given, axis, pick))
    if not is_float:
        return best
    zero, one = scalar(0, x), scalar(1, x)
    seen = builder.emit(relax.op.gather_elements(best, index, axis=axis))
    own = builder.emit(relax.op.where(relax.op.equal(start, best), one, zero))
    others = builder.emit(relax.op.where(relax.op.equal(given, seen), one, zero))
    count = builder.emit(relax.op.scatter_elements(own, index, others, axis, "add"))
    mine = relax.op.where(relax.op.equal(start, best), x, zero)
    theirs = builder.emit(relax.op.where(relax.op.equal(given, seen), values, zero))
    summed = builder.emit(relax.op.scatter_elements(builder.emit(mine), index, theirs, axis, "add"))
    mean = builder.emit(relax.op.divide(summed, count))
    if include_self:
        return mean
    # PyTorch counts an element of x that is equal, though it is not included, and gets no share.
    is_counted = relax.op.logical_and(
        relax.op.equal(fixed, best), relax.op.logical_not(relax.op.equal(start, best))
    )
    shared = builder.emit(relax.op.divide(summed, relax.op.add(count, one)))
    rest = relax.op.subtract(mean, shared)
    whole = builder.emit(relax.op.add(shared, relax.op.grad.no_grad(builder.emit(rest))))
    return builder.emit(relax.op.where(is_counted, whole, mean))


def _worst(dtype: str, largest: bool) -> int:
    limits = np.iinfo(dtype)
    return int(limits.min if largest else limits.max)


def _multiplied(
    builder: Builder, x: Expr, index: Expr, values: Expr, axis: int, include_self: bool
) -> Expr:
    """The product over all sources of those that go to a place: quadratic, but zeros are no exception."""
    shape = static_shape(x.ty)
    start = x if include_self else _emptied(builder, x, index, axis, 1.0)
    count = static_shape(index.ty)[axis]
    covered = (*static_shape(index.ty)[:axis], shape[axis], *static_shape(index.ty)[axis + 1 :])
    numbers = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    parts = []
    for k in range(count):
        at = relax.op.strided_slice(index, [axis], [k], [k + 1])
        value = relax.op.strided_slice(values, [axis], [k], [k + 1])
        here = relax.op.equal(at, relax.const(numbers, str(index.ty.dtype)))
        part = builder.emit(relax.op.where(here, value, scalar(1, x)))
        parts.append(builder.emit(relax.op.broadcast_to(part, covered)))
    product = builder.emit(relax.op.prod(relax.op.stack(parts, axis=0), 0))
    widths = [one for a, n in enumerate(shape) for one in (0, n - covered[a])]
    if any(widths):
        product = builder.emit(relax.op.nn.pad(product, widths, "constant", 1.0))
    return builder.emit(relax.op.multiply(start, product))


_REDUCTIONS: dict[str, Callable[..., Expr]] = {
    "add": _added,
    "amax": partial(_compared, True),
    "amin": partial(_compared, False),
    "mean": _averaged,
    "multiply": _multiplied,
    "prod": _multiplied,
    "sum": _added,
}


def _along_axis(builder: Builder, x: Expr, index: Expr, source: Expr, axis: int) -> Expr:
    """An index of slices as an index of elements, shaped like the source."""
    shape = static_shape(source.ty)
    column = [-1 if a == axis else 1 for a in range(len(shape))]
    wide = relax.op.reshape(at_least_1d(builder, index), column)
    return builder.emit(relax.op.broadcast_to(builder.emit(wide), shape))


@writes
def index_add(builder: Builder, x: Expr, dim: int, index: Expr, source: Expr, alpha: float) -> Expr:
    """x with slices times alpha added at places."""
    data, values = at_least_1d(builder, x), at_least_1d(builder, source)
    axis = dim % len(static_shape(data.ty))
    if alpha != 1:
        values = builder.emit(relax.op.multiply(values, scalar(alpha, values)))
    places = _along_axis(builder, data, index, values, axis)
    made = builder.emit(relax.op.scatter_elements(data, places, values, axis, "add"))
    return like(builder, made, x)


@writes
def index_copy(builder: Builder, x: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    """x with slices written at places."""
    data, values = at_least_1d(builder, x), at_least_1d(builder, source)
    axis = dim % len(static_shape(data.ty))
    places = _along_axis(builder, data, index, values, axis)
    made = builder.emit(relax.op.scatter_elements(data, places, values, axis, "update"))
    return like(builder, made, x)


@writes
def index_fill(builder: Builder, x: Expr, dim: int, index: Expr, value: Expr | float) -> Expr:
    """x with one number in the slices at places; its gradient counts every element once."""
    data = at_least_1d(builder, x)
    shape = static_shape(data.ty)
    axis = dim % len(shape)
    places = at_least_1d(builder, index)
    hit = relax.op.scatter_elements(
        relax.const(np.zeros(shape[axis], "int8"), "int8"),
        places,
        relax.const(np.ones(static_shape(places.ty), "int8"), "int8"),
        0,
        "update",
    )
    column = [-1 if a == axis else 1 for a in range(len(shape))]
    is_hit = builder.emit(relax.op.not_equal(builder.emit(hit), relax.const(0, "int8")))
    mask = builder.emit(relax.op.reshape(is_hit, column))
    number = value if isinstance(value, ir.Expr) else scalar(value, data)
    return like(builder, builder.emit(relax.op.where(mask, number, data)), x)


@writes
def index_reduce(
    builder: Builder,
    x: Expr,
    dim: int,
    index: Expr,
    source: Expr,
    reduction: str,
    include_self: bool = True,
) -> Expr:
    """x with slices multiplied, averaged or compared at places."""
    data, values = at_least_1d(builder, x), at_least_1d(builder, source)
    axis = dim % len(static_shape(data.ty))
    places = _along_axis(builder, data, index, values, axis)
    made = _REDUCTIONS[reduction](builder, data, places, values, axis, include_self)
    return like(builder, made, x)


@writes
def put(builder: Builder, x: Expr, index: Expr, source: Expr, accumulate: bool) -> Expr:
    """x with elements written or added at places of the flat tensor."""
    extent, count = prod(static_shape(x.ty)), (prod(static_shape(index.ty)),)
    flat = builder.emit(relax.op.reshape(x, (extent,)))
    places = _counted_from_zero(builder, index, extent, count)
    values = builder.emit(relax.op.reshape(source, count))
    how = "add" if accumulate else "update"
    return like(builder, builder.emit(relax.op.scatter_elements(flat, places, values, 0, how)), x)


@writes
def masked_scatter(builder: Builder, x: Expr, mask: Expr, source: Expr) -> Expr:
    """x with the first elements of the source, one after the other, where the mask holds."""
    shape = np.broadcast_shapes(static_shape(x.ty), static_shape(mask.ty))
    whole = builder.emit(relax.op.broadcast_to(x, shape))
    here = builder.emit(relax.op.broadcast_to(mask, shape))
    flat = relax.op.reshape(relax.op.astype(here, "int64"), (prod(shape),))
    number = relax.op.subtract(relax.op.cumsum(flat, axis=0), relax.const(1, "int64"))
    number = builder.emit(relax.op.maximum(number, relax.const(0, "int64")))
    values = relax.op.reshape(source, (prod(static_shape(source.ty)),))
    read = builder.emit(relax.op.take(builder.emit(values), number, axis=0))
    return builder.emit(relax.op.where(here, relax.op.reshape(read, shape), whole))


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


def take(builder: Builder, x: Expr, index: Expr) -> Expr:
    """Elements by their place in the flat tensor."""
    count = prod(static_shape(x.ty))
    flat = builder.emit(relax.op.reshape(x, (count,)))
    place = _counted_from_zero(builder, index, count, static_shape(index.ty))
    return builder.emit(relax.op.take(flat, place, axis=0))


def index(builder: Builder, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """The elements at indices that broadcast to each other; None stands for all of an axis."""
    shape = static_shape(x.ty)
    chosen = [one for one in indices if one is not None]
    if any(str(one.ty.dtype) == "bool" for one in chosen):
        raise UnsupportedModelError(
            "elements chosen by a mask; use torch.where, whose shapes are known"
        )
    given, others, at, common = _axes_of(len(shape), indices)
    outer, inner = others[:at], others[at:]
    moved = builder.emit(relax.op.permute_dims(x, [*outer, *given, *inner]))
    extents = [shape[axis] for axis in given]
    flat = (*(shape[a] for a in outer), prod(extents), *(shape[a] for a in inner))
    moved = builder.emit(relax.op.reshape(moved, flat))
    row = relax.const(0, "int64")
    for one, extent in zip(chosen, extents, strict=True):
        place = _counted_from_zero(builder, one, extent, static_shape(one.ty))
        row = builder.emit(relax.op.multiply(row, relax.const(extent, "int64")))
        row = builder.emit(relax.op.add(row, place))
    if static_shape(row.ty) != common:
        row = builder.emit(relax.op.broadcast_to(row, common))
    return builder.emit(relax.op.take(moved, row, axis=at))


@writes
def index_put(
    builder: Builder,
    x: Expr,
    indices: Sequence[Expr | None],
    values: Expr,
    accumulate: bool = False,
) -> Expr:
    """x with values written (or added) at indices; None stands for all of an axis."""
    shape = static_shape(x.ty)
    masks = [index for index in indices if index is not None and str(index.ty.dtype) == "bool"]
    if masks:
        return _put_where(builder, x, indices, values, accumulate=accumulate)
    every = [*indices, *[None] * (len(shape) - len(indices))]
    _, others, at, common = _axes_of(len(shape), indices)
    front = tuple(shape[axis] for axis in others)
    whole = (*front[:at], *common, *front[at:])
    wide = builder.emit(relax.op.broadcast_to(values, whole))
    middle = list(range(at, at + len(common)))
    rest = [axis for axis in range(len(whole)) if axis not in middle]
    wide = builder.emit(relax.op.permute_dims(wide, middle + rest)) if at else wide
    places = []
    for axis, index in enumerate(every):
        if index is None:
            tail = [shape[axis] if one == axis else 1 for one in others]
            numbers = np.arange(shape[axis]).reshape([1] * len(common) + tail)
            places.append(relax.const(numbers, "int64"))
        else:
            spread = builder.emit(relax.op.broadcast_to(index, common))
            unit = (*common, *(1 for _ in others))
            places.append(_counted_from_zero(builder, spread, shape[axis], unit))
    return builder.emit(relax.op.index_put(x, tuple(places), wide, accumulate))


def _axes_of(
    rank: int, indices: Sequence[Expr | None]
) -> tuple[list[int], list[int], int, tuple[int, ...]]:
    """The axes with indices, those without, where among these what is indexed comes to stand, and
    the shape that the indices broadcast to.

    Indices of neighbouring axes stay where these are, others come first.
    """
    given = [axis for axis, one in enumerate(indices) if one is not None]
    others = [axis for axis in range(rank) if axis not in given]
    at = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    common = np.broadcast_shapes(*(static_shape(one.ty) for one in indices if one is not None))
    return given, others, at, common


def _counted_from_zero(builder: Builder, index: Expr, extent: int, shape: Sequence[int]) -> Expr:
    """The index as int64 in another shape; below 0 it counts from the end."""
    index = builder.emit(relax.op.astype(index, "int64"))
    index = builder.emit(pointwise("place", index, relax.const(extent, "int64")))
    return builder.emit(relax.op.reshape(index, tuple(shape)))


def _put_where(
    builder: Builder, x: Expr, indices: Sequence[Expr | None], values: Expr, *, accumulate: bool
) -> Expr:
    """One number at all places of one mask; how many values it takes else is not known beforehand."""
    (mask, *more) = indices
    if more or mask is None or prod(static_shape(values.ty)) != 1:
        raise UnsupportedModelError(
            "values written by a mask; use torch.where, whose shapes are known"
        )
    shape, known = static_shape(x.ty), static_shape(mask.ty)
    mask = builder.emit(relax.op.reshape(mask, (*known, *(1 for _ in shape[len(known) :]))))
    value = builder.emit(relax.op.reshape(values, ()))
    new = builder.emit(relax.op.add(x, value)) if accumulate else value
    return builder.emit(relax.op.where(mask, new, x))


CONVERTERS: dict[str, Converter] = {
    "_unsafe_index.Tensor": index,
    "_unsafe_index_put.default": index_put,
    "bucketize.Scalar": bucketize,
    "bucketize.Tensor": bucketize,
    "gather.default": gather,
    "histc.default": histogram,
    "index.Tensor": index,
    "index_add.default": index_add,
    "index_copy.default": index_copy,
    "index_fill.int_Scalar": index_fill,
    "index_fill.int_Tensor": index_fill,
    "index_put.default": index_put,
    "index_reduce.default": index_reduce,
    "index_select.default": index_select,
    "isin.Tensor_Scalar": isin,
    "isin.Tensor_Tensor": isin,
    "masked_scatter.default": masked_scatter,
    "put.default": put,
    "scatter.reduce": scatter_with,
    "scatter.src": partial(scatter, "update"),
    "scatter.value": partial(scatter, "update"),
    "scatter.value_reduce": scatter_with,
    "scatter_add.default": partial(scatter, "add"),
    "scatter_reduce.two": scatter_with,
    "searchsorted.Scalar": searchsorted,
    "searchsorted.Tensor": searchsorted,
    "take.default": take,
}
