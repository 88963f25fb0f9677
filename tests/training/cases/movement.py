"""Ops that move, copy and cut elements."""

import torch
import torch.nn.functional as F
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase

op, nn = relax.op, relax.op.nn


def _factors(draw: Draw, count: int) -> list[int]:
    """A shape with that many elements, one extent perhaps left to be found."""
    shape = []
    while count > 1:
        divisor = draw.one_of([d for d in range(2, count + 1) if count % d == 0])
        shape.append(divisor)
        count //= divisor
    return shape or [1]


def _reshape(draw: Draw) -> Case:
    shape = draw.shape()
    count = 1
    for extent in shape:
        count *= extent
    target = _factors(draw, count)
    if draw.flag():
        target[draw.integer(0, len(target) - 1)] = -1
    return Case(
        lambda x: op.reshape(x, target), lambda x: x.reshape(target), {"x": draw.normal(*shape)}
    )


def _expand_dims(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 3))
    axis = draw.integer(-len(shape) - 1, len(shape))
    return Case(
        lambda x: op.expand_dims(x, axis), lambda x: x.unsqueeze(axis), {"x": draw.normal(*shape)}
    )


def _squeeze(draw: Draw) -> Case:
    shape = draw.shape(ranks=(2, 4), extents=(1, 3))
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    axes = draw.some_of(ones) if ones and draw.flag() else None
    return Case(
        lambda x: op.squeeze(x, axes),
        lambda x: x.squeeze() if axes is None else x.squeeze(axes),
        {"x": draw.normal(*shape)},
    )


def _flatten(draw: Draw) -> Case:
    return Case(op.flatten, torch.flatten, {"x": draw.normal(*draw.shape())})


def _batch_flatten(draw: Draw) -> Case:
    return Case(
        nn.batch_flatten, lambda x: x.flatten(1), {"x": draw.normal(*draw.shape(ranks=(2, 4)))}
    )


def _permute_dims(draw: Draw) -> Case:
    shape = draw.shape()
    order = None if draw.flag() else draw.permutation(range(len(shape)))
    if order is not None:
        order = [axis - draw.one_of([0, len(shape)]) for axis in order]
    return Case(
        lambda x: op.permute_dims(x, order),
        lambda x: x.permute(order if order is not None else tuple(reversed(range(x.ndim)))),
        {"x": draw.normal(*shape)},
    )


def _broadcast_to(draw: Draw) -> Case:
    full, part = draw.broadcastable(2)
    return Case(
        lambda x: op.broadcast_to(x, full), lambda x: x.expand(full), {"x": draw.normal(*part)}
    )


def _collapse_sum_to(draw: Draw) -> Case:
    full, part = draw.broadcastable(2)
    return Case(
        lambda x: op.collapse_sum_to(x, tuple(part)),
        lambda x: x.sum_to_size(part),
        {"x": draw.normal(*full)},
    )


def _collapse_sum_like(draw: Draw) -> Case:
    full, part = draw.broadcastable(2)
    return Case(
        op.collapse_sum_like,
        lambda x, like: x.sum_to_size(like.shape),
        {"x": draw.normal(*full), "like": draw.normal(*part)},
        fixed=("like",),
    )


def _concat(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 3))
    axis = draw.axis(len(shape))
    operands = {}
    for k in range(draw.integer(1, 4)):
        shape[axis] = draw.integer(1, 3)
        operands[f"x{k}"] = draw.normal(*shape)
    return Case(
        lambda *parts: op.concat(list(parts), axis), lambda *parts: torch.cat(parts, axis), operands
    )


def _stack(draw: Draw) -> Case:
    shape = draw.shape(ranks=(0, 3))
    axis = draw.integer(-len(shape) - 1, len(shape))
    operands = {f"x{k}": draw.normal(*shape) for k in range(draw.integer(1, 3))}
    return Case(
        lambda *parts: op.stack(list(parts), axis),
        lambda *parts: torch.stack(parts, axis),
        operands,
    )


