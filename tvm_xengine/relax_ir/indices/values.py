"""What tensors are indexed with: values that are known, and functions of one integer input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, tirx

from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.relax_ir.indices.elements import NotFollowedError, moved, pointwise
from tvm_xengine.relax_ir.matrix_ops import LU_SOLVE
from tvm_xengine.relax_ir.own_ops import PLACE
from tvm_xengine.relax_ir.types import constant_value, static_shape

Numbers = NDArray[Any]

_NOWHERE = -1
"""The place of what no element of an input decides."""


@dataclass(frozen=True)
class Integers:
    """The elements of an integer or Boolean tensor.

    Attributes
    ----------
    origin
        The input that they are computed from, element by element; None if they are known.
    values
        They themselves, if they are known. Else for each the place of the element of the input that it is
        computed from, counted in its flat order, and below 0 where there is none.
    """

    origin: relax.Var | None
    values: Numbers

    @property
    def places(self) -> Numbers:
        """For each the place in an input; nowhere if they are known."""
        return np.full(self.values.shape, _NOWHERE) if self.origin is None else self.values


@dataclass(frozen=True)
class Read:
    """A tensor that is read or written at indices.

    Attributes
    ----------
    operand
        Of the op, which holds the indices.
    first, extent
        What the indices are not below, and what they stay below: one number for each column of them, or
        one for all.
    """

    op: ForwardOp
    operand: relax.Expr
    indices: Integers
    first: Numbers
    extent: Numbers

    def is_outside(self, values: Numbers) -> NDArray[np.bool_]:
        """Which indices name no place, where they have these values."""
        outside: NDArray[np.bool_] = (values < self.first) | (values >= self.extent)
        return outside

    def first_outside(self) -> tuple[int, int] | None:
        """(a known index that lies outside, counted from 0, the extent there); None if all lie inside."""
        known = self.indices.values
        if self.indices.origin is not None or not (wrong := self.is_outside(known)).any():
            return None
        place, extent, first = (
            int(np.broadcast_to(one, known.shape)[wrong][0])
            for one in (known, self.extent, self.first)
        )
        return place + extent if place < 0 and first < 0 else place, extent


@dataclass(frozen=True)
class _Step:
    """How a tensor is computed from others that follow from the same input, or are known."""

    result: relax.Var
    operands: tuple[relax.Expr, ...]
    compute: Callable[[Mapping[relax.Expr, Numbers]], Numbers]


@dataclass(frozen=True)
class IndexValues:
    """The tensors that are indexed by what is known or follows from one input.

    Attributes
    ----------
    numbers
        That such integers are compared with, or that are added to them, and the first places.
    steps
        By input, what is computed from it, in order.
    """

    reads: Sequence[Read]
    numbers: frozenset[int]
    steps: Mapping[relax.Var, Sequence[_Step]]

    def of(self, origin: relax.Var) -> list[Read]:
        """What an input indexes."""
        return [read for read in self.reads if read.indices.origin is origin]

    def is_inside(self, origin: relax.Var, values: Numbers) -> NDArray[np.bool_]:
        """For each element of an input of these values, whether all that it indexes has such a place."""
        made: dict[relax.Expr, Numbers] = {origin: values}
        with np.errstate(all="ignore"):
            for step in self.steps[origin]:
                made[step.result] = step.compute(made)
        inside = np.ones(values.size + 1, bool)  # the last one is what lies nowhere
        for read in self.of(origin):
            inside[read.indices.places[read.is_outside(made[read.operand])]] = False
        return inside[:-1].reshape(values.shape)


def index_values(
    source: ForwardOps, inputs: Sequence[relax.Var], values: Mapping[str, Numbers]
) -> IndexValues:
    """What tensors are indexed with.

    Parameters
    ----------
    values
        Of parameters, by name.
    """
    found: dict[relax.Expr, Integers] = {var: _given(var) for var in inputs if _is_whole(var)}
    for param in source.params:
        if param.name in values and _is_whole(param):
            found[param] = Integers(None, np.asarray(values[param.name]))
    steps: dict[relax.Var, list[_Step]] = {var: [] for var in inputs}
    reads, numbers = [], set[int]()
    for op in source.ops:
        operands = [_of(operand, found) for operand in op.operands]
        for position, first, extent in _indexed(op):
            if (indices := operands[position]) is not None:
                limits = np.asarray(first), np.asarray(extent)
                numbers.add(first)
                reads.append(Read(op, op.operands[position], indices, *limits))
        given = [one for one in operands if one is not None]
        if len(given) < len(operands) or not all(map(_is_whole, op.results)):
            continue
        try:
            made = _computed(op, given)
        except NotFollowedError:
            continue
        for result, (integers, step) in zip(op.results, made, strict=True):
            found[result] = integers
            if integers.origin is not None:
                steps[integers.origin].append(step)
        numbers.update(_scalars(given))
    indexing = {read.operand for read in reads}
    kept = {origin: _leading_to(indexing, made) for origin, made in steps.items()}
    return IndexValues(reads, frozenset(numbers), kept)


def _leading_to(wanted: Set[relax.Expr], steps: Sequence[_Step]) -> list[_Step]:
    """The steps without those that no index is computed from, such as masks."""
    needed, kept = set(wanted), list[_Step]()
    for step in reversed(steps):
        if step.result in needed:
            kept.insert(0, step)
            needed.update(step.operands)
    return kept


def _is_whole(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype).startswith(
        ("int", "uint", "bool")
    )


def _given(var: relax.Var) -> Integers:
    shape = static_shape(var.ty)
    return Integers(var, np.arange(prod(shape)).reshape(shape))


def _of(operand: relax.Expr, found: Mapping[relax.Expr, Integers]) -> Integers | None:
    constant = constant_value(operand)
    if constant is not None and _is_whole(operand):
        return Integers(None, constant)
    return found.get(operand)


def _scalars(operands: Sequence[Integers]) -> Iterator[int]:
    for one in operands:
        if one.origin is None and one.values.size == 1:
            yield int(one.values.reshape(()))


def _indexed(op: ForwardOp) -> Iterator[tuple[int, int, list[int] | int]]:
    """(position of an operand that holds indices, what these are not below, what they stay below).

    Only of `PLACE` do indices count from the end: front ends write out what an index below 0 means.
    """
    attributes = op.call.attrs
    if op.op == PLACE:
        extent = constant_value(op.operands[1])
        assert extent is not None
        yield 0, -int(extent), int(extent)
    elif op.op == "relax.take":
        shape = static_shape(op.operands[0].ty)
        axis = 0 if attributes.axis is None else int(attributes.axis)
        if str(attributes.mode) not in ("clip", "wrap"):
            yield 1, 0, shape[axis]
    elif op.op in ("relax.gather_elements", "relax.scatter_elements"):
        yield 1, 0, static_shape(op.operands[0].ty)[int(attributes.axis)]
    elif op.op in ("relax.gather_nd", "relax.scatter_nd"):
        first = int(attributes.batch_dims) if op.op == "relax.gather_nd" else 0
        columns = static_shape(op.operands[1].ty)[-1]
        yield 1, 0, list(static_shape(op.operands[0].ty)[first : first + columns])
    elif op.op == "relax.index_put":
        shape = static_shape(op.operands[0].ty)
        for axis in range(len(op.operands) - 2):
            yield 1 + axis, 0, shape[axis]
    elif op.op == LU_SOLVE:
        yield 1, 1, static_shape(op.operands[0].ty)[-1] + 1  # rows that are exchanged, from 1 on


def _computed(op: ForwardOp, operands: Sequence[Integers]) -> list[tuple[Integers, _Step]]:
    """The integers that an op makes of others, and how.

    Raises
    ------
    NotFollowedError
        If they are of several inputs or elements, or it is not known how.
    """
    if op.op == "relax.shape_to_tensor":
        extents = _extents(op)
        return [(Integers(None, extents), _Step(op.results[0], (), lambda _: extents))]
    origins = {one.origin for one in operands if one.origin is not None}
    if not operands or len(origins) > 1:
        raise NotFollowedError
    origin = origins.pop() if origins else None
    function = pointwise(op)
    pairs = list(zip(op.operands, operands, strict=True))
    known = {operand: one.values for operand, one in pairs if one.origin is None}

    def compute_all(made: Mapping[relax.Expr, Numbers]) -> Sequence[Numbers]:
        read = [known[x] if x in known else made[x] for x in op.operands]
        return moved(op, read) if function is None else [function(*read)]

    def step(position: int) -> _Step:
        result = op.results[position]
        shape, dtype = static_shape(result.ty), str(result.ty.dtype)

        def compute(made: Mapping[relax.Expr, Numbers]) -> Numbers:
            return np.broadcast_to(np.asarray(compute_all(made)[position]).astype(dtype), shape)

        return _Step(result, op.operands, compute)

    steps = [step(position) for position in range(len(op.results))]
    if origin is None:
        with np.errstate(all="ignore"):
            return [(Integers(None, one.compute({})), one) for one in steps]
    if function is not None:
        places = [_same_places(operands, static_shape(op.results[0].ty))]
    else:
        places = list(moved(op, [one.places for one in operands], known))
    return [(Integers(origin, at), one) for at, one in zip(places, steps, strict=True)]


def _same_places(operands: Sequence[Integers], shape: tuple[int, ...]) -> Numbers:
    """The places that elements of operands at the same position come from, which are the same."""
    of_input = (one.values for one in operands if one.origin is not None)
    places, *more = (np.broadcast_to(own, shape) for own in of_input)  # which copies nothing
    for own in more:
        if np.array_equal(places, own):
            continue
        if ((places != own) & (places != _NOWHERE) & (own != _NOWHERE)).any():
            raise NotFollowedError
        places = np.where(own == _NOWHERE, places, own)
    return places


def _extents(op: ForwardOp) -> Numbers:
    extents = op.call.args[0].ty.values
    if extents is None or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        raise NotFollowedError
    return np.array([int(extent) for extent in extents], "int64")
