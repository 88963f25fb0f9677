"""Sums and largest values over whole loops at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import ascii_letters

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.aot.check.definitions.expressions import (
    Array,
    Evaluate,
    Expressions,
    Points,
    variables,
)

_MOST_ELEMENTS = 1 << 22
"""Of an array that a sum is made of; outer loops are cut where it would have more."""

_FOLDS = {tirx.Add: np.add, tirx.Min: np.minimum, tirx.Max: np.maximum}


@dataclass(frozen=True)
class Fold:
    """The store ``a[i] = a[i] op term`` in loops over what is reduced.

    Attributes
    ----------
    factors
        Of the term; the term itself but for sums.
    loops_of
        For each factor, the loops that it depends on.
    reduced
        The loops over what is reduced.
    add
        Stores what it is given with what is there.
    rounded
        A sum as so many additions may round it.
    """

    operator: np.ufunc
    factors: Sequence[Evaluate]
    loops_of: Sequence[Collection[int]]
    reduced: Collection[int]
    add: Callable[[Points, Array], None]
    rounded: Callable[[Array, int], Array]

    def parts(self, ranges: Sequence[range]) -> Iterator[list[range]]:
        """The values of all loops, the first ones that nothing is reduced over in pieces if need be."""
        largest = max(self.loops_of, key=lambda loops: math.prod(len(ranges[k]) for k in loops))
        elements = math.prod(len(ranges[k]) for k in largest)
        steps = [max(len(values), 1) for values in ranges]
        for k in largest:
            if k not in self.reduced and elements > _MOST_ELEMENTS:
                step = max(_MOST_ELEMENTS * steps[k] // elements, 1)
                elements, steps[k] = elements // steps[k] * step, step
        pieces = [
            [values[at : at + step] for at in range(0, max(len(values), 1), step)]
            for values, step in zip(ranges, steps, strict=True)
        ]
        yield from map(list, product(*pieces))

    def total(self, at: Points) -> Array:
        """The sum, or the least or largest value, over the loops; those have one value in the result."""
        total = self._exact(at)
        if self.operator is not np.add:
            return total
        return self.rounded(total, math.prod(at.sizes[k] for k in self.reduced))

    def _exact(self, at: Points) -> Array:
        values = [np.asarray(factor(at)) for factor in self.factors]
        if len(values) == 1:
            shape = [1] * (len(at.sizes) - values[0].ndim) + list(values[0].shape)
            (value,) = values
            value = value.reshape(shape)
            for k in self.reduced:
                if self.operator is np.add and shape[k] == 1:
                    value = value * np.asarray(at.sizes[k], value.dtype)
            return np.asarray(self.operator.reduce(value, axis=tuple(self.reduced), keepdims=True))
        named = [[k for k, size in enumerate(value.shape) if size > 1] for value in values]
        kept = [
            k for k in range(len(at.sizes)) if k not in self.reduced and any(k in n for n in named)
        ]
        alone = [k for k in self.reduced if not any(k in n for n in named)]
        text = ",".join("".join(ascii_letters[k] for k in n) for n in named)
        text += "->" + "".join(ascii_letters[k] for k in kept)
        operands = [value.squeeze() for value in values]
        total = np.asarray(np.einsum(text, *operands, optimize=True))  # type: ignore[arg-type]
        times = np.asarray(math.prod(at.sizes[k] for k in alone), total.dtype)
        return np.asarray(total * times).reshape(
            [size if k in kept else 1 for k, size in enumerate(at.sizes)]
        )


def fold_of(
    stmt: tirx.Stmt,
    loops_of: Mapping[ir.Var, Collection[int]],
    reduced: Collection[int],
    expressions: Expressions,
) -> Fold | None:
    """What the body of a block adds up, None if it is no such store.

    Parameters
    ----------
    loops_of
        The loops that a variable of the block is made of.
    """
    if not isinstance(stmt, tirx.BufferStore) or type(stmt.value) not in _FOLDS:
        return None
    old, term = stmt.value.a, stmt.value.b
    if not _reads(old, stmt):
        old, term = term, old
    depends = [_loops(index, loops_of) & set(reduced) for index in stmt.indices]
    if not _reads(old, stmt) or stmt.buffer in variables(term) or any(depends):
        return None
    operator = _FOLDS[type(stmt.value)]
    factors = _factors(term) if operator is np.add else [term]
    load = expressions.of(old)
    given: list[Array] = [np.empty(0)]
    store = expressions.store(stmt, lambda at: operator(load(at), given[0]))

    def add(at: Points, total: Array) -> None:
        given[0] = total
        store(at)

    return Fold(
        operator,
        [expressions.of(factor) for factor in factors],
        [_loops(factor, loops_of) for factor in factors],
        reduced,
        add,
        expressions.rounded,
    )


def _reads(expr: ir.Expr, stmt: tirx.BufferStore) -> bool:
    return (
        isinstance(expr, ir.TensorLoad)
        and expr.source.same_as(stmt.buffer)
        and tvm_ffi.structural_equal(expr.indices, stmt.indices)
    )


def _factors(term: ir.Expr) -> list[ir.Expr]:
    if isinstance(term, tirx.Mul):
        return [*_factors(term.a), *_factors(term.b)]
    return [term]


def _loops(expr: ir.Expr, loops_of: Mapping[ir.Var, Collection[int]]) -> set[int]:
    return {k for var in variables(expr) for k in loops_of.get(var, ())}
