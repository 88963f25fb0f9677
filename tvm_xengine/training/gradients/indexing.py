"""Gradients of ops that read elements at positions known at run time."""

from __future__ import annotations

from math import prod

from tvm import relax

from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.kernels.scatter import gather_backward, take_backward
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _take(emitter: Emitter, site: Site) -> Linearized:
    """Rows (or columns) by number: the embedding look-up."""
    (output,) = site.emit(emitter)
    data, indices = site.operands
    shape = shape_of(data)
    axis = 0 if site.attrs.axis is None else int(site.attrs.axis) % len(shape)

    def pullback(gradients: Gradients) -> Gradients:
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        count = prod(shape_of(indices))
        return (
            _added_up(
                emitter,
                site,
                [gradients[0], indices],
                [(outer, count, inner), (count,)],
                take_backward,
                axis,
            ),
            None,
        )

    return Linearized((output,), pullback)


def _gather_elements(emitter: Emitter, site: Site) -> Linearized:
    (output,) = site.emit(emitter)
    data, indices = site.operands
    shape, picked = shape_of(data), shape_of(indices)
    axis = int(site.attrs.axis) % len(shape)

    def pullback(gradients: Gradients) -> Gradients:
        outer, inner = prod(picked[:axis]), prod(picked[axis + 1 :])
        whole = (outer, picked[axis], inner)
        tensors = [gradients[0], indices]
        return (
            _added_up(emitter, site, tensors, [whole, whole], gather_backward, axis),
            None,
        )

    return Linearized((output,), pullback)


def _added_up(
    emitter: Emitter,
    site: Site,
    tensors: list[relax.Expr],
    shapes: list[tuple[int, ...]],
    kernel: object,
    axis: int,
) -> relax.Expr:
    """The scattering kernel on (outer, axis, inner), reshaped before and after where needed."""
    shape = shape_of(site.operands[0])
    name = site.grad_name(0)
    flat = [
        value
        if shape_of(value) == wanted
        else emitter.bind(relax.op.reshape(value, wanted), f"{site.name}_backward_input")
        for value, wanted in zip(tensors, shapes, strict=True)
    ]
    made = emitter.call(kernel, flat, name, extent=shape[axis])  # type: ignore[arg-type]
    if shape_of(made) == shape:
        return made
    return emitter.bind(relax.op.reshape(made, shape), f"{name}_shaped")


RULES: dict[str, Rule] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
}
