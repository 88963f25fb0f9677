"""Elements and slices read or written at places along one axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from math import inf, prod

import numpy as np
from tvm import ir, relax

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
    def converted(*arguments: object, **options: object) -> Expr:
        given = [part for one in arguments for part in (one if isinstance(one, list) else [one])]
        x, *others = (
            one
            for one in given
            if isinstance(one, ir.Expr) and isinstance(one.ty, relax.TensorType)
        )
        is_empty = any(prod(static_shape(one.ty)) == 0 for one in others)
        return x if is_empty else convert(*arguments, **options)

    return converted


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
def scatter(
    builder: Builder,
    x: Expr,
    dim: int,
    index: Expr,
    source: Expr | float,
    reduction: str,
    include_self: bool = True,
) -> Expr:
    """x with the leading part of `source`, shaped like `index`, at its places.

    Values are written there, added, multiplied, averaged or compared; equal ones share gradients.
    """
    data, places = at_least_1d(builder, x), at_least_1d(builder, index)
    values = _leading_part(builder, source, places, x)
    axis = dim % len(static_shape(data.ty))
    made = _REDUCTIONS[reduction](builder, data, places, values, axis, include_self)
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
    """x with slices written, added, multiplied, averaged or compared at places."""
    data, values = at_least_1d(builder, x), at_least_1d(builder, source)
    axis = dim % len(static_shape(data.ty))
    places = _along_axis(builder, data, index, values, axis)
    made = _REDUCTIONS[reduction](builder, data, places, values, axis, include_self)
    return like(builder, made, x)


def _along_axis(builder: Builder, x: Expr, index: Expr, source: Expr, axis: int) -> Expr:
    """An index of slices as an index of elements, shaped like the source."""
    shape = static_shape(source.ty)
    column = [-1 if a == axis else 1 for a in range(len(shape))]
    wide = relax.op.reshape(at_least_1d(builder, index), column)
    return builder.emit(relax.op.broadcast_to(builder.emit(wide), shape))


def index_add(builder: Builder, x: Expr, dim: int, index: Expr, source: Expr, alpha: float) -> Expr:
    """x with slices times alpha added at places."""
    if alpha != 1:
        source = builder.emit(relax.op.multiply(source, scalar(alpha, source)))
    return index_reduce(builder, x, dim, index, source, "add")


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


def _updated(
    builder: Builder, x: Expr, index: Expr, values: Expr, axis: int, _include_self: bool
) -> Expr:
    return builder.emit(relax.op.scatter_elements(x, index, values, axis, "update"))


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
    dtype = str(x.ty.dtype)
    is_float = "float" in dtype
    limits = (-inf, inf) if is_float else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    start = fixed if include_self else _emptied(builder, fixed, index, axis, limits[not largest])
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
    "update": _updated,
}


CONVERTERS: dict[str, Converter] = {
    "gather.default": gather,
    "index_add.default": index_add,
    "index_copy.default": partial(index_reduce, reduction="update"),
    "index_fill.int_Scalar": index_fill,
    "index_fill.int_Tensor": index_fill,
    "index_reduce.default": index_reduce,
    "index_select.default": index_select,
    "scatter.reduce": scatter,
    "scatter.src": partial(scatter, reduction="update"),
    "scatter.value": partial(scatter, reduction="update"),
    "scatter.value_reduce": scatter,
    "scatter_add.default": partial(scatter, reduction="add"),
    "scatter_reduce.two": scatter,
}
