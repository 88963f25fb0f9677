"""A mathematical program as sparse columns and rows that every backend reads."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.errors import UnsupportedProblemError

Columns = NDArray[np.int64]

ABSENT = -1
"""Stands in a grid of columns where there is none."""

_TOLERANCE = 1e-6
"""The default feasibility tolerance of SCIP and Gurobi."""
_BLOCKS_PER_LOOK = 100
"""Rows, and blocks of columns and entries, between two looks at the clock: about a millisecond."""

Look = Callable[[], None]
"""Called every few rows while a program is written; raises what ends that."""


@dataclass(frozen=True)
class Program:
    """Minimise ``cost x + x' Q x`` under ``row_lower <= A x <= row_upper``, ``lower <= x <= upper``.

    Attributes
    ----------
    cost, lower, upper, is_integer
        One entry for each column.
    row_lower, row_upper
        One entry for each row.
    starts, columns, values
        The rows of A, compressed: row r has ``columns[starts[r]:starts[r+1]]``.
    quadratic_columns, quadratic_values
        The products of Q: pairs of columns, shape (q, 2), and their coefficients.
    """

    cost: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    is_integer: NDArray[np.bool_]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    starts: NDArray[np.int64]
    columns: Columns
    values: NDArray[np.float64]
    quadratic_columns: NDArray[np.int64]
    quadratic_values: NDArray[np.float64]

    @property
    def column_count(self) -> int:
        """Number of variables."""
        return len(self.cost)

    @property
    def row_count(self) -> int:
        """Number of constraints."""
        return len(self.row_lower)

    @property
    def is_quadratic(self) -> bool:
        """Whether the objective has products."""
        return len(self.quadratic_values) > 0

    def objective(self, x: NDArray[np.float64]) -> float:
        """The objective at `x`."""
        u, v = self.quadratic_columns.T
        return float(self.cost @ x + (self.quadratic_values * x[u] * x[v]).sum())

    def is_satisfied_by(self, x: NDArray[np.float64]) -> bool:
        """Whether `x` keeps every bound and row, to a relative tolerance of 1e-6."""
        row_of = np.repeat(np.arange(self.row_count), np.diff(self.starts))
        activity = np.bincount(
            row_of, weights=self.values * x[self.columns], minlength=self.row_count
        )
        slack = _TOLERANCE * np.maximum(1.0, np.abs(activity))
        return bool(
            (activity >= self.row_lower - slack).all()
            and (activity <= self.row_upper + slack).all()
            and (x >= self.lower - _TOLERANCE).all()
            and (x <= self.upper + _TOLERANCE).all()
        )

    def relaxed(self) -> Program:
        """The same program with every column continuous."""
        return replace(self, is_integer=np.zeros_like(self.is_integer))


@dataclass
class ProgramBuilder:
    """Collects columns, rows and entries in blocks; `build` sorts them into a `Program`."""

    look: Look = lambda: None
    column_count: int = 0
    _bounds: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]] = field(
        default_factory=list
    )
    _costs: list[tuple[Columns, NDArray[np.float64]]] = field(default_factory=list)
    _row_lower: array[float] = field(default_factory=lambda: array("d"))
    _row_upper: array[float] = field(default_factory=lambda: array("d"))
    _entries: list[tuple[Columns, Columns, NDArray[np.float64]]] = field(default_factory=list)
    _products: list[tuple[Columns, Columns, NDArray[np.float64]]] = field(default_factory=list)
    _row_of: array[int] = field(default_factory=lambda: array("q"))
    _column_of: array[int] = field(default_factory=lambda: array("q"))
    _value_of: array[float] = field(default_factory=lambda: array("d"))
    _blocks: int = 0

    @property
    def row_count(self) -> int:
        """Number of rows so far."""
        return len(self._row_lower)

    def binaries(self, count: int) -> Columns:
        """`count` new columns that are 0 or 1."""
        return self.new_columns(count, is_integer=True)

    def fractions(self, count: int) -> Columns:
        """`count` new continuous columns between 0 and 1."""
        return self.new_columns(count)

    def new_columns(
        self, count: int, *, lower: float = 0.0, upper: float = 1.0, is_integer: bool = False
    ) -> Columns:
        """`count` new columns within bounds."""
        self._count_block()
        columns = np.arange(self.column_count, self.column_count + count, dtype=np.int64)
        self.column_count += count
        self._bounds.append(
            (np.full(count, lower), np.full(count, upper), np.full(count, is_integer))
        )
        return columns

    def grid(self, exists: NDArray[np.bool_], *, is_integer: bool = False) -> NDArray[np.int64]:
        """New columns between 0 and 1 where `exists` holds, and -1 elsewhere."""
        grid = np.full(exists.shape, -1, np.int64)
        grid[exists] = self.new_columns(int(exists.sum()), is_integer=is_integer)
        return grid

    def minimise(self, columns: ArrayLike, weights: ArrayLike) -> None:
        """Add ``weights . columns`` to the objective."""
        columns = np.atleast_1d(np.asarray(columns, np.int64))
        self._costs.append((columns, np.broadcast_to(np.asarray(weights, float), columns.shape)))

    def minimise_products(self, u: ArrayLike, v: ArrayLike, weights: ArrayLike) -> None:
        """Add ``sum weights * u * v`` to the objective."""
        u = np.atleast_1d(np.asarray(u, np.int64))
        v = np.atleast_1d(np.asarray(v, np.int64))
        self._products.append((u, v, np.broadcast_to(np.asarray(weights, float), u.shape)))

    def row(
        self,
        terms: Sequence[tuple[int, float]],
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> int:
        """One row ``lower <= sum value * column <= upper`` over (column, value) terms."""
        self._count_block()
        row = self.row_count
        self._row_lower.append(lower)
        self._row_upper.append(upper)
        for column, value in terms:
            self._row_of.append(row)
            self._column_of.append(column)
            self._value_of.append(value)
        return row

    def new_rows(
        self, count: int, *, lower: float = -np.inf, upper: float = np.inf
    ) -> NDArray[np.int64]:
        """`count` rows without entries yet."""
        self._count_block()
        rows = np.arange(self.row_count, self.row_count + count, dtype=np.int64)
        self._row_lower.extend([lower] * count)
        self._row_upper.extend([upper] * count)
        return rows

    def entries(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> None:
        """Add `values` to the coefficients at (`rows`, `columns`)."""
        self._count_block()
        rows = np.atleast_1d(np.asarray(rows, np.int64))
        columns = np.atleast_1d(np.asarray(columns, np.int64))
        self._entries.append(
            (rows, columns, np.broadcast_to(np.asarray(values, float), rows.shape))
        )

    def _count_block(self) -> None:
        self._blocks += 1
        if self._blocks % _BLOCKS_PER_LOOK == 0:
            self.look()

    def build(self) -> Program:
        """The program; entries at the same place add up."""
        lower, upper, is_integer = _joined(self._bounds, (float, float, bool))
        single = (np.array(self._row_of), np.array(self._column_of), np.array(self._value_of))
        rows, columns, values = _joined([*self._entries, single], (np.int64, np.int64, float))
        cost_columns, weights = _joined(self._costs, (np.int64, float))
        u, v, products = _joined(self._products, (np.int64, np.int64, float))
        cost = np.zeros(self.column_count)
        np.add.at(cost, cost_columns, weights)
        place = rows * max(self.column_count, 1) + columns
        unique, inverse = np.unique(place, return_inverse=True)
        summed = np.zeros(len(unique))
        np.add.at(summed, inverse, values)
        unique, summed = unique[summed != 0], summed[summed != 0]
        entry_rows, entry_columns = np.divmod(unique, max(self.column_count, 1))
        starts = np.searchsorted(entry_rows, np.arange(self.row_count + 1))
        return Program(
            cost=cost,
            lower=lower,
            upper=upper,
            is_integer=is_integer,
            row_lower=np.array(self._row_lower),
            row_upper=np.array(self._row_upper),
            starts=starts.astype(np.int64),
            columns=entry_columns,
            values=summed,
            quadratic_columns=np.stack([u, v], axis=1),
            quadratic_values=products,
        )


def refuse_too_large(cells: int, ops: int, most_cells: int) -> None:
    """Refuse a stage model of more cells, devices by stages by what ops make, before its first column.

    Raises
    ------
    UnsupportedProblemError
        Says how large it is.
    """
    if cells > most_cells:
        raise UnsupportedProblemError(
            f"the stage model of {ops:,} ops has {cells:,} places (devices x stages x results), and at most"
            f" {most_cells:,} are written; use solver auto"
        )


def is_set(x: NDArray[np.float64], column: int) -> bool:
    """Whether the binary at `column` is 1 in solution `x`; an absent one, -1, is not."""
    return column >= 0 and bool(x[column] > 0.5)


def side_by_side(programs: Sequence[Program]) -> Program:
    """One program made of several independent ones; their objectives add up.

    Its columns are those of the first, then those of the second, and so on.
    """
    columns = np.cumsum([0, *(program.column_count for program in programs)])
    entries = np.cumsum([0, *(len(program.values) for program in programs)])

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(program, name) for program in programs])

    def shifted(name: str, by: NDArray[np.int64]) -> NDArray[np.int64]:
        arrays = [getattr(program, name) for program in programs]
        return np.concatenate([array + k for array, k in zip(arrays, by, strict=False)])

    starts = [program.starts[:-1] + k for program, k in zip(programs, entries, strict=False)]
    return Program(
        cost=joined("cost"),
        lower=joined("lower"),
        upper=joined("upper"),
        is_integer=joined("is_integer"),
        row_lower=joined("row_lower"),
        row_upper=joined("row_upper"),
        starts=np.concatenate([*starts, entries[-1:]]),
        columns=shifted("columns", columns),
        values=joined("values"),
        quadratic_columns=shifted("quadratic_columns", columns),
        quadratic_values=joined("quadratic_values"),
    )


def _joined(
    blocks: Sequence[Sequence[NDArray[np.generic]]], kinds: Sequence[type]
) -> list[NDArray]:  # type: ignore[type-arg]
    """The blocks of each position, concatenated and of the kind asked for."""
    return [
        np.concatenate([block[k] for block in blocks]).astype(kind) if blocks else np.zeros(0, kind)
        for k, kind in enumerate(kinds)
    ]
