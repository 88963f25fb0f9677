"""What tensors are indexed with: values that are known, and functions of one integer input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, tirx

from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.relax_ir.types import constant_value, static_shape

Numbers = NDArray[Any]


@dataclass(frozen=True)
class Integers:
    """The elements of an integer or Boolean tensor.

    Attributes
    ----------
    origin
        The input that they are computed from, element by element; None if they are known.
    at
        From the value of an element of the input to what is computed from it: one number, or an array
        where that depends on the place.
    places
        Of the elements of the input that they are computed from, counted in its flat order; in the
        shape of the tensor. Of what is known, a number without a meaning.
    """

    origin: relax.Var | None
    at: Callable[[int], Numbers]
    places: Numbers

    @property
    def known(self) -> Numbers | None:
        """Their values; None of what an input decides."""
        return self.at(0) if self.origin is None else None


@dataclass(frozen=True)
class Read:
    """A tensor that is read or written at indices.

    Attributes
    ----------
    extent
        What the indices stay below, one number for each column of them or one for all.
    """

    op: ForwardOp
    indices: Integers
    extent: Numbers

    def fits(self, value: int) -> bool:
        """Whether what is computed from a value of the input lies inside, at some place at least."""
        with np.errstate(all="ignore"):
            found = self.indices.at(value)
        return bool(((found >= 0) & (found < self.extent)).any())

    def first_outside(self) -> tuple[int, int] | None:
        """(a known index that lies outside, the extent there); None if all lie inside."""
        known = self.indices.known
        if known is None:
            return None
        wrong = (known < 0) | (known >= self.extent)
        if not wrong.any():
            return None
        extent = np.broadcast_to(self.extent, known.shape)
        return int(known[wrong][0]), int(extent[wrong][0])


def index_values(
    source: ForwardOps, inputs: Sequence[relax.Var], values: Mapping[str, Numbers]
) -> tuple[list[Read], set[int]]:
    """The tensors that are indexed by what is known or follows from one input.

    Beside them, the numbers that such integers are compared with or that are added to them.

    Parameters
    ----------
    values
        Of parameters, by name.
    """
    found: dict[relax.Expr, Integers] = {var: _given(var) for var in inputs if _is_whole(var)}
    for param in source.params:
        if param.name in values and _is_whole(param):
            found[param] = _known(np.asarray(values[param.name]))
    reads, numbers = [], set[int]()
    for op in source.ops:
        operands = [_of(operand, found) for operand in op.operands]
        for position, extent in _indexed(op):
            if (indices := operands[position]) is not None:
                reads.append(Read(op, indices, np.asarray(extent)))
        if len(op.results) == 1 and _is_whole(op.results[0]):
            made = _computed(op, operands)
            if made is not None:
                found[op.results[0]] = made
                numbers.update(_scalars(operands))
    return reads, numbers


def _is_whole(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype).startswith(
        ("int", "uint", "bool")
    )


def _known(value: Numbers) -> Integers:
    return Integers(None, lambda _: value, np.array(0))


def _given(var: relax.Var) -> Integers:
    shape = static_shape(var.ty)
    return Integers(var, np.array, np.arange(prod(shape)).reshape(shape))


def _of(operand: relax.Expr, found: Mapping[relax.Expr, Integers]) -> Integers | None:
    constant = constant_value(operand)
    if constant is not None and _is_whole(operand):
        return _known(constant)
    return found.get(operand)


def _scalars(operands: Sequence[Integers | None]) -> Iterator[int]:
    for one in operands:
        if one is not None and one.origin is None and one.at(0).size == 1:
            yield int(one.at(0).reshape(()))


def _indexed(op: ForwardOp) -> Iterator[tuple[int, list[int] | int]]:
    """(position of an operand that holds indices, what these stay below) of each one that an op has.

    None of these operators counts from the end: front ends write out what an index below 0 means.
    """
    attributes = op.call.attrs
    if op.op == "relax.take":
        shape = static_shape(op.operands[0].ty)
        axis = 0 if attributes.axis is None else int(attributes.axis)
        if str(attributes.mode) not in ("clip", "wrap"):
            yield 1, shape[axis]
    elif op.op in ("relax.gather_elements", "relax.scatter_elements"):
        yield 1, static_shape(op.operands[0].ty)[int(attributes.axis)]
    elif op.op in ("relax.gather_nd", "relax.scatter_nd"):
        first = int(attributes.batch_dims) if op.op == "relax.gather_nd" else 0
        columns = static_shape(op.operands[1].ty)[-1]
        yield 1, list(static_shape(op.operands[0].ty)[first : first + columns])
    elif op.op == "relax.index_put":
        shape = static_shape(op.operands[0].ty)
        for axis in range(len(op.operands) - 2):
            yield 1 + axis, shape[axis]


def _computed(op: ForwardOp, operands: Sequence[Integers | None]) -> Integers | None:
    """The integers that an op makes of others; None where they are not followed."""
    if op.op == "relax.shape_to_tensor":
        extents = op.call.args[0].ty.values
        if extents is None or not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return None
        return _known(np.array([int(extent) for extent in extents], "int64"))
    given = [one for one in operands if one is not None]
    origins = {one.origin for one in given if one.origin is not None}
    if not given or len(given) < len(operands) or len(origins) > 1:
        return None
    pointwise = _POINTWISE.get(op.op.removeprefix("relax."))
    dtype = str(op.results[0].ty.dtype)
    try:
        if not origins:
            read = [one.at(0) for one in given]
            with np.errstate(all="ignore"):
                value = _moved(op, *read) if pointwise is None else pointwise(*read)
            return _known(np.asarray(value).astype(dtype))
        if pointwise is None:
            return _part(op, *given)
    except _NotFollowed:
        return None
    shape = static_shape(op.results[0].ty)
    first, *more = (np.broadcast_to(one.places, shape) for one in given if one.origin is not None)
    if not all(np.array_equal(first, one) for one in more):
        return None  # of different elements

    def at(value: int) -> Numbers:
        return np.asarray(pointwise(*(one.at(value) for one in given))).astype(dtype)

    return Integers(origins.pop(), at, first)


def _part(op: ForwardOp, whole: Integers, *others: Integers) -> Integers:
    """Integers in other places, or some of them."""
    if any(one.origin is not None for one in others) or whole.at(0).size > 1:
        raise _NotFollowed  # which place has which value would be lost
    return replace(whole, places=_moved(op, whole.places, *(one.at(0) for one in others)))


class _NotFollowed(Exception):
    """An op whose values are not computed here."""


_MOVED = frozenset(
    f"relax.{name}"
    for name in ("broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape", "squeeze")
)
"""Operators whose result holds the values of their operand in other places."""


def _moved(op: ForwardOp, x: Numbers, *others: Numbers) -> Numbers:
    """The values of an op that moves elements."""
    shape = static_shape(op.results[0].ty)
    if op.op == "relax.permute_dims":
        axes = op.call.attrs.axes
        return x.transpose(None if axes is None else [int(axis) for axis in axes])
    if op.op == "relax.broadcast_to":
        return np.broadcast_to(x, shape)
    if op.op in _MOVED:
        return x.reshape(shape)
    if op.op == "relax.take" and len(others) == 1:
        axis = op.call.attrs.axis
        taken: Numbers = np.take(x, others[0], None if axis is None else int(axis), mode="clip")
        return taken
    if op.op == "relax.strided_slice":
        return x[_slices(op, x.ndim)]
    raise _NotFollowed


def _slices(op: ForwardOp, rank: int) -> tuple[slice, ...]:
    axes, begin, end, *strides = (_whole_numbers(argument) for argument in op.call.args[1:])
    steps = strides[0] if strides else [1] * len(axes)
    cut = [slice(None)] * rank
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        cut[axis] = slice(first, last, step)
    return tuple(cut)


def _whole_numbers(argument: relax.Expr) -> list[int]:
    if not isinstance(argument, relax.Tuple | relax.ShapeExpr):
        raise _NotFollowed
    fields = argument.fields if isinstance(argument, relax.Tuple) else argument.values
    numbers = [getattr(one, "value", one) for one in fields]
    if not all(isinstance(one, int | tirx.IntImm) for one in numbers):
        raise _NotFollowed
    return [int(one) for one in numbers]


_POINTWISE: dict[str, Callable[..., Numbers]] = {
    "add": np.add,
    "astype": np.asarray,
    "equal": np.equal,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
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
    "subtract": np.subtract,
    "where": np.where,
}
"""Operators of Relax that compute each element from those at its place."""
