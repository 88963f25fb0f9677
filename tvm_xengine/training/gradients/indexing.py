"""Gradients of ops that read or write elements at positions known at run time."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.indexing.positions import (
    positions_along_axis,
    positions_of_slices,
    positions_of_tuples,
    read_at,
    take,
)
from tvm_xengine.kernels.te.indexing.scatter import (
    WRITTEN,
    gather_backward,
    take_backward,
    write_at,
)
from tvm_xengine.training.emitter import Emitter, Kernel, dtype_of, shape_of
from tvm_xengine.training.gradients.elements.elementwise import reduce_to
from tvm_xengine.training.gradients.shape import shaped
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site, by_pullback

Locate = Callable[[Emitter, Site], relax.Expr]
"""Emits the flat positions of the elements that an op reads or writes in its first operand."""


def _take(emitter: Emitter, site: Site) -> Linearized:
    """Rows (or columns) by number: the embedding look-up."""
    data, indices = site.operands
    shape = shape_of(data)
    axis = 0 if site.attrs.axis is None else int(site.attrs.axis) % len(shape)
    output = emitter.call(take, [data, indices], site.name, axis=axis)

    def pullback(gradients: Gradients) -> Gradients:
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        count = prod(shape_of(indices))
        tensors = [
            shaped(emitter, gradients[0], (outer, count, inner), f"{site.name}_backward_input"),
            shaped(emitter, indices, (count,), f"{site.name}_indices"),
        ]
        made = emitter.call(take_backward, tensors, site.grad_name(0), extent=shape[axis])
        return (shaped(emitter, made, shape, f"{site.grad_name(0)}_shaped"), None)

    return Linearized((output,), pullback)


def _gather_elements(emitter: Emitter, site: Site) -> Linearized:
    axis = int(site.attrs.axis) % len(shape_of(site.operands[0]))
    output = read_elements(emitter, site, positions(emitter, site, axis))

    def pullback(gradients: Gradients) -> Gradients:
        data, indices = site.operands
        return (gathered_back(emitter, site, gradients[0], indices, shape_of(data), axis), None)

    return Linearized((output,), pullback)


def gathered_back(
    emitter: Emitter,
    site: Site,
    gradient: relax.Expr,
    indices: relax.Expr,
    shape: tuple[int, ...],
    axis: int,
) -> relax.Expr:
    """The gradient of ``gather_elements(data, indices, axis)`` for data of a shape."""
    picked = shape_of(indices)
    outer, inner = prod(picked[:axis]), prod(picked[axis + 1 :])
    whole = (outer, picked[axis], inner)
    tensors = [
        shaped(emitter, gradient, whole, f"{site.name}_backward_input"),
        shaped(emitter, indices, whole, f"{site.name}_indices"),
    ]
    name = site.grad_name(0)
    made = emitter.call(gather_backward, tensors, name, extent=shape[axis])
    covered = (*picked[:axis], shape[axis], *picked[axis + 1 :])
    made = shaped(emitter, made, covered, f"{name}_shaped")
    if covered == shape:
        return made
    widths = [width for a in range(len(shape)) for width in (0, shape[a] - covered[a])]
    return emitter.bind(relax.op.nn.pad(made, widths), f"{name}_padded")


def _reading(locate: Locate) -> Rule:
    """The rule of an op that reads elements of its first operand."""

    def rule(emitter: Emitter, site: Site) -> Linearized:
        where = locate(emitter, site)
        output = read_elements(emitter, site, where)

        def pullback(gradients: Gradients) -> Gradients:
            data = site.operands[0]
            size = (prod(shape_of(data)),)
            zeros = emitter.bind(relax.op.zeros(size, dtype_of(data)), f"{site.name}_zeros")
            flat = shaped(emitter, gradients[0], (prod(site.shape),), f"{site.name}_backward_input")
            added = emitter.call(write_at, [zeros, where, flat], site.grad_name(0), how="add")
            gradient = shaped(emitter, added, shape_of(data), f"{site.grad_name(0)}_shaped")
            return (gradient, *(None for _ in site.operands[1:]))

        return Linearized((output,), pullback)

    return rule


def _writing(locate: Locate) -> Rule:
    """The rule of an op that writes (or adds) its last operand to elements of the first one."""

    def rule(emitter: Emitter, site: Site) -> Linearized:
        data, *_, values = site.operands
        reduction = _reduction(site)
        if reduction not in ("update", "add") and any(site.needs):
            raise UnsupportedModelError(
                f"{site.name}: {site.source.op} with the reduction {reduction!r} has no gradient,"
                " only 'update' and 'add' have one"
            )
        if reduction not in WRITTEN:
            return Linearized(site.emit(emitter), lambda _gradients: (None,) * len(site.operands))
        where = locate(emitter, site)
        count, size = prod(shape_of(where)), prod(shape_of(data))
        written = _written_shape(site)
        wide = values
        if shape_of(values) != written:
            spread = relax.op.broadcast_to(values, written)
            wide = emitter.bind(spread, f"{site.name}_values")
        tensors = [
            shaped(emitter, data, (size,), f"{site.name}_data"),
            where,
            shaped(emitter, wide, (count,), f"{site.name}_flat_values"),
        ]
        flat = emitter.call(write_at, tensors, f"{site.name}_flat", how=reduction)
        output = shaped(emitter, flat, shape_of(data), site.name)

        def pullback(gradients: Gradients) -> Gradients:
            pulled: list[relax.Expr | None] = [None] * len(site.operands)
            gradient = shaped(emitter, gradients[0], (size,), f"{site.name}_backward_input")
            if site.needs[0]:
                pulled[0] = gradients[0]
            if site.needs[0] and reduction == "update":
                zeros = emitter.bind(relax.op.zeros((count,), dtype_of(data)), f"{site.name}_zeros")
                kept = emitter.call(
                    write_at, [gradient, where, zeros], site.grad_name(0), how="update"
                )
                pulled[0] = shaped(emitter, kept, shape_of(data), f"{site.grad_name(0)}_shaped")
            if site.needs[-1]:
                name = site.grad_name(len(site.operands) - 1)
                read = emitter.call(read_at, [gradient, where], name)
                read = shaped(emitter, read, written, f"{name}_shaped")
                pulled[-1] = reduce_to(emitter, read, shape_of(values), f"{name}_summed")
            return tuple(pulled)

        return Linearized((output,), pullback)

    return rule


def _written_shape(site: Site) -> tuple[int, ...]:
    """The shape of the values that are written, before they are broadcast to it."""
    data, *indices, values = site.operands
    if site.source.op != "relax.index_put":
        return shape_of(values)
    common = np.broadcast_shapes(*(shape_of(index) for index in indices))
    return (*common, *shape_of(data)[len(indices) :])


def read_elements(emitter: Emitter, site: Site, where: relax.Expr) -> relax.Expr:
    """The elements of the first operand at flat positions, in the shape of the result."""
    data = site.operands[0]
    flat = shaped(emitter, data, (prod(shape_of(data)),), f"{site.name}_data")
    if shape_of(where) == site.shape:
        return emitter.call(read_at, [flat, where], site.name)
    read = emitter.call(read_at, [flat, where], f"{site.name}_flat")
    return emitter.bind(relax.op.reshape(read, site.shape), site.name)


def positions(emitter: Emitter, site: Site, axis: int) -> relax.Expr:
    """Flat positions for indices (the second operand) along an axis."""
    data, indices = site.operands[:2]
    return _located(emitter, site, positions_along_axis, [indices], axis=axis, shape=shape_of(data))


def _along_axis(emitter: Emitter, site: Site) -> relax.Expr:
    return positions(emitter, site, int(site.attrs.axis) % len(shape_of(site.operands[0])))


def _by_slices(emitter: Emitter, site: Site) -> relax.Expr:
    indices = site.operands[1:-1] if site.source.op == "relax.index_put" else site.operands[1:]
    shape = shape_of(site.operands[0])
    return _located(emitter, site, positions_of_slices, list(indices), shape=shape)


def _by_tuples(emitter: Emitter, site: Site) -> relax.Expr:
    batch_rank = int(site.attrs.batch_dims) if site.source.op == "relax.gather_nd" else 0
    return _located(
        emitter,
        site,
        positions_of_tuples,
        [site.operands[1]],
        shape=shape_of(site.operands[0]),
        batch_rank=batch_rank,
    )


def _located(
    emitter: Emitter, site: Site, kernel: Kernel, indices: list[relax.Expr], **options: object
) -> relax.Expr:
    return emitter.call(kernel, indices, f"{site.name}_positions", **options)  # type: ignore[arg-type]


def _reduction(site: Site) -> str:
    if site.source.op == "relax.index_put":
        return "add" if site.attrs.accumulate else "update"
    return str(site.attrs.reduction)


@by_pullback
def _slice_scatter(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    axis = int(site.attrs.axis) % len(site.shape)
    begin, end, step = (int(argument) for argument in site.source.call.args[2:])
    inner = site.operands[1]
    pulled: list[relax.Expr | None] = [None, None]
    if site.needs[0]:
        zeros = emitter.bind(relax.op.zeros(shape_of(inner), dtype_of(inner)), f"{site.name}_zeros")
        rest = relax.op.slice_scatter(gradient, zeros, begin, end, step, axis)
        pulled[0] = emitter.bind(rest, site.grad_name(0))
    if site.needs[1]:
        part = relax.op.strided_slice(gradient, [axis], [begin], [end], [step])
        pulled[1] = emitter.bind(part, site.grad_name(1))
    return tuple(pulled)


RULES: dict[str, Rule] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _reading(_by_tuples),
    "relax.index_tensor": _reading(_by_slices),
    "relax.index_put": _writing(_by_slices),
    "relax.scatter_elements": _writing(_along_axis),
    "relax.scatter_nd": _writing(_by_tuples),
    "relax.slice_scatter": _slice_scatter,
}
