"""Operators whose elements are those of their operands in other places, or computed from those at a place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, tirx

from tvm_xengine.relax_ir.forward_ops import ForwardOp
from tvm_xengine.relax_ir.own_ops import PLACE, PREFIX
from tvm_xengine.relax_ir.types import static_shape

Numbers = NDArray[Any]


class NotFollowedError(Exception):
    """An op whose values are not computed here."""


def pointwise(op: ForwardOp) -> Callable[..., Numbers] | None:
    """What computes the elements of an op from those at the same place; None if it moves elements."""
    return _POINTWISE.get(op.op.removeprefix("relax."))


def moved(
    op: ForwardOp, operands: Sequence[Numbers], known: Mapping[relax.Expr, Numbers] | None = None
) -> Sequence[Numbers]:
    """The results of an op that moves elements.

    Parameters
    ----------
    known
        Of operands that say where others are read, if `operands` stand for something else than values.

    Raises
    ------
    NotFollowedError
        If it is no such op, or where it reads is not known.
    """
    x, *others = operands
    name, attributes = op.op.removeprefix("relax."), op.call.attrs
    shape = static_shape(op.results[0].ty)
    if name in _RESHAPES:
        return [x.reshape(shape)]
    if name in _READS:
        if known is not None and op.operands[1] not in known:
            raise NotFollowedError
        (at,) = others if known is None else [known[op.operands[1]]]
        return [_READS[name](x, at, attributes)]
    if name not in _MOVES:
        raise NotFollowedError
    return _MOVES[name](op, operands)


def _whole_numbers(argument: relax.Expr) -> list[int]:
    if not isinstance(argument, relax.Tuple | relax.ShapeExpr):
        raise NotFollowedError
    fields = argument.fields if isinstance(argument, relax.Tuple) else argument.values
    numbers = [getattr(one, "value", one) for one in fields]
    if not all(isinstance(one, int | tirx.IntImm) for one in numbers):
        raise NotFollowedError
    return [int(one) for one in numbers]


def _broadcast(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    return [np.broadcast_to(operands[0], static_shape(op.results[0].ty))]


def _concat(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    axis = op.call.attrs.axis
    return [np.concatenate(operands, None if axis is None else int(axis))]


def _stack(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    axis = op.call.attrs.axis
    return [np.stack(operands, 0 if axis is None else int(axis))]


def _flip(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    return [np.flip(operands[0], int(op.call.attrs.axis))]


def _permuted(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    axes = op.call.attrs.axes
    return [operands[0].transpose(None if axes is None else [int(axis) for axis in axes])]


def _repeat(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    axis = op.call.attrs.axis
    return [np.repeat(operands[0], int(op.call.attrs.repeats), None if axis is None else int(axis))]


def _split(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    axis = int(op.call.attrs.axis)
    ends = np.cumsum([static_shape(result.ty)[axis] for result in op.results])
    return np.split(operands[0], ends[:-1], axis)


def _strided_slice(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    axes, begin, end, *strides = (_whole_numbers(argument) for argument in op.call.args[1:])
    steps = strides[0] if strides else [1] * len(axes)
    cut = [slice(None)] * operands[0].ndim
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        cut[axis] = slice(first, last, step)
    return [operands[0][tuple(cut)]]


def _tile(op: ForwardOp, operands: Sequence[Numbers]) -> Sequence[Numbers]:
    return [np.tile(operands[0], [int(count) for count in op.call.attrs.repeats])]


def _gather_elements(x: Numbers, at: Numbers, attributes: Any) -> Numbers:
    axis = int(attributes.axis)
    taken: Numbers = np.take_along_axis(x, np.clip(at, 0, x.shape[axis] - 1), axis)
    return taken


def _take(x: Numbers, at: Numbers, attributes: Any) -> Numbers:
    axis = attributes.axis
    taken: Numbers = np.take(x, at, None if axis is None else int(axis), mode="clip")
    return taken


_RESHAPES = frozenset({"expand_dims", "flatten", "reshape", "squeeze"})
"""Operators whose result has the elements of their operand in the same order."""

_READS: dict[str, Callable[[Numbers, Numbers, Any], Numbers]] = {
    "gather_elements": _gather_elements,
    "take": _take,
}
"""Operators that read their first operand at the places that the second names."""

_MOVES: dict[str, Callable[[ForwardOp, Sequence[Numbers]], Sequence[Numbers]]] = {
    "broadcast_to": _broadcast,
    "concat": _concat,
    "flip": _flip,
    "permute_dims": _permuted,
    "repeat": _repeat,
    "split": _split,
    "stack": _stack,
    "strided_slice": _strided_slice,
    "tile": _tile,
}
"""Operators whose results have elements of all operands in other places."""


def _place(at: Numbers, extent: Numbers) -> Numbers:
    """What `PLACE` computes of indices that name a place."""
    return np.where(at < 0, at + extent, at)


def _truncated(a: Numbers, b: Numbers) -> Numbers:
    quotient: Numbers = np.floor_divide(a - np.fmod(a, b), b)
    return quotient


_POINTWISE: dict[str, Callable[..., Numbers]] = {
    "abs": np.abs,
    "add": np.add,
    "astype": np.asarray,
    "bitwise_and": np.bitwise_and,
    "bitwise_not": np.bitwise_not,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "equal": np.equal,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "left_shift": np.left_shift,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "not_equal": np.not_equal,
    "right_shift": np.right_shift,
    "subtract": np.subtract,
    "where": np.where,
    PLACE: _place,
    PREFIX + "floor_divide": np.floor_divide,
    PREFIX + "fmod": np.fmod,
    PREFIX + "remainder": np.remainder,
    PREFIX + "trunc_divide": _truncated,
}
"""Operators that compute each element from those at its place."""
