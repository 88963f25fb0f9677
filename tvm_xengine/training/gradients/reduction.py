"""Gradients of reductions."""

from __future__ import annotations

from math import prod

from tvm import relax

from tvm_xengine.kernels.te.reduction import (
    extremum_backward,
    product_backward,
    spread,
    variance_backward,
)
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site, by_pullback


@by_pullback
def _sum(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    return _spread(emitter, site, gradient, 1.0)


@by_pullback
def _mean(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    shape = shape_of(site.operands[0])
    return _spread(emitter, site, gradient, 1 / prod(shape[a] for a in _reduced_axes(site)))


def _spread(emitter: Emitter, site: Site, gradient: relax.Expr, factor: float) -> Gradients:
    tensors, shape = [_without_axes(emitter, gradient, site)], shape_of(site.operands[0])
    axes, name = _reduced_axes(site), site.grad_name(0)
    return (emitter.call(spread, tensors, name, shape=shape, axes=axes, factor=factor),)


@by_pullback
def _variance(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    tensors = [_without_axes(emitter, gradient, site), site.operands[0]]
    axes = _reduced_axes(site)
    return (emitter.call(variance_backward, tensors, site.grad_name(0), axes=axes),)


def _extremum(emitter: Emitter, site: Site) -> Linearized:
    (output,) = site.emit(emitter)

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [
            _without_axes(emitter, gradients[0], site),
            site.operands[0],
            _without_axes(emitter, output, site),
        ]
        axes = _reduced_axes(site)
        return (emitter.call(extremum_backward, tensors, site.grad_name(0), axes=axes),)

    return Linearized((output,), pullback)


@by_pullback
def _product(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    tensors = [_without_axes(emitter, gradient, site), site.operands[0]]
    axes = _reduced_axes(site)
    return (emitter.call(product_backward, tensors, site.grad_name(0), axes=axes),)


def _reduced_axes(site: Site) -> tuple[int, ...]:
    """The axes that the op reduces, from 0."""
    rank = len(shape_of(site.operands[0]))
    axes = site.attrs.axis
    return tuple(range(rank)) if axes is None else tuple(sorted(int(axis) % rank for axis in axes))


def _without_axes(emitter: Emitter, value: relax.Expr, site: Site) -> relax.Expr:
    """A tensor shaped like the result, with reduced axes of length one taken out."""
    shape = shape_of(site.operands[0])
    kept = tuple(extent for a, extent in enumerate(shape) if a not in _reduced_axes(site))
    if shape_of(value) == kept:
        return value
    return emitter.bind(relax.op.reshape(value, kept), f"{site.name}_without_axes")


RULES: dict[str, Rule] = {
    "relax.max": _extremum,
    "relax.mean": _mean,
    "relax.min": _extremum,
    "relax.prod": _product,
    "relax.sum": _sum,
    "relax.variance": _variance,
}
