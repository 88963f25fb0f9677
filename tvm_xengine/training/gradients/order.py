"""Gradients of ops that order elements: each goes back to where the element came from."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.gradients.indexing import gathered_back
from tvm_xengine.training.gradients.shape import shaped
from tvm_xengine.training.kernels.positions import positions_along_axis, read_at
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _sort(emitter: Emitter, site: Site) -> Linearized:
    (data,) = site.operands
    axis = int(site.attrs.axis) % len(site.shape)
    order = emitter.bind(
        relax.op.argsort(data, axis, bool(site.attrs.descending)), f"{site.name}_order"
    )
    where = emitter.call(
        positions_along_axis, [order], f"{site.name}_positions", axis=axis, shape=site.shape
    )
    size = shape_of(where)
    flat = emitter.call(
        read_at, [shaped(emitter, data, size, f"{site.name}_data"), where], f"{site.name}_flat"
    )
    output = shaped(emitter, flat, site.shape, site.name)

    def pullback(gradients: Gradients) -> Gradients:
        return (gathered_back(emitter, site, gradients[0], order, site.shape, axis),)

    return Linearized((output,), pullback)


def _top_k(emitter: Emitter, site: Site) -> Linearized:
    """The largest (or smallest) elements; their positions are needed even if nobody asked."""
    (data,) = site.operands
    attrs = site.attrs
    shape = shape_of(data)
    axis = int(attrs.axis) % len(shape)
    both = relax.op.topk(data, int(attrs.k), axis, "both", bool(attrs.largest), str(attrs.dtype))
    made = emitter.bind(both, f"{site.name}_both")
    values, indices = (
        emitter.bind(relax.TupleGetItem(made, k), f"{site.name}_{kind}")
        for k, kind in enumerate(("values", "indices"))
    )
    kept = {"both": (values, indices), "values": (values,), "indices": (indices,)}

    def pullback(gradients: Gradients) -> Gradients:
        if gradients[0] is None or str(attrs.ret_type) == "indices":
            return (None,)
        return (gathered_back(emitter, site, gradients[0], indices, shape, axis),)

    return Linearized(kept[str(attrs.ret_type)], pullback)


def _median(emitter: Emitter, site: Site) -> Linearized:
    """The lower of the middle elements along one axis, as in PyTorch."""
    (data,) = site.operands
    shape = shape_of(data)
    axis = int(site.attrs.axis[0]) % len(shape)
    values, indices = site.emit(emitter)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])

    def pullback(gradients: Gradients) -> Gradients:
        if gradients[0] is None:
            return (None,)
        gradient = shaped(emitter, gradients[0], kept, f"{site.name}_backward_input")
        index = shaped(emitter, indices, kept, f"{site.name}_index")
        return (gathered_back(emitter, site, gradient, index, shape, axis),)

    return Linearized((values, indices), pullback)


RULES: dict[str, Rule] = {
    "relax.median": _median,
    "relax.sort": _sort,
    "relax.topk": _top_k,
}
