"""Copies in the stage model: a column for each link, or products of source and arrival.

A stage copies a tensor right after the slot of its producer. With D devices it does so in up to
D - 1 hops, each from what the hop before brought. For device a, link (a, b), hop h:

`CopiesOverLinks`, linear:

    copy[ab,h,t,j] in {0,1}     value transfer[a,b,j] * copy
    copy[ab,0] <= keep[a] + made[a];   copy[bc,h] <= sum_a copy[ab,h-1], a != c

`CopiesAsProducts`, quadratic, in the manner of XEngine (Schuler et al., TACO 2022, eq. 1), where the
value of a copy is the product of where a tensor is and where it is needed:

    source[a,h,t,j], arrive[b,h,t,j] in {0,1}
    value transfer[a,b,j] * source[a] * arrive[b]
    source[a,0] <= keep[a] + made[a];   source[b,h] <= arrive[b,h-1]
    sum_a source[a,h] <= 1;             arrive[b,h] <= sum over linked a of source[a,h]

An arrival has exactly one source, so  sum_a source[a] * arrive[b] = arrive[b], and the cheapest
transfer to b can be charged to the arrival alone:

    value least[b,j] * arrive[b] + (transfer[a,b,j] - least[b,j]) * source[a] * arrive[b]

The relaxation is much stronger then, and products remain only where sources differ in value: with two
devices there are none. All arrivals of one hop share a source, which loses something only
where two sources feed two destinations in one hop, so with four devices or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import NOWHERE, IndexedProblem
from tvm_xengine.solvers.program import ProgramBuilder, is_set

_Grid = NDArray[np.int64]


class Copies(Protocol):
    """The columns of all copies of a stage model; stages are t, tensors j, devices a, b, d."""

    @classmethod
    def drafted(
        cls, indexed: IndexedProblem, builder: ProgramBuilder, source: NDArray[np.bool_]
    ) -> Copies:
        """New columns; `source` says where a tensor may be without a copy, shape (D, n + 1, J)."""
        ...

    def arriving(self, d: int, t: int, j: int) -> list[int]:
        """Columns of which one is 1 where a copy brings tensor j to device d."""
        ...

    def of_tensor(self, j: int) -> NDArray[np.int64]:
        """Every column of the copies of tensor j."""
        ...

    def constrain(self, builder: ProgramBuilder, keep: _Grid, made: _Grid) -> None:
        """Add the rows: what is copied is there before."""
        ...

    def weigh(self, builder: ProgramBuilder) -> None:
        """Add the value of the copies to the objective."""
        ...

    def taken(self, x: NDArray[np.float64], t: int, j: int) -> list[tuple[int, int]]:
        """(source, destination) of the copies of tensor j in solution `x`, in order."""
        ...

    def take(self, x: NDArray[np.float64], t: int, j: int, a: int, b: int, hop: int) -> bool:
        """Write a copy into solution `x`; False where it cannot be expressed."""
        ...


@dataclass(frozen=True)
class CopiesOverLinks:
    """A column for each link and hop; `column` has shape (legs, n + 1, J), -1 where there is none."""

    indexed: IndexedProblem
    legs: tuple[tuple[int, int, int], ...]
    column: _Grid

    @classmethod
    def drafted(
        cls, indexed: IndexedProblem, builder: ProgramBuilder, source: NDArray[np.bool_]
    ) -> CopiesOverLinks:
        """New binary columns."""
        legs = _legs(indexed)
        exists = np.stack([_may_copy(indexed, source, leg) for leg in legs]) if legs else source[:0]
        return cls(indexed, legs, builder.grid(exists, is_integer=True))

    def arriving(self, d: int, t: int, j: int) -> list[int]:
        """Columns of which one is 1 where a copy brings tensor j to device d."""
        return _existing(
            int(self.column[e, t, j]) for e, (_, b, _) in enumerate(self.legs) if b == d
        )

    def of_tensor(self, j: int) -> NDArray[np.int64]:
        """Every column of the copies of tensor j."""
        columns = self.column[..., j].ravel()
        return columns[columns >= 0]

    def constrain(self, builder: ProgramBuilder, keep: _Grid, made: _Grid) -> None:
        """Add the rows: what is copied is there before."""
        for e, t, j in _places(self.column):
            a, b, hop = self.legs[e]
            before = [
                self.column[f, t, j]
                for f, (c, d, earlier) in enumerate(self.legs)
                if d == a and c != b and earlier == hop - 1
            ]
            sources = _existing(map(int, before if hop else (keep[a, t, j], made[a, t, j])))
            terms = [(int(self.column[e, t, j]), 1.0), *((c, -1.0) for c in sources)]
            builder.row(terms, upper=0.0)

    def weigh(self, builder: ProgramBuilder) -> None:
        """Add the value of the copies to the objective."""
        for e, (a, b, _) in enumerate(self.legs):
            t, j = np.nonzero(self.column[e] >= 0)
            builder.minimise(self.column[e, t, j], self.indexed.transfer_value[a, b, j])

    def taken(self, x: NDArray[np.float64], t: int, j: int) -> list[tuple[int, int]]:
        """(source, destination) of the copies of tensor j in solution `x`, in order."""
        return [
            (a, b) for e, (a, b, _) in enumerate(self.legs) if is_set(x, int(self.column[e, t, j]))
        ]

    def take(self, x: NDArray[np.float64], t: int, j: int, a: int, b: int, hop: int) -> bool:
        """Write a copy into solution `x`; False where it cannot be expressed."""
        return (a, b, hop) in self.legs and _set(
            x, int(self.column[self.legs.index((a, b, hop)), t, j])
        )


@dataclass(frozen=True)
class CopiesAsProducts:
    """Columns for sources and arrivals, shape (D, hops, n + 1, J), -1 where there is none."""

    indexed: IndexedProblem
    source: _Grid
    arrival: _Grid

    @classmethod
    def drafted(
        cls, indexed: IndexedProblem, builder: ProgramBuilder, source: NDArray[np.bool_]
    ) -> CopiesAsProducts:
        """New binary columns."""
        shape = (indexed.device_count, hop_count(indexed), *source.shape[1:])
        leaves, lands = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        for a, b, hop in _legs(indexed):
            may_copy = _may_copy(indexed, source, (a, b, hop))
            leaves[a, hop] |= may_copy
            lands[b, hop] |= may_copy
        return cls(
            indexed, builder.grid(leaves, is_integer=True), builder.grid(lands, is_integer=True)
        )

    def arriving(self, d: int, t: int, j: int) -> list[int]:
        """Columns of which one is 1 where a copy brings tensor j to device d."""
        return _existing(self.arrival[d, :, t, j].tolist())

    def of_tensor(self, j: int) -> NDArray[np.int64]:
        """Every column of the copies of tensor j."""
        columns = np.concatenate([self.source[..., j].ravel(), self.arrival[..., j].ravel()])
        return columns[columns >= 0]

    def constrain(self, builder: ProgramBuilder, keep: _Grid, made: _Grid) -> None:
        """Add the rows: what is copied is there before, and has one source in each hop."""
        for a, hop, t, j in _places(self.source):
            before = (
                [int(self.arrival[a, hop - 1, t, j])]
                if hop
                else [int(keep[a, t, j]), int(made[a, t, j])]
            )
            column = int(self.source[a, hop, t, j])
            builder.row([(column, 1.0), *((c, -1.0) for c in _existing(before))], upper=0.0)
        for b, hop, t, j in _places(self.arrival):
            sources = [(int(self.source[a, hop, t, j]), -1.0) for a in self._sources(b, hop, t, j)]
            builder.row([(int(self.arrival[b, hop, t, j]), 1.0), *sources], upper=0.0)
        for hop, t, j in {place[1:] for place in _places(self.source)}:
            columns = _existing(self.source[:, hop, t, j].tolist())
            if len(columns) > 1:
                builder.row([(column, 1.0) for column in columns], upper=1.0)

    def weigh(self, builder: ProgramBuilder) -> None:
        """Add the value of the copies: the least to the arrival, what is above it as products."""
        for b, hop, t, j in _places(self.arrival):
            sources = self._sources(b, hop, t, j)
            value = self.indexed.transfer_value[sources, b, j]
            arrival = int(self.arrival[b, hop, t, j])
            builder.minimise(arrival, value.min())
            above = value - value.min()
            dearer = np.flatnonzero(above > 0)
            columns = self.source[np.array(sources)[dearer], hop, t, j]
            builder.minimise_products(columns, np.full(len(dearer), arrival), above[dearer])

    def taken(self, x: NDArray[np.float64], t: int, j: int) -> list[tuple[int, int]]:
        """(source, destination) of the copies of tensor j in solution `x`, in order."""
        return [
            (a, b)
            for a, b, hop in _legs(self.indexed)
            if is_set(x, int(self.source[a, hop, t, j]))
            and is_set(x, int(self.arrival[b, hop, t, j]))
        ]

    def take(self, x: NDArray[np.float64], t: int, j: int, a: int, b: int, hop: int) -> bool:
        """Write a copy into solution `x`; False where it cannot be expressed."""
        others = [c for d, c in enumerate(self.source[:, hop, t, j].tolist()) if d != a]
        if any(is_set(x, column) for column in others):
            return False
        source, arrival = int(self.source[a, hop, t, j]), int(self.arrival[b, hop, t, j])
        return source >= 0 and _set(x, arrival) and (is_set(x, source) or _set(x, source))

    def _sources(self, b: int, hop: int, t: int, j: int) -> list[int]:
        """Devices from which tensor j can be copied to b."""
        linked = np.isfinite(self.indexed.transfer_value[:, b, j])
        linked[b] = False
        return np.flatnonzero(linked & (self.source[:, hop, t, j] >= 0)).tolist()


def hop_count(indexed: IndexedProblem) -> int:
    """Hops that one stage may make: enough to reach every device from any other."""
    return max(1, indexed.device_count - 1)


def _legs(indexed: IndexedProblem) -> tuple[tuple[int, int, int], ...]:
    """(source, destination, hop) of every copy that one stage may make, in order of hops."""
    return tuple((a, b, hop) for hop in range(hop_count(indexed)) for a, b in indexed.links)


def _may_copy(
    indexed: IndexedProblem, source: NDArray[np.bool_], leg: tuple[int, int, int]
) -> NDArray[np.bool_]:
    """For each stage and tensor, whether a copy may take that leg."""
    a, b, hop = leg
    may = (source.any(axis=0) if hop else source[a]) & np.isfinite(indexed.transfer_value[a, b])
    may[indexed.op_count] &= indexed.must_end_on != NOWHERE
    return np.asarray(may)


def _places(grid: _Grid) -> Iterator[tuple[int, ...]]:
    return zip(*(axis.tolist() for axis in np.nonzero(grid >= 0)), strict=True)


def _existing(columns: Iterable[int]) -> list[int]:
    return [column for column in columns if column >= 0]


def _set(x: NDArray[np.float64], column: int) -> bool:
    """Set a column to 1; False where there is none, or it is 1."""
    if column < 0 or x[column] > 0.5:
        return False
    x[column] = 1.0
    return True
