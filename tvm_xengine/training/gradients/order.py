"""Gradients of ops that order elements: each goes to the position that the element came from."""

from __future__ import annotations

from math import prod

from tvm import relax

from tvm_xengine.kernels.te.indexing.merge_sort import ranked_by_merging
from tvm_xengine.kernels.te.indexing.order import place_of_extreme, ranked
from tvm_xengine.kernels.te.indexing.positions import positions_along_axis, read_at
from tvm_xengine.training.emitter import Emitter, Option, shape_of
from tvm_xengine.training.gradients.indexing import gathered_back
from tvm_xengine.training.gradients.shape import shaped
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

_POSITION_DTYPE = "int64"

_COUNTED = 64
"""Elements of a line up to which counting, in vectors and on all cores, takes less than merging does."""


def _sort(emitter: Emitter, site: Site) -> Linearized:
    axis = int(site.attrs.axis) % len(site.shape)
    descending = bool(site.attrs.descending)
    order = _ranked(emitter, site, axis, 0, site.shape[axis], descending, _POSITION_DTYPE)
    output = _picked(emitter, site, order, axis, site.name)
    return Linearized((output,), lambda gradients: (_back(emitter, site, gradients, order, axis),))


def _argsort(emitter: Emitter, site: Site) -> Linearized:
    axis = int(site.attrs.axis) % len(site.shape)
    descending, dtype = bool(site.attrs.descending), str(site.attrs.dtype)
    order = _ranked(emitter, site, axis, 0, site.shape[axis], descending, dtype)
    return Linearized((order,), lambda _gradients: (None,))


def _top_k(emitter: Emitter, site: Site) -> Linearized:
    """The largest (or smallest) elements, their positions, or both."""
    attrs, shape = site.attrs, shape_of(site.operands[0])
    axis = int(attrs.axis) % len(shape)
    count = site.shape[axis]
    order = _ranked(emitter, site, axis, 0, count, bool(attrs.largest), str(attrs.dtype))
    kind = str(attrs.ret_type)
    if kind == "indices":
        return Linearized((order,), lambda _gradients: (None,))
    values = _picked(emitter, site, order, axis, site.name)

    def pullback(gradients: Gradients) -> Gradients:
        return (_back(emitter, site, gradients, order, axis),)

    return Linearized((values, order) if kind == "both" else (values,), pullback)


def _median(emitter: Emitter, site: Site) -> Linearized:
    """The lower of the middle elements along one axis, as in PyTorch, and its position."""
    shape = shape_of(site.operands[0])
    axis = int(site.attrs.axis[0]) % len(shape)
    order = _ranked(emitter, site, axis, (shape[axis] - 1) // 2, 1, False, _POSITION_DTYPE)
    kept = _picked(emitter, site, order, axis, f"{site.name}_kept")
    outputs = tuple(
        shaped(emitter, value, site.shape, f"{site.name}_{k}")
        for k, value in enumerate((kept, order))
    )
    return Linearized(outputs, lambda gradients: (_back(emitter, site, gradients, order, axis),))


def _place(largest: bool) -> Rule:
    def rule(emitter: Emitter, site: Site) -> Linearized:
        """The first of the extremes, along an axis or in the flat tensor."""
        (data,) = site.operands
        axis, keepdims, shape = site.attrs.axis, bool(site.attrs.keepdims), shape_of(data)
        if axis is None:
            data = shaped(emitter, data, (prod(shape),), f"{site.name}_data")
            axis, keepdims = 0, False
        axis = int(axis) % len(shape_of(data))
        options = {"axis": axis, "largest": largest, "keepdims": keepdims}
        found = emitter.call(place_of_extreme, [data], site.name, **options)
        return Linearized(
            (shaped(emitter, found, site.shape, site.name),), lambda _gradients: (None,)
        )

    return rule


def _ranked(
    emitter: Emitter,
    site: Site,
    axis: int,
    first: int,
    count: int,
    descending: bool,
    dtype: str,
) -> relax.Expr:
    (data,) = site.operands
    options: dict[str, Option] = {
        "first": first,
        "count": count,
        "descending": descending,
        "dtype": dtype,
    }
    shape, name = shape_of(data), f"{site.name}_order"
    if shape[axis] <= _COUNTED:
        return emitter.call(ranked, [data], name, axis=axis, **options)
    before, behind = shape[:axis], shape[axis + 1 :]
    lines = shaped(emitter, data, (prod(before), shape[axis], prod(behind)), f"{site.name}_lines")
    found = emitter.call(ranked_by_merging, [lines], f"{site.name}_line_order", **options)
    return shaped(emitter, found, (*before, count, *behind), name)


def _picked(emitter: Emitter, site: Site, order: relax.Expr, axis: int, name: str) -> relax.Expr:
    """The elements at positions along an axis."""
    (data,) = site.operands
    shape = shape_of(data)
    where = emitter.call(
        positions_along_axis, [order], f"{site.name}_positions", axis=axis, shape=shape
    )
    flat = shaped(emitter, data, (prod(shape),), f"{site.name}_data")
    read = emitter.call(read_at, [flat, where], f"{site.name}_flat")
    return shaped(emitter, read, shape_of(order), name)


def _back(
    emitter: Emitter, site: Site, gradients: Gradients, order: relax.Expr, axis: int
) -> relax.Expr | None:
    if gradients[0] is None:
        return None
    gradient = shaped(emitter, gradients[0], shape_of(order), f"{site.name}_backward_kept")
    return gathered_back(emitter, site, gradient, order, shape_of(site.operands[0]), axis)


RULES: dict[str, Rule] = {
    "relax.argmax": _place(largest=True),
    "relax.argmin": _place(largest=False),
    "relax.argsort": _argsort,
    "relax.median": _median,
    "relax.sort": _sort,
    "relax.topk": _top_k,
}
