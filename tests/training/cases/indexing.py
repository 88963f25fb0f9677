"""Ops that read, write or order elements at positions known at run time."""

import numpy as np
import torch
from tvm import relax

from tests.training.cases.case import Array, Case, Draw, DrawCase

op = relax.op


def _signed(draw: Draw, extent: int, *shape: int) -> Array:
    """Positions on an axis, some of them counted from its end."""
    indices = draw.indices(extent, *shape)
    return np.asarray(indices - extent * draw.indices(2, *shape))


def _take(draw: Draw) -> Case:
    shape = draw.shape()
    axis = draw.axis(len(shape))
    indices = _signed(draw, shape[axis], *draw.shape(ranks=(0, 3)))

    def reference(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        first = axis % x.ndim
        return x[(slice(None),) * first + (i,)]

    return Case(
        lambda x, i: op.take(x, i, axis), reference, {"x": draw.normal(*shape), "i": indices}
    )


def _gather_elements(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 3))
    axis = draw.axis(len(shape))
    picked = [draw.integer(1, extent) for extent in shape]
    picked[axis] = draw.integer(1, 5)
    return Case(
        lambda x, i: op.gather_elements(x, i, axis),
        lambda x, i: x.gather(axis, i),
        {"x": draw.normal(*shape), "i": draw.indices(shape[axis], *picked)},
    )


def _scatter_elements(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 3))
    axis = draw.axis(len(shape))
    picked = [draw.integer(1, extent) for extent in shape]
    adds = draw.flag()
    if not adds:
        picked[axis] = draw.integer(1, shape[axis])
        order = np.argsort(draw.normal(*picked[:axis], shape[axis], *picked[axis:][1:]), axis=axis)
        indices = order.take(range(picked[axis]), axis)
    else:
        indices = draw.indices(shape[axis], *picked)
    return Case(
        lambda x, i, u: op.scatter_elements(x, i, u, axis, "add" if adds else "update"),
        lambda x, i, u: x.scatter_add(axis, i, u) if adds else x.scatter(axis, i, u),
        {"x": draw.normal(*shape), "i": indices, "u": draw.normal(*indices.shape)},
    )


def _tuples(draw: Draw, shape: list[int], depth: int, outer: list[int], distinct: bool) -> Array:
    """Vectors of positions on the leading axes, shape ``(*outer, depth)``."""
    flat_size = int(np.prod(shape[:depth]))
    count = int(np.prod(outer))
    if distinct:
        flat = np.argsort(draw.normal(flat_size))[:count].reshape(outer)
    else:
        flat = draw.indices(flat_size, *outer)
    return np.stack(np.unravel_index(flat, shape[:depth]), -1)


def _gather_nd(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 4))
    batch_rank = draw.integer(0, len(shape) - 1)
    depth = draw.integer(1, len(shape) - batch_rank)
    outer = draw.shape(ranks=(0, 2))
    batch = shape[:batch_rank]
    indices = _tuples(draw, shape[batch_rank:], depth, [*batch, *outer], False)

    def reference(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        grid = [
            torch.arange(extent).reshape([-1 if b == a else 1 for b in range(i.ndim - 1)])
            for a, extent in enumerate(batch)
        ]
        return x[(*grid, *i.unbind(-1))]

    return Case(
        lambda x, i: op.gather_nd(x, i, batch_rank),
        reference,
        {"x": draw.normal(*shape), "i": indices},
    )


def _scatter_nd(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 4))
    depth = draw.integer(1, len(shape))
    adds = draw.flag()
    count = draw.integer(1, 4 if adds else int(np.prod(shape[:depth])))
    indices = _tuples(draw, shape, depth, [count], not adds)
    return Case(
        lambda x, i, u: op.scatter_nd(x, i, u, "add" if adds else "update"),
        lambda x, i, u: x.index_put(i.unbind(-1), u, accumulate=adds),
        {"x": draw.normal(*shape), "i": indices, "u": draw.normal(count, *shape[depth:])},
    )


def _index_tensor(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 4))
    depth = draw.integer(1, len(shape))
    parts = draw.broadcastable(depth)
    indices = {
        f"i{k}": _signed(draw, extent, *part)
        for k, (extent, part) in enumerate(zip(shape, parts, strict=False))
    }
    return Case(
        lambda x, *i: op.index_tensor(x, list(i)),
        lambda x, *i: x[i],
        {"x": draw.normal(*shape), **indices},
    )


def _index_put(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 3))
    adds = draw.flag()
    count = draw.integer(1, 4 if adds else int(np.prod(shape)))
    indices = _tuples(draw, shape, len(shape), [count], not adds)
    return Case(
        lambda x, *iv: op.index_put(x, relax.Tuple(iv[:-1]), iv[-1], adds),
        lambda x, *iv: x.index_put(iv[:-1], iv[-1], accumulate=adds),
        {
            "x": draw.normal(*shape),
            **{f"i{k}": indices[..., k].copy() for k in range(len(shape))},
            "values": draw.normal(draw.one_of([1, count])),
        },
    )


def _slice_scatter(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 3), extents=(1, 6))
    axis = draw.axis(len(shape))
    step = draw.integer(1, 2)
    begin = draw.integer(0, shape[axis] - 1)
    end = draw.integer(begin + 1, shape[axis])
    inner = list(shape)
    inner[axis] = len(range(begin, end, step))
    return Case(
        lambda x, u: op.slice_scatter(x, u, begin, end, step, axis),
        lambda x, u: x.slice_scatter(u, axis, begin, end, step),
        {"x": draw.normal(*shape), "u": draw.normal(*inner)},
    )


def _sort(draw: Draw) -> Case:
    shape = draw.shape()
    axis, descending = draw.axis(len(shape)), draw.flag()
    return Case(
        lambda x: op.sort(x, axis, descending),
        lambda x: x.sort(axis, descending).values,
        {"x": draw.distinct(*shape)},
    )


def _argsort(draw: Draw) -> Case:
    shape = draw.shape()
    axis, descending = draw.axis(len(shape)), draw.flag()
    return Case(
        lambda x: op.gather_elements(x, op.argsort(x, axis, descending, "int64"), axis),
        lambda x: x.gather(axis, x.argsort(axis, descending)),
        {"x": draw.distinct(*shape)},
    )


def _topk(draw: Draw) -> Case:
    shape = draw.shape()
    axis, largest = draw.axis(len(shape)), draw.flag()
    count = draw.integer(1, shape[axis])
    both = draw.flag()

    def operator(x: relax.Expr) -> relax.Expr:
        made = op.topk(x, count, axis, "both" if both else "values", largest)
        return made[0] if both else made

    return Case(
        operator,
        lambda x: x.topk(count, axis, largest).values,
        {"x": draw.distinct(*shape)},
    )


def _median(draw: Draw) -> Case:
    shape = draw.shape()
    axis, keep = draw.axis(len(shape)), draw.flag()
    if draw.flag():
        return Case(op.median, torch.median, {"x": draw.distinct(*shape)})
    return Case(
        lambda x: op.median(x, [axis], keep)[0],
        lambda x: x.median(axis, keep).values,
        {"x": draw.distinct(*shape)},
    )


CASES: dict[str, list[DrawCase]] = {
    "take": [_take],
    "gather_elements": [_gather_elements],
    "gather_nd": [_gather_nd],
    "index_tensor": [_index_tensor],
    "index_put": [_index_put],
    "scatter_elements": [_scatter_elements],
    "scatter_nd": [_scatter_nd],
    "slice_scatter": [_slice_scatter],
    "argsort": [_argsort],
    "sort": [_sort],
    "topk": [_topk],
    "median": [_median],
}