def _split(draw: Draw) -> Case:
    """Some of the parts, scaled so that no two have the same gradient."""
    shape = draw.shape(ranks=(1, 3))
    axis = draw.axis(len(shape))
    count = draw.integer(2, 3)
    if draw.flag():
        shape[axis] = count * draw.integer(1, 3)
        how, sizes = count, [shape[axis] // count] * count
    else:
        sizes = draw.integers(count, 1, 3)
        shape[axis] = sum(sizes)
        how = [sum(sizes[: k + 1]) for k in range(count - 1)]
    chosen = draw.some_of(range(count))

    def operator(x):
        parts = op.split(x, how, axis)
        return op.concat([op.multiply(parts[k], parts[k]) for k in chosen], axis)

    return Case(
        operator,
        lambda x: torch.cat([x.split(sizes, axis)[k] ** 2 for k in chosen], axis),
        {"x": draw.normal(*shape)},
    )


def _strided_slice(draw: Draw) -> Case:
    shape = draw.shape(extents=(1, 7))
    rank = len(shape)
    axes, begins, ends, strides = [], [], [], []
    for axis in draw.some_of(range(rank)):
        extent = shape[axis]
        forward = draw.flag()
        first = draw.integer(0, extent - 1)
        stride = draw.integer(1, 3)
        if forward:
            end = draw.integer(first + 1, extent + 2)
        else:
            # An end below zero counts from the back, so that "all the way" is far below.
            end = draw.one_of([*range(first), -extent - 3])
        begins.append(first - draw.one_of([0, extent]))
        ends.append(end)
        strides.append(stride if forward else -stride)
        axes.append(axis - draw.one_of([0, rank]))

    def reference(x):
        for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
            extent = x.shape[axis]
            x = x.index_select(axis, torch.tensor(range(extent)[begin:end:stride]))
        return x

    return Case(
        lambda x: op.strided_slice(x, axes, begins, ends, strides),
        reference,
        {"x": draw.normal(*shape)},
    )


def _pad(draw: Draw) -> Case:
    shape = draw.shape(ranks=(2, 4), extents=(2, 5))
    mode = draw.one_of(["constant", "constant", "reflect", "replicate", "circular"])
    widths = [0] * 2 * len(shape)
    for axis in range(0 if mode == "constant" else max(len(shape) - 2, 1), len(shape)):
        widths[2 * axis : 2 * axis + 2] = draw.integers(2, 0, shape[axis] - 1)
    value = draw.number(-1, 1) if mode == "constant" else 0.0
    backwards = [
        width for axis in reversed(range(len(shape))) for width in widths[2 * axis : 2 * axis + 2]
    ]
    count = len(backwards) if mode == "constant" else 2 * min(len(shape) - 1, 2)

    def reference(x):
        if mode == "constant":
            return F.pad(x, backwards, value=value)
        wide = x if x.ndim > 2 else x[None]
        return F.pad(wide, backwards[:count], mode).reshape(
            *(extent + widths[2 * a] + widths[2 * a + 1] for a, extent in enumerate(x.shape))
        )

    return Case(lambda x: nn.pad(x, widths, mode, value), reference, {"x": draw.normal(*shape)})


def _tile(draw: Draw) -> Case:
    copies = draw.integers(draw.integer(1, 4), 1, 3)
    return Case(
        lambda x: op.tile(x, copies),
        lambda x: x.tile(copies),
        {"x": draw.normal(*draw.shape(extents=(1, 3)))},
    )


def _repeat(draw: Draw) -> Case:
    shape = draw.shape()
    axis = None if draw.flag() else draw.axis(len(shape))
    count = draw.integer(1, 3)
    return Case(
        lambda x: op.repeat(x, count, axis),
        lambda x: x.repeat_interleave(count, axis),
        {"x": draw.normal(*shape)},
    )


def _flip(draw: Draw) -> Case:
    shape = draw.shape()
    axis = draw.axis(len(shape))
    return Case(lambda x: op.flip(x, axis), lambda x: x.flip(axis), {"x": draw.normal(*shape)})


def _triangle(ours, theirs) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        diagonal = draw.integer(-3, 3)
        return Case(
            lambda x: ours(x, diagonal),
            lambda x: theirs(x, diagonal),
            {"x": draw.normal(*draw.shape(ranks=(2, 4)))},
        )

    return draw_case


def _pixel_shuffle(draw: Draw) -> Case:
    factor = draw.integer(1, 3)
    batch, channels, height, width = draw.integers(4, 1, 3)
    return Case(
        lambda x: nn.pixel_shuffle(x, factor),
        lambda x: F.pixel_shuffle(x, factor),
        {"x": draw.normal(batch, channels * factor**2, height, width)},
    )


def _meshgrid(draw: Draw) -> Case:
    indexing = draw.one_of(["ij", "xy"])
    operands = {f"x{k}": draw.normal(draw.integer(1, 4)) for k in range(draw.integer(1, 3))}
    chosen = draw.integer(0, len(operands) - 1)
    return Case(
        lambda *x: op.meshgrid(list(x), indexing)[chosen],
        lambda *x: torch.meshgrid(*x, indexing=indexing)[chosen],
        operands,
    )


def _reverse_sequence(draw: Draw) -> Case:
    batch, length, inner = draw.integers(3, 1, 4)
    lengths = 1 + draw.indices(length, batch)

    def reference(x, lengths):
        rows = [
            torch.cat([row[:count].flip(0), row[count:]])
            for row, count in zip(x, lengths.tolist(), strict=True)
        ]
        return torch.stack(rows)

    return Case(
        lambda x, lengths: op.reverse_sequence(x, lengths, 1, 0),
        reference,
        {"x": draw.normal(batch, length, inner), "lengths": lengths},
    )


def _no_grad(draw: Draw) -> Case:
    return Case(
        lambda x: op.multiply(op.grad.no_grad(x), x),
        lambda x: x.detach() * x,
        {"x": draw.normal(*draw.shape())},
        smooth=False,
    )


def _dropout(draw: Draw) -> Case:
    rate = draw.number(0, 0.9)
    return Case(
        lambda x: relax.TupleGetItem(nn.dropout(x, rate), 0),
        None,
        {"x": draw.normal(*draw.shape())},
    )


CASES: dict[str, list[DrawCase]] = {
    "reshape": [_reshape],
    "expand_dims": [_expand_dims],
    "squeeze": [_squeeze],
    "flatten": [_flatten],
    "nn.batch_flatten": [_batch_flatten],
    "permute_dims": [_permute_dims],
    "broadcast_to": [_broadcast_to],
    "collapse_sum_to": [_collapse_sum_to],
    "collapse_sum_like": [_collapse_sum_like],
    "concat": [_concat],
    "stack": [_stack],
    "split": [_split],
    "strided_slice": [_strided_slice],
    "nn.pad": [_pad],
    "tile": [_tile],
    "repeat": [_repeat],
    "flip": [_flip],
    "tril": [_triangle(op.tril, torch.tril)],
    "triu": [_triangle(op.triu, torch.triu)],
    "nn.pixel_shuffle": [_pixel_shuffle],
    "meshgrid": [_meshgrid],
    "reverse_sequence": [_reverse_sequence],
    "grad.no_grad": [_no_grad],
    "nn.dropout": [_dropout],
}
