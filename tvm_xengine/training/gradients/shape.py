"""Gradients of ops that move elements."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.gradients.elementwise import reduce_to
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _reshape(emitter: Emitter, site: Site) -> Linearized:
    (output,) = site.emit(emitter)

    def pullback(gradients: Gradients) -> Gradients:
        shape = shape_of(site.operands[0])
        return (emitter.bind(relax.op.reshape(gradients[0], shape), site.grad_name(0)),)

    return Linearized((output,), pullback)


def _permute_dims(emitter: Emitter, site: Site) -> Linearized:
    (output,) = site.emit(emitter)
    rank = len(site.shape)
    axes = site.attrs.axes
    order = [int(axis) % rank for axis in axes] if axes is not None else [*reversed(range(rank))]

    def pullback(gradients: Gradients) -> Gradients:
        inverse = [order.index(axis) for axis in range(rank)]
        return (emitter.bind(relax.op.permute_dims(gradients[0], inverse), site.grad_name(0)),)

    return Linearized((output,), pullback)


def _broadcast_to(emitter: Emitter, site: Site) -> Linearized:
    (output,) = site.emit(emitter)

    def pullback(gradients: Gradients) -> Gradients:
        shape = shape_of(site.operands[0])
        return (reduce_to(emitter, gradients[0], shape, site.grad_name(0)),)

    return Linearized((output,), pullback)


RULES: dict[str, Rule] = {
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
    "relax.permute_dims": _permute_dims,
    "relax.broadcast_to": _broadcast_to,
}
