"""Ops that copy elements to other places, and their gradients."""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var


def slice_scatter(
    data: te.Tensor, part: te.Tensor, *, axis: int, begin: int, step: int
) -> te.Tensor:
    """`data` with the elements of `part` from `begin` on, every `step` along an axis."""
    whole, count = int(data.shape[axis]), int(part.shape[axis])

    def element(*i: Var) -> Expr:
        offset = i[axis] - begin
        place = offset if step == 1 else tvm.tirx.floordiv(offset, step)
        conditions = [offset >= 0] if begin else []
        if begin + count * step < whole:
            conditions.append(place < count)
        if step != 1:
            conditions.append(tvm.tirx.floormod(offset, step) == 0)
        value = part(*i[:axis], place, *i[axis + 1 :])
        if not conditions:
            return value
        return tvm.tirx.if_then_else(tvm.tirx.all(*conditions), value, data(*i))

    return te.compute(data.shape, element, name="scattered")


def parts_backward(
    *output_gradients: te.Tensor, shape: tuple[int, ...], axis: int, begins: tuple[int, ...]
) -> te.Tensor:
    """The gradients of parts of an axis, each from its `begin` on, in this order; zero elsewhere."""
    counts = [int(part.shape[axis]) for part in output_gradients]

    def of_part(number: int, i: tuple[Var, ...]) -> Expr:
        offset = i[axis] - begins[number]
        value = output_gradients[number](*i[:axis], offset, *i[axis + 1 :])
        next_begin = (*begins, shape[axis])[number + 1]
        conditions = [offset >= 0] if number == 0 and begins[0] > 0 else []
        if begins[number] + counts[number] < next_begin:
            conditions.append(offset < counts[number])
        if not conditions:
            return value
        zero = tvm.tirx.const(0, value.ty.dtype)
        return tvm.tirx.if_then_else(tvm.tirx.all(*conditions), value, zero)

    def among(first: int, end: int, i: tuple[Var, ...]) -> Expr:
        """Halving: of a thousand parts an element looks at ten."""
        if end - first == 1:
            return of_part(first, i)
        middle = (first + end) // 2
        return tvm.tirx.if_then_else(
            i[axis] < begins[middle], among(first, middle, i), among(middle, end, i)
        )

    return te.compute(shape, lambda *i: among(0, len(begins), i), name="data_gradient")


def slice_backward(
    output_gradient: te.Tensor,
    *,
    shape: tuple[int, ...],
    begin: tuple[int, ...],
    strides: tuple[int, ...],
) -> te.Tensor:
    """The gradient where the slice read, zero elsewhere; `begin` and `strides` for every axis."""
    extents = [int(extent) for extent in output_gradient.shape]

    def data_gradient(*i: Var) -> Expr:
        at, conditions = [], []
        for a, index in enumerate(i):
            offset = index - begin[a] if strides[a] > 0 else begin[a] - index
            step = abs(strides[a])
            position = offset if step == 1 else tvm.tirx.floordiv(offset, step)
            if step != 1:
                conditions.append(tvm.tirx.floormod(offset, step) == 0)
            if extents[a] != shape[a]:
                conditions += [offset >= 0, position < extents[a]]
            at.append(position)
        value = output_gradient(*at)
        if not conditions:
            return value
        zero = tvm.tirx.const(0, output_gradient.dtype)
        return tvm.tirx.if_then_else(tvm.tirx.all(*conditions), value, zero)

    return te.compute(shape, data_gradient, name="data_gradient")


def tile_backward(output_gradient: te.Tensor, *, shape: tuple[int, ...]) -> te.Tensor:
    """The sum over all copies; `shape` has as many axes as the output."""
    copies = [int(whole) // part for whole, part in zip(output_gradient.shape, shape, strict=True)]
    k = [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(copies)]
    return te.compute(
        shape,
        lambda *i: te.sum(
            output_gradient(*(k[a] * shape[a] + i[a] for a in range(len(shape)))), axis=k
        ),
        name="data_gradient",
    )


def repeat_backward(output_gradient: te.Tensor, *, axis: int, repeats: int) -> te.Tensor:
    """The sum over the copies of each element along an axis."""
    shape = [int(extent) for extent in output_gradient.shape]
    shape[axis] //= repeats
    k = te.reduce_axis((0, repeats), name="k")
    return te.compute(
        shape,
        lambda *i: te.sum(
            output_gradient(*i[:axis], i[axis] * repeats + k, *i[axis + 1 :]), axis=k
        ),
        name="data_gradient",
    )


def pad_backward(
    output_gradient: te.Tensor,
    *,
    shape: tuple[int, ...],
    before: tuple[int, ...],
    mode: str,
) -> te.Tensor:
    """Gradient of padding by mirrored ("reflect") or repeated ("edge") or wrapped elements.

    Every input element gathers the output elements that copied it.
    """
    full = [int(extent) for extent in output_gradient.shape]
    padded = [a for a in range(len(shape)) if full[a] != shape[a]]
    k = {a: te.reduce_axis((0, full[a]), name=f"k{a}") for a in padded}

    def source(position: Expr, a: int) -> Expr:
        inner = position - before[a]
        last = shape[a] - 1
        if mode == "edge":
            return te.max(te.min(inner, last), 0)
        if mode == "reflect":
            inner = te.abs(inner)
            return tvm.tirx.Select(inner > last, 2 * last - inner, inner)
        return tvm.tirx.floormod(inner, shape[a])

    def data_gradient(*i: Var) -> Expr:
        at = [k[a] if a in k else i[a] for a in range(len(shape))]
        copied = tvm.tirx.all(*(source(k[a], a) == i[a] for a in padded))
        zero = tvm.tirx.const(0, output_gradient.dtype)
        return te.sum(
            tvm.tirx.if_then_else(copied, output_gradient(*at), zero), axis=list(k.values())
        )

    return te.compute(shape, data_gradient, name="data_gradient")
