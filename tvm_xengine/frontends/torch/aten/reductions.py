"""Sums, products, extremes and spreads along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.elementwise import logaddexp
from tvm_xengine.frontends.torch.aten.literals import scalar
from tvm_xengine.relax_ir.types import static_shape

Reduction = Callable[..., relax.Expr]


def var(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: Sequence[int] | None,
    correction: float | None,
    keepdim: bool,
) -> relax.Expr:
    """Variance; `correction` is subtracted from the number of elements (None means 1)."""
    shape = static_shape(x.ty)
    axes = list(range(len(shape))) if not dim else [axis % len(shape) for axis in dim]
    count = prod(shape[axis] for axis in axes)
    biased = builder.emit(relax.op.variance(x, axes, keepdims=keepdim))
    factor = count / max(count - (1 if correction is None else correction), 0)
    return biased if factor == 1 else builder.emit(relax.op.multiply(biased, scalar(factor, x)))


def std(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: Sequence[int] | None,
    correction: float | None,
    keepdim: bool,
) -> relax.Expr:
    """The square root of the variance."""
    return builder.emit(relax.op.sqrt(var(builder, x, dim, correction, keepdim)))


def spread_and_mean(
    spread: Reduction,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: Sequence[int] | None,
    correction: float | None,
    keepdim: bool,
) -> list[relax.Expr]:
    """(variance or its square root, mean)."""
    mean = builder.emit(relax.op.mean(x, list(dim) if dim else None, keepdims=keepdim))
    return [spread(builder, x, dim, correction, keepdim), mean]


def extreme(
    reduction: Reduction,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: Sequence[int],
    keepdim: bool,
) -> relax.Expr:
    """Maximum or minimum over axes."""
    return builder.emit(reduction(x, list(dim) or None, keepdims=keepdim))


def product(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: int | None = None,
    keepdim: bool = False,
) -> relax.Expr:
    """Product along an axis, or of all elements."""
    return builder.emit(relax.op.prod(x, None if dim is None else [dim], keepdims=keepdim))


def extreme_with_place(
    reduction: Reduction,
    place: Reduction,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: int,
    keepdim: bool,
) -> list[relax.Expr]:
    """(maximum or minimum, its position) along an axis."""
    return [
        builder.emit(reduction(x, [dim], keepdims=keepdim)),
        builder.emit(place(x, dim, keepdims=keepdim)),
    ]


def logcumsumexp(builder: relax.BlockBuilder, x: relax.Expr, dim: int) -> relax.Expr:
    """log of the running sums of exp(x) along an axis, by adding what lies 1, 2, 4, ... before."""
    shape = static_shape(x.ty)
    if not shape:
        return x
    axis = dim % len(shape)
    distance = 1
    while distance < shape[axis]:
        before = builder.emit(relax.op.strided_slice(x, [axis], [0], [shape[axis] - distance]))
        behind = builder.emit(relax.op.strided_slice(x, [axis], [distance], [shape[axis]]))
        head = builder.emit(relax.op.strided_slice(x, [axis], [0], [distance]))
        x = builder.emit(relax.op.concat([head, logaddexp(builder, before, behind)], axis=axis))
        distance *= 2
    return x


CONVERTERS: dict[str, Converter] = {
    "amax.default": partial(extreme, relax.op.max),
    "amin.default": partial(extreme, relax.op.min),
    "logcumsumexp.default": logcumsumexp,
    "max.dim": partial(extreme_with_place, relax.op.max, relax.op.argmax),
    "min.dim": partial(extreme_with_place, relax.op.min, relax.op.argmin),
    "prod.default": lambda builder, x, _: product(builder, x),
    "prod.dim_int": lambda builder, x, dim, keepdim, _: product(builder, x, dim, keepdim),
    "std.correction": std,
    "std_mean.correction": partial(spread_and_mean, std),
    "var.correction": var,
    "var_mean.correction": partial(spread_and_mean, var),
}
