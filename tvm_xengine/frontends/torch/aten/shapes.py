"""The same elements in another shape or order, and parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.types import static_shape


def rank_of(x: Expr) -> int:
    """The number of axes."""
    return len(static_shape(x.ty))


def reshape(builder: Builder, x: Expr, size: Sequence[int]) -> Expr:
    """x in another shape; -1 stands for what is left."""
    shape = static_shape(x.ty)
    wanted = [int(extent) for extent in size]
    if -1 in wanted:
        known = -prod(wanted)
        wanted[wanted.index(-1)] = prod(shape) // known if known else 0
    return x if tuple(wanted) == shape else builder.emit(relax.op.reshape(x, wanted))


def flatten(builder: Builder, x: Expr, start_dim: int, end_dim: int) -> Expr:
    """x with some axes as one."""
    shape = static_shape(x.ty) or (1,)
    first, last = start_dim % len(shape), end_dim % len(shape)
    return reshape(builder, x, [*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]])


def expand(builder: Builder, x: Expr, size: Sequence[int], _implicit: bool = False) -> Expr:
    """x repeated along axes of length 1, and along new ones in front; -1 keeps an axis."""
    shape = static_shape(x.ty)
    new = len(size) - len(shape)
    wanted = [shape[k - new] if extent == -1 else int(extent) for k, extent in enumerate(size)]
    return x if tuple(wanted) == shape else builder.emit(relax.op.broadcast_to(x, wanted))


def permute(builder: Builder, x: Expr, dims: Sequence[int]) -> Expr:
    """x with its axes in another order."""
    rank = rank_of(x)
    order = [axis % rank for axis in dims]
    return x if order == list(range(rank)) else builder.emit(relax.op.permute_dims(x, order))


def transpose(builder: Builder, x: Expr, first: int, second: int) -> Expr:
    """x with two axes exchanged."""
    rank = rank_of(x)
    order = list(range(rank))
    if rank:
        a, b = first % rank, second % rank
        order[a], order[b] = b, a
    return permute(builder, x, order)


def matrix_transposed(builder: Builder, x: Expr) -> Expr:
    """A matrix with rows and columns exchanged; less than a matrix as it is."""
    return transpose(builder, x, 0, 1) if rank_of(x) == 2 else x


def squeeze(builder: Builder, x: Expr, dim: int | Sequence[int] | None = None) -> Expr:
    """x without (some of) the axes of length 1."""
    shape = static_shape(x.ty)
    if dim is None:
        dims = list(range(len(shape)))
    else:
        dims = [axis % max(len(shape), 1) for axis in ([dim] if isinstance(dim, int) else dim)]
    kept = [extent for axis, extent in enumerate(shape) if axis not in dims or extent != 1]
    return reshape(builder, x, kept)


def unsqueeze(builder: Builder, x: Expr, dim: int) -> Expr:
    """x with a new axis of length 1."""
    shape = list(static_shape(x.ty))
    shape.insert(dim % (len(shape) + 1), 1)
    return reshape(builder, x, shape)


def concat(builder: Builder, tensors: Sequence[Expr], dim: int) -> Expr:
    """Tensors one behind the other; vectors without elements fit everywhere."""
    full = [one for one in tensors if static_shape(one.ty) != (0,)]
    if len(full) == 1:
        return full[0]
    return builder.emit(relax.op.concat(full, axis=dim % rank_of(full[0])))


def stack(builder: Builder, tensors: Sequence[Expr], dim: int) -> Expr:
    """Tensors along a new axis."""
    return concat(
        builder, [unsqueeze(builder, one, dim) for one in tensors], dim % (rank_of(tensors[0]) + 1)
    )


def sliced(
    builder: Builder, x: Expr, dim: int, start: int | None, end: int | None, step: int
) -> Expr:
    """Every step-th element from start to before end of an axis."""
    shape = static_shape(x.ty)
    axis = dim % len(shape)
    first, last, _ = slice(start, end, step).indices(shape[axis])
    if (first, last, step) == (0, shape[axis], 1):
        return x
    return builder.emit(relax.op.strided_slice(x, [axis], [first], [last], [step]))


def slice_scatter(
    builder: Builder, x: Expr, source: Expr, dim: int, start: int | None, end: int | None, step: int
) -> Expr:
    """x with the source in the place of a slice."""
    shape = static_shape(x.ty)
    axis = dim % len(shape)
    first, last, _ = slice(start, end, step).indices(shape[axis])
    if first >= last:
        return x
    numbers = [relax.prim_value(int(one)) for one in (first, last, step)]
    return builder.emit(relax.op.slice_scatter(x, source, *numbers, axis=axis))


def select(builder: Builder, x: Expr, dim: int, index: int) -> Expr:
    """The slice at a position, without the axis."""
    shape = static_shape(x.ty)
    axis = dim % len(shape)
    position = index % shape[axis]
    part = relax.op.strided_slice(x, [axis], [position], [position + 1])
    return builder.emit(relax.op.reshape(part, shape[:axis] + shape[axis + 1 :]))


def split(builder: Builder, x: Expr, sizes: int | Sequence[int], dim: int) -> list[Expr]:
    """Parts of given lengths along an axis, or of one length and a rest."""
    axis = dim % rank_of(x)
    length = static_shape(x.ty)[axis]
    if isinstance(sizes, int):
        count = max(1, -(-length // sizes)) if sizes else 1
        sizes = [sizes] * (count - 1) + [length - sizes * (count - 1)]
    parts, start = [], 0
    for size in sizes:
        parts.append(sliced(builder, x, axis, start, start + int(size), 1))
        start += int(size)
    return parts


def unbind(builder: Builder, x: Expr, dim: int) -> list[Expr]:
    """All slices along an axis."""
    return [select(builder, x, dim, k) for k in range(static_shape(x.ty)[dim % rank_of(x)])]


def flip(builder: Builder, x: Expr, dims: Sequence[int]) -> Expr:
    """x from behind along axes."""
    for axis in dims:
        if rank_of(x):
            x = builder.emit(relax.op.flip(x, axis % rank_of(x)))
    return x


def roll(builder: Builder, x: Expr, shifts: Sequence[int], dims: Sequence[int]) -> Expr:
    """x moved along axes, what leaves at the end comes in at the start; flat without axes."""
    shape = static_shape(x.ty)
    if not dims:
        flat = roll(builder, reshape(builder, x, [prod(shape)]), shifts, [0])
        return reshape(builder, flat, shape)
    if not shape:
        return x
    for shift, dim in zip(shifts, dims, strict=True):
        axis = dim % len(shape)
        cut = -shift % shape[axis]
        if cut:
            parts = [sliced(builder, x, axis, cut, None, 1), sliced(builder, x, axis, 0, cut, 1)]
            x = builder.emit(relax.op.concat(parts, axis=axis))
    return x


def repeat(builder: Builder, x: Expr, repeats: Sequence[int]) -> Expr:
    """Copies of x along each axis, new axes in front."""
    if all(count == 1 for count in repeats) and len(repeats) == rank_of(x):
        return x
    shape = (1,) * (len(repeats) - rank_of(x)) + static_shape(x.ty)
    return builder.emit(relax.op.tile(reshape(builder, x, shape), [int(one) for one in repeats]))


def taken(builder: Builder, x: Expr, places: np.ndarray, axis: int) -> Expr:
    """Slices at places that are known."""
    return builder.emit(relax.op.take(x, relax.const(places, "int64"), axis=axis))


def at_places(builder: Builder, x: Expr, places: np.ndarray) -> Expr:
    """Elements at known places of the flat tensor."""
    flat = reshape(builder, x, [prod(static_shape(x.ty))])
    made = taken(builder, flat, places.reshape(-1), 0)
    return reshape(builder, made, places.shape)


def diagonal(builder: Builder, x: Expr, offset: int, first: int, second: int) -> Expr:
    """The diagonal of two axes as the last axis."""
    shape = static_shape(x.ty)
    places = np.arange(prod(shape)).reshape(shape)
    return at_places(builder, x, np.diagonal(places, offset, first, second).copy())


def diagonal_scatter(
    builder: Builder, x: Expr, source: Expr, offset: int, first: int, second: int
) -> Expr:
    """x with another diagonal."""
    shape = static_shape(x.ty)
    places = np.diagonal(np.arange(prod(shape)).reshape(shape), offset, first, second)
    return _written(builder, x, source, places)


def select_scatter(builder: Builder, x: Expr, source: Expr, dim: int, index: int) -> Expr:
    """x with another slice at a position."""
    position = index % static_shape(x.ty)[dim % rank_of(x)]
    part = unsqueeze(builder, source, dim % rank_of(x))
    return slice_scatter(builder, x, part, dim, position, position + 1, 1)


def as_strided(
    builder: Builder, x: Expr, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Expr:
    """Elements of the flat tensor at equal distances along each new axis."""
    return at_places(builder, x, _strided_places(size, stride, offset))


def resize(builder: Builder, x: Expr, size: Sequence[int], _memory_format: object = None) -> Expr:
    """The first elements in another shape; what a larger one would hold is not defined."""
    count, known = prod(int(n) for n in size), prod(static_shape(x.ty))
    if count > known:
        raise UnsupportedModelError(
            f"a resize from {known} to {count} elements, of which the new ones are not defined;"
            " use torch.nn.functional.pad"
        )
    flat = builder.emit(relax.op.strided_slice(reshape(builder, x, [known]), [0], [0], [count]))
    return reshape(builder, flat, size)


def resize_as(builder: Builder, x: Expr, template: Expr, _memory_format: object = None) -> Expr:
    """The first elements in the shape of another tensor."""
    return resize(builder, x, static_shape(template.ty))


def _strided_places(size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    places = np.full(tuple(int(n) for n in size), offset or 0, "int64")
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        along = [-1 if a == axis else 1 for a in range(len(size))]
        places = places + np.arange(int(extent)).reshape(along) * int(step)
    return places


def _written(builder: Builder, x: Expr, source: Expr, places: np.ndarray) -> Expr:
    shape = static_shape(x.ty)
    flat = reshape(builder, x, [prod(shape)])
    values = reshape(builder, expand(builder, source, places.shape), [places.size])
    where = relax.const(np.ascontiguousarray(places).reshape(-1), "int64")
    made = builder.emit(relax.op.scatter_elements(flat, where, values, 0, "update"))
    return reshape(builder, made, shape)


def constant_pad(builder: Builder, x: Expr, pad: Sequence[int], value: float) -> Expr:
    """x with a number around it, the last axis first; negative widths cut off."""
    rank = rank_of(x)
    widths = [0] * (2 * rank)
    for k, axis in enumerate(range(rank - 1, rank - 1 - len(pad) // 2, -1)):
        before, behind = int(pad[2 * k]), int(pad[2 * k + 1])
        length = static_shape(x.ty)[axis]
        x = sliced(builder, x, axis, max(0, -before), length - max(0, -behind), 1)
        widths[2 * axis : 2 * axis + 2] = [max(0, before), max(0, behind)]
    if not any(widths):
        return x
    if str(x.ty.dtype) == "bool":
        whole = relax.op.astype(x, "int8")
        padded = relax.op.nn.pad(whole, widths, "constant", float(value))
        return builder.emit(relax.op.not_equal(padded, relax.const(0, "int8")))
    return builder.emit(relax.op.nn.pad(x, widths, "constant", value))


def edge_pad(mode: str, builder: Builder, x: Expr, pad: Sequence[int]) -> Expr:
    """x with its own elements around it, reflected or the outermost ones repeated."""
    rank = rank_of(x)
    for k in range(len(pad) // 2):
        axis = rank - 1 - k
        before, behind = int(pad[2 * k]), int(pad[2 * k + 1])
        if not before and not behind:
            continue
        length = static_shape(x.ty)[axis]
        places = np.arange(-before, length + behind)
        if mode == "reflect":
            places = np.abs(places)
            places = (length - 1) - np.abs(length - 1 - places)
        x = taken(builder, x, np.clip(places, 0, length - 1), axis)
    return x


def triangle(upper: bool, builder: Builder, x: Expr, offset: int) -> Expr:
    """x on one side of a diagonal, zero on the other."""
    rows, columns = static_shape(x.ty)[-2:]
    mask = (
        ~np.tri(rows, columns, offset - 1, bool) if upper else np.tri(rows, columns, offset, bool)
    )
    return builder.emit(relax.op.where(relax.const(mask, "bool"), x, scalar(0, x)))


def product_along(builder: Builder, x: Expr, axis: int, matrix: np.ndarray) -> Expr:
    """x times a matrix of (old extent, new extent) along an axis."""
    dtype, rank = str(x.ty.dtype), rank_of(x)
    order = [*(a for a in range(rank) if a != axis), axis]
    last = permute(builder, x, order)
    made = builder.emit(relax.op.matmul(last, relax.const(matrix.astype(dtype), dtype)))
    return permute(builder, made, [order.index(a) for a in range(rank)])


def channel_shuffle(builder: Builder, x: Expr, groups: int) -> Expr:
    """Channels of groups, dealt out in turn."""
    batch, channels, *space = static_shape(x.ty)
    split_up = reshape(builder, x, [batch, groups, channels // groups, *space])
    return reshape(builder, transpose(builder, split_up, 1, 2), [batch, channels, *space])


_VIEWS: dict[str, Converter] = {
    "as_strided": as_strided,
    "diagonal": diagonal,
    "expand": expand,
    "permute": permute,
    "split_with_sizes": split,
    "t": matrix_transposed,
    "unsqueeze": unsqueeze,
}

CONVERTERS: dict[str, Converter] = {
    "resize.default": resize,
    "resize_as.default": resize_as,
    **{f"{name}.default": convert for name, convert in _VIEWS.items()},
    **{f"{name}_copy.default": convert for name, convert in _VIEWS.items()},
    **{
        f"{name}.default": reshape
        for name in ("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy")
    },
    **{
        f"{name}.{form}": convert
        for base, form, convert in (
            ("select", "int", select),
            ("slice", "Tensor", sliced),
            ("split", "Tensor", split),
            ("squeeze", "default", squeeze),
            ("squeeze", "dim", squeeze),
            ("squeeze", "dims", squeeze),
            ("transpose", "int", transpose),
            ("unbind", "int", unbind),
        )
        for name in (base, f"{base}_copy")
    },
    **{f"reflection_pad{rank}d.default": partial(edge_pad, "reflect") for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d.default": partial(edge_pad, "edge") for rank in (1, 2, 3)},
    "cat.default": concat,
    "channel_shuffle.default": channel_shuffle,
    "constant_pad_nd.default": constant_pad,
    "diagonal_scatter.default": diagonal_scatter,
    "flatten.using_ints": flatten,
    "flip.default": flip,
    "repeat.default": repeat,
    "roll.default": roll,
    "select_scatter.default": select_scatter,
    "slice_scatter.default": slice_scatter,
    "stack.default": stack,
    "tril.default": partial(triangle, False),
    "triu.default": partial(triangle, True),
}
