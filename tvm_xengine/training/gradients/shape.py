"""Gradients of ops that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.indexing.movement import (
    pad_backward,
    repeat_backward,
    slice_backward,
    tile_backward,
)
from tvm_xengine.training.emitter import Emitter, dtype_of, shape_of
from tvm_xengine.training.gradients.elements.elementwise import reduce_to
from tvm_xengine.training.rule import (
    Gradients,
    Linearized,
    PartGradient,
    Pulled,
    Rule,
    Site,
    by_pullback,
)


@by_pullback
def _reshape(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    shape = shape_of(site.operands[0])
    return (emitter.bind(relax.op.reshape(gradient, shape), site.grad_name(0)),)


@by_pullback
def _permute_dims(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    rank = len(site.shape)
    axes = site.attrs.axes
    order = [int(axis) % rank for axis in axes] if axes is not None else [*reversed(range(rank))]
    inverse = [order.index(axis) for axis in range(rank)]
    return (emitter.bind(relax.op.permute_dims(gradient, inverse), site.grad_name(0)),)


@by_pullback
def _broadcast_to(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    shape = shape_of(site.operands[0])
    return (reduce_to(emitter, gradient, shape, site.grad_name(0)),)


@by_pullback
def _concat(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    axis = int(site.attrs.axis) % len(site.shape)
    pulled: list[relax.Expr | None] = []
    begin = 0
    for position, operand in enumerate(site.operands):
        end = begin + shape_of(operand)[axis]
        part = relax.op.strided_slice(gradient, [axis], [begin], [end])
        needed = site.needs[position]
        pulled.append(emitter.bind(part, site.grad_name(position)) if needed else None)
        begin = end
    return tuple(pulled)


def _split(emitter: Emitter, site: Site) -> Linearized:
    outputs = site.emit(emitter)
    axis = int(site.attrs.axis) % len(site.shape)

    def pullback(gradients: Gradients) -> Gradients:
        parts = [
            gradient if gradient is not None else _zeros_like(emitter, output)
            for gradient, output in zip(gradients, outputs, strict=True)
        ]
        return (emitter.bind(relax.op.concat(parts, axis), site.grad_name(0)),)

    return Linearized(outputs, pullback)


@by_pullback
def _strided_slice(emitter: Emitter, site: Site, gradient: relax.Expr) -> Pulled:
    shape = shape_of(site.operands[0])
    rank = len(shape)
    axes, begin, _end, *strides = (_ints(argument) for argument in site.source.call.args[1:])
    steps = strides[0] if strides else (1,) * len(axes)
    first, step = [0] * rank, [1] * rank
    for axis, start, stride in zip(axes, begin, steps, strict=True):
        extent = shape[axis]
        start = start + extent if start < 0 else start
        first[axis] = min(max(start, 0), extent if stride > 0 else extent - 1)
        step[axis] = stride
    cut = [axis for axis in range(rank) if site.shape[axis] != shape[axis]]
    name = site.grad_name(0)
    if len(cut) == 1 and set(step) == {1}:
        return (PartGradient(gradient, cut[0], first[cut[0]], name),)
    options = {"shape": shape, "begin": tuple(first), "strides": tuple(step)}
    return (emitter.call(slice_backward, [gradient], name, **options),)


def _pad(emitter: Emitter, site: Site) -> Linearized:
    (output,) = site.emit(emitter)
    shape = shape_of(site.operands[0])
    widths = [int(width) for width in site.attrs.pad_width]
    before = tuple(widths[0::2])
    mode = str(site.attrs.pad_mode)
    if mode not in ("constant", "reflect", "edge", "replicate", "circular"):
        raise UnsupportedModelError(f"{site.name}: padding by {mode!r} has no gradient")

    def pullback(gradients: Gradients) -> Gradients:
        name = site.grad_name(0)
        if not any(widths):
            return gradients
        if mode == "constant" and min(widths) < 0:  # what was cut off gets zeros
            back = relax.op.nn.pad(gradients[0], [-width for width in widths], "constant", 0)
            return (emitter.bind(back, name),)
        if mode == "constant":
            end = [low + extent for low, extent in zip(before, shape, strict=True)]
            axes = list(range(len(shape)))
            part = relax.op.strided_slice(gradients[0], axes, list(before), end)
            return (emitter.bind(part, name),)
        kind = "edge" if mode == "replicate" else mode
        gradient = emitter.call(
            pad_backward, [gradients[0]], name, shape=shape, before=before, mode=kind
        )
        return (gradient,)

    return Linearized((output,), pullback)


@by_pullback
def _tile(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    shape = shape_of(site.operands[0])
    rank = max(len(shape), len(site.shape))
    padded = (1,) * (rank - len(shape)) + shape
    made = emitter.call(tile_backward, [gradient], site.grad_name(0), shape=padded)
    return (shaped(emitter, made, shape, site.grad_name(0)),)


@by_pullback
def _repeat(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    shape = shape_of(site.operands[0])
    repeats = int(site.attrs.repeats)
    axis = 0 if site.attrs.axis is None else int(site.attrs.axis) % len(shape)
    made = emitter.call(repeat_backward, [gradient], site.grad_name(0), axis=axis, repeats=repeats)
    return (shaped(emitter, made, shape, site.grad_name(0)),)


@by_pullback
def _reverse_sequence(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    """Its own inverse."""
    _, lengths = site.operands
    axes = int(site.attrs.seq_axis), int(site.attrs.batch_axis)
    reversed_again = relax.op.reverse_sequence(gradient, lengths, *axes)
    return (emitter.bind(reversed_again, site.grad_name(0)), None)


def _collapse_sum(emitter: Emitter, site: Site) -> Linearized:
    output = reduce_to(emitter, site.operands[0], site.shape, site.name)

    def pullback(gradients: Gradients) -> Gradients:
        spread = relax.op.broadcast_to(gradients[0], shape_of(site.operands[0]))
        rest = (None,) * (len(site.operands) - 1)
        return (emitter.bind(spread, site.grad_name(0)), *rest)

    return Linearized((output,), pullback)


@by_pullback
def _flip(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    flipped = relax.op.flip(gradient, int(site.attrs.axis))
    return (emitter.bind(flipped, site.grad_name(0)),)


def _stack(emitter: Emitter, site: Site) -> Linearized:
    """As a concatenation of tensors with a new axis."""
    axis = int(site.attrs.axis) % len(site.shape)
    columns = [
        emitter.bind(relax.op.expand_dims(operand, axis), f"{site.name}_part")
        for operand in site.operands
    ]
    output = emitter.bind(relax.op.concat(columns, axis), site.name)

    def pullback(gradients: Gradients) -> Gradients:
        pulled: list[relax.Expr | None] = []
        for position, operand in enumerate(site.operands):
            if not site.needs[position]:
                pulled.append(None)
                continue
            part = relax.op.strided_slice(gradients[0], [axis], [position], [position + 1])
            kept = emitter.bind(part, f"{site.name}_backward_part")
            pulled.append(shaped(emitter, kept, shape_of(operand), site.grad_name(position)))
        return tuple(pulled)

    return Linearized((output,), pullback)


def shaped(emitter: Emitter, value: relax.Expr, shape: tuple[int, ...], name: str) -> relax.Expr:
    """The same elements in another shape."""
    if shape_of(value) == shape:
        return value
    return emitter.bind(relax.op.reshape(value, shape), name)


def _zeros_like(emitter: Emitter, value: relax.Expr) -> relax.Expr:
    zeros = relax.op.zeros(shape_of(value), dtype_of(value))
    return emitter.bind(zeros, "no_gradient")


def _ints(argument: relax.Expr) -> tuple[int, ...]:
    values: Sequence[tvm.ir.Expr] = argument.fields
    return tuple(int(value) for value in values)


RULES: dict[str, Rule] = {
    "relax.broadcast_to": _broadcast_to,
    "relax.collapse_sum_like": _collapse_sum,
    "relax.collapse_sum_to": _collapse_sum,
    "relax.concat": _concat,
    "relax.expand_dims": _reshape,
    "relax.flatten": _reshape,
    "relax.flip": _flip,
    "relax.nn.batch_flatten": _reshape,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _permute_dims,
    "relax.repeat": _repeat,
    "relax.reshape": _reshape,
    "relax.reverse_sequence": _reverse_sequence,
    "relax.split": _split,
    "relax.squeeze": _reshape,
    "relax.stack": _stack,
    "relax.strided_slice": _strided_slice,
    "relax.tile": _tile,
}
