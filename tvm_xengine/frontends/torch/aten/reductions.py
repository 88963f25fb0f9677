"""Sums, products, extremes and spreads along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod

import torch
from tvm import ir, relax

from tvm_xengine.frontends.torch.aten.arithmetic import truth
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, dtype_name, scalar
from tvm_xengine.frontends.torch.aten.creation import as_type
from tvm_xengine.relax_ir.matrix_ops import value_and_change
from tvm_xengine.relax_ir.own_ops import pointwise, running_extreme_position, running_log_sum
from tvm_xengine.relax_ir.types import static_shape

Reduction = Callable[..., Expr]
Dims = int | Sequence[int] | None


def axes_of(x: Expr, dim: Dims) -> list[int]:
    """The axes that are named, counted from the front; all where none is."""
    rank = len(static_shape(x.ty))
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return list(range(rank))
    return sorted({axis % max(rank, 1) for axis in ([dim] if isinstance(dim, int) else dim)})


def reduced(reduction: Reduction, builder: Builder, x: Expr, dim: Dims, keepdim: bool) -> Expr:
    """A reduction of Relax; of a scalar it is the scalar."""
    if not isinstance(x, relax.Var | ir.GenericConst):
        x = builder.emit(x)
    if not static_shape(x.ty):
        return x
    return builder.emit(reduction(x, axes_of(x, dim), keepdims=keepdim))


def total(
    reduction: Reduction,
    builder: Builder,
    x: Expr,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Expr:
    """A sum, mean or product, in a given type; whole numbers are added up in int64."""
    return reduced(reduction, builder, _as_summed(builder, x, dtype), dim, keepdim)


def _as_summed(builder: Builder, x: Expr, dtype: torch.dtype | None) -> Expr:
    if dtype is not None:
        return as_type(builder, x, dtype_name(dtype))
    return x if "float" in str(x.ty.dtype) else as_type(builder, x, "int64")


def _of_all(reduction: Reduction, builder: Builder, x: Expr, dtype: torch.dtype | None) -> Expr:
    return total(reduction, builder, x, None, False, dtype)


def product_of_all(builder: Builder, x: Expr, dtype: torch.dtype | None = None) -> Expr:
    """The product of all elements; with more than one zero its gradient is 0, whatever the others are."""
    if "float" in str(x.ty.dtype) and static_shape(x.ty):
        fixed = builder.emit(relax.op.grad.no_grad(x))
        zeros = relax.op.astype(relax.op.equal(fixed, scalar(0, x)), "int32")
        several = builder.emit(relax.op.greater(relax.op.sum(zeros), relax.const(1, "int32")))
        x = builder.emit(relax.op.where(several, fixed, x))
    return _of_all(relax.op.prod, builder, x, dtype)


def variance(builder: Builder, x: Expr, dim: Dims, correction: float | None, keepdim: bool) -> Expr:
    """Variance; `correction` is subtracted from the number of elements (None means 1).

    Of no more elements than that it is what PyTorch divides by zero.
    """
    shape = static_shape(x.ty)
    axes = axes_of(x, dim)
    count = prod(shape[axis] for axis in axes)
    divisor = max(count - (1 if correction is None else correction), 0)
    deviation = builder.emit(
        relax.op.subtract(x, relax.op.mean(x, axes, keepdims=True) if shape else x)
    )
    squares = reduced(relax.op.sum, builder, relax.op.square(deviation), axes, keepdim)
    if divisor == 0:
        return builder.emit(relax.op.multiply(squares, scalar(inf, x)))
    if len(axes) == 0:
        return builder.emit(relax.op.multiply(squares, scalar(1 / divisor, x)))
    biased = builder.emit(relax.op.variance(x, axes, keepdims=keepdim))
    factor = count / divisor
    return biased if factor == 1 else builder.emit(relax.op.multiply(biased, scalar(factor, x)))


def deviation(
    builder: Builder, x: Expr, dim: Dims, correction: float | None, keepdim: bool
) -> Expr:
    """The square root of the variance; without gradient where that is zero."""
    return builder.emit(pointwise("safe_sqrt", variance(builder, x, dim, correction, keepdim)))


def spread_and_mean(
    spread: Reduction, builder: Builder, x: Expr, dim: Dims, correction: float | None, keepdim: bool
) -> list[Expr]:
    """(variance or its square root, mean)."""
    mean = reduced(relax.op.mean, builder, x, dim, keepdim)
    return [spread(builder, x, dim, correction, keepdim), mean]


def extreme(
    reduction: Reduction, builder: Builder, x: Expr, dim: Dims = None, keepdim: bool = False
) -> Expr:
    """Maximum or minimum over axes; equal ones share the gradient."""
    if str(x.ty.dtype) == "bool":
        small = relax.op.astype(x, "int8")
        made = reduced(reduction, builder, builder.emit(small), dim, keepdim)
        return as_type(builder, made, "bool")
    return reduced(reduction, builder, x, dim, keepdim)


def extreme_of_all(reduction: Reduction, builder: Builder, x: Expr) -> Expr:
    """Maximum or minimum of all elements; equal ones share the gradient, or else all NaN do."""
    if "float" not in str(x.ty.dtype) or not static_shape(x.ty):
        return extreme(reduction, builder, x)
    value = extreme(reduction, builder, builder.emit(relax.op.grad.no_grad(x)))
    return _shared(builder, value, x, x, list(range(len(static_shape(x.ty)))), False)


def _shared(
    builder: Builder, value: Expr, compared: Expr, x: Expr, axes: Sequence[int], keepdim: bool
) -> Expr:
    """The value, whose derivative is the mean of `x` where `compared` equals it, or is NaN as it is."""
    shape = [1 if axis in axes else n for axis, n in enumerate(static_shape(x.ty))]
    wide = builder.emit(relax.op.reshape(value, shape))
    fixed = builder.emit(relax.op.grad.no_grad(compared))
    missing = relax.op.logical_and(relax.op.isnan(wide), relax.op.isnan(fixed))
    chosen = builder.emit(relax.op.logical_or(relax.op.equal(fixed, wide), missing))
    count = relax.op.sum(relax.op.astype(chosen, str(x.ty.dtype)), axes, keepdims=keepdim)
    kept = builder.emit(relax.op.where(chosen, x, scalar(0, x)))
    mean = relax.op.divide(relax.op.sum(kept, axes, keepdims=keepdim), builder.emit(count))
    return builder.emit(value_and_change(value, builder.emit(mean)))


def both_extremes(builder: Builder, x: Expr, dim: int | None, keepdim: bool) -> list[Expr]:
    """(minimum, maximum)."""
    return [extreme(one, builder, x, dim, keepdim) for one in (relax.op.min, relax.op.max)]


def holds(
    reduction: Reduction, builder: Builder, x: Expr, dim: Dims = None, keepdim: bool = False
) -> Expr:
    """Whether any element differs from zero, or all of them do."""
    tested = truth(x)
    return extreme(
        reduction, builder, tested if tested is x else builder.emit(tested), dim, keepdim
    )


def place(reduction: Reduction, builder: Builder, x: Expr, dim: int | None, keepdim: bool) -> Expr:
    """Where along an axis, or in the flat tensor, the first of the extremes lies."""
    shape = static_shape(x.ty)
    if not shape:
        return relax.const(0, "int64")
    if str(x.ty.dtype) == "bool":
        x = builder.emit(relax.op.astype(x, "int8"))
    if dim is None:
        flat = builder.emit(relax.op.reshape(x, (prod(shape),)))
        found = builder.emit(reduction(flat, 0, keepdims=False))
        return builder.emit(relax.op.reshape(found, (1,) * len(shape))) if keepdim else found
    return builder.emit(reduction(x, dim % len(shape), keepdims=keepdim))


def extreme_with_place(
    reduction: Reduction, builder: Builder, x: Expr, dim: int, keepdim: bool
) -> list[Expr]:
    """(maximum or minimum, its position) along an axis; the gradient goes to that position."""
    shape = static_shape(x.ty)
    if not shape:
        return [x, relax.const(0, "int64")]
    found = place(reduction, builder, x, dim, True)
    return [picked(builder, x, found, dim, keepdim), squeezed(builder, found, dim, keepdim)]


def picked(builder: Builder, x: Expr, at: Expr, dim: int, keepdim: bool) -> Expr:
    """The elements at positions of length 1 along an axis."""
    axis = dim % len(static_shape(x.ty))
    return squeezed(builder, builder.emit(relax.op.gather_elements(x, at, axis=axis)), dim, keepdim)


def squeezed(builder: Builder, x: Expr, dim: int, keepdim: bool) -> Expr:
    """x without an axis of length 1, unless that is kept."""
    shape = list(static_shape(x.ty))
    if keepdim or not shape:
        return x
    del shape[dim % len(shape)]
    return builder.emit(relax.op.reshape(x, shape))


def running(
    reduction: Reduction, builder: Builder, x: Expr, dim: int, dtype: torch.dtype | None
) -> Expr:
    """Running sums or products along an axis."""
    x = _as_summed(builder, x, dtype)
    rank = len(static_shape(x.ty))
    return builder.emit(reduction(x, axis=dim % rank)) if rank else x


def running_extreme(largest: bool, builder: Builder, x: Expr, dim: int) -> list[Expr]:
    """(the greatest or least elements so far, the positions of the last of them)."""
    rank = len(static_shape(x.ty))
    if not rank:
        return [x, relax.const(0, "int64")]
    data = x
    if str(x.ty.dtype) == "bool":
        data = builder.emit(relax.op.astype(x, "int8"))
    at = builder.emit(running_extreme_position(data, dim % rank, largest=largest))
    return [builder.emit(relax.op.gather_elements(x, at, axis=dim % rank)), at]


def logcumsumexp(builder: Builder, x: Expr, dim: int) -> Expr:
    """log of the running sums of exp(x) along an axis."""
    rank = len(static_shape(x.ty))
    return builder.emit(running_log_sum(x, dim % rank)) if rank else x


def logsumexp(builder: Builder, x: Expr, dim: Dims, keepdim: bool) -> Expr:
    """log of the sum of exp(x) over axes, which neither overflows nor loses infinities."""
    if "float" not in str(x.ty.dtype):
        x = as_type(builder, x, dtype_name(torch.get_default_dtype()))
    if not static_shape(x.ty):
        return x
    axes = axes_of(x, dim)
    most = relax.op.grad.no_grad(builder.emit(relax.op.max(x, axes, keepdims=True)))
    most = builder.emit(relax.op.where(relax.op.isfinite(most), most, scalar(0, x)))
    summed = relax.op.sum(relax.op.exp(relax.op.subtract(x, most)), axes, keepdims=True)
    made = builder.emit(relax.op.add(relax.op.log(summed), most))
    shape = [n for axis, n in enumerate(static_shape(x.ty)) if axis not in axes]
    return made if keepdim else builder.emit(relax.op.reshape(made, shape))


def vector_norm(
    builder: Builder, x: Expr, order: float, dim: Dims, keepdim: bool, dtype: torch.dtype | None
) -> Expr:
    """(sum of |x|^order)^(1 / order), its limits at the infinities, the count of nonzeros at 0.

    Where the norm is zero it has the gradient zero.
    """
    if dtype is not None:
        x = as_type(builder, x, dtype_name(dtype))
    if order == 0:
        nonzero = relax.op.astype(relax.op.not_equal(x, scalar(0, x)), str(x.ty.dtype))
        return reduced(relax.op.sum, builder, builder.emit(nonzero), dim, keepdim)
    size = builder.emit(relax.op.abs(x))
    if order in (float("inf"), -float("inf")):
        if not static_shape(x.ty):
            return size
        pick = relax.op.max if order > 0 else relax.op.min
        fixed = builder.emit(relax.op.grad.no_grad(size))
        value = reduced(pick, builder, fixed, dim, keepdim)
        return _shared(builder, value, size, size, axes_of(x, dim), keepdim)
    if order == 1:
        return reduced(relax.op.sum, builder, size, dim, keepdim)
    if order == 2:
        squares = builder.emit(relax.op.square(x))
        summed = reduced(relax.op.sum, builder, squares, dim, keepdim)
        return builder.emit(pointwise("safe_sqrt", summed))
    powers = builder.emit(pointwise("abs_power", x, order))
    return builder.emit(
        pointwise("root", reduced(relax.op.sum, builder, powers, dim, keepdim), order)
    )


def nan_counted_out(
    builder: Builder, x: Expr, dim: Dims, keepdim: bool, dtype: torch.dtype | None
) -> Expr:
    """The mean of what is no NaN."""
    if dtype is not None:
        x = as_type(builder, x, dtype_name(dtype))
    missing = builder.emit(relax.op.isnan(x))
    known = builder.emit(relax.op.where(missing, scalar(0, x), x))
    ones = builder.emit(relax.op.where(missing, scalar(0, x), scalar(1, x)))
    count = reduced(relax.op.sum, builder, ones, dim, keepdim)
    return builder.emit(relax.op.divide(reduced(relax.op.sum, builder, known, dim, keepdim), count))


def nan_sum(builder: Builder, x: Expr, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Expr:
    """The sum of what is no NaN."""
    if "float" in str(x.ty.dtype):
        x = builder.emit(relax.op.where(relax.op.isnan(x), scalar(0, x), x))
    return total(relax.op.sum, builder, x, dim, keepdim, dtype)


def count_nonzero(builder: Builder, x: Expr, dim: Dims = None) -> Expr:
    """How many elements are not zero."""
    ones = builder.emit(relax.op.astype(truth(x), "int64"))
    return reduced(relax.op.sum, builder, ones, dim, False)


CONVERTERS: dict[str, Converter] = {
    "all.default": partial(holds, relax.op.min),
    "all.dim": partial(holds, relax.op.min),
    "all.dims": partial(holds, relax.op.min),
    "amax.default": partial(extreme, relax.op.max),
    "amin.default": partial(extreme, relax.op.min),
    "aminmax.default": both_extremes,
    "any.default": partial(holds, relax.op.max),
    "any.dim": partial(holds, relax.op.max),
    "any.dims": partial(holds, relax.op.max),
    "argmax.default": partial(place, relax.op.argmax),
    "argmin.default": partial(place, relax.op.argmin),
    "count_nonzero.default": count_nonzero,
    "count_nonzero.dim_IntList": count_nonzero,
    "cummax.default": partial(running_extreme, True),
    "cummin.default": partial(running_extreme, False),
    "cumprod.default": partial(running, relax.op.cumprod),
    "cumsum.default": partial(running, relax.op.cumsum),
    "linalg_vector_norm.default": vector_norm,
    "logcumsumexp.default": logcumsumexp,
    "logsumexp.default": logsumexp,
    "max.default": partial(extreme_of_all, relax.op.max),
    "max.dim": partial(extreme_with_place, relax.op.argmax),
    "mean.default": partial(_of_all, relax.op.mean),
    "mean.dim": partial(total, relax.op.mean),
    "min.default": partial(extreme_of_all, relax.op.min),
    "min.dim": partial(extreme_with_place, relax.op.argmin),
    "nanmean.default": nan_counted_out,
    "nansum.default": nan_sum,
    "prod.default": product_of_all,
    "prod.dim_int": partial(total, relax.op.prod),
    "std.correction": deviation,
    "std_mean.correction": partial(spread_and_mean, deviation),
    "sum.default": partial(_of_all, relax.op.sum),
    "sum.dim_IntList": partial(total, relax.op.sum),
    "var.correction": variance,
    "var_mean.correction": partial(spread_and_mean, variance),
}
